"""The errors a user can cause. Each message says what was wrong, what was received, what to do."""


class BertFeaturesError(Exception):
    """A failure that the user can fix; the command line prints it as one line, no traceback."""


class ConfigError(BertFeaturesError, ValueError):
    """A setting, or a combination of settings, that is not allowed (exit status 2)."""


class CheckpointError(BertFeaturesError):
    """A checkpoint that is missing, incomplete, contradicted or not a BERT."""


class InputError(BertFeaturesError):
    """Input text that cannot be read."""


class OutputError(BertFeaturesError):
    """Output that cannot be written, or a features file that cannot be read."""


class DeviceError(BertFeaturesError):
    """A device that cannot run the job, or is in use by another process."""


def extra_requirement(extra: str) -> str:
    """What to pass to `pip install` for an extra of this package, quoted for a shell.

    The package need not be on an index: the extra comes from where the package came from, which pip
    records (PEP 610), or from the checkout that is imported without being installed.
    """
    import importlib.metadata
    import json
    import shlex
    from pathlib import Path
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    name, checkout = f"bert_features[{extra}]", Path(__file__).resolve().parents[1]
    try:
        record = importlib.metadata.distribution("bert_features").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        is_checkout = (checkout / "setup.cfg").is_file()
        return shlex.quote(f"{checkout}[{extra}]" if is_checkout else name)
    if record is None:  # it came from an index
        return shlex.quote(name)
    origin = json.loads(record)
    url = origin["url"]
    if "dir_info" in origin:
        editable = "--editable " if origin["dir_info"].get("editable") else ""
        return editable + shlex.quote(f"{url2pathname(urlsplit(url).path)}[{extra}]")
    if "vcs_info" in origin:
        url = f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    return shlex.quote(f"{name} @ {url}")


class MissingExtraError(BertFeaturesError, ImportError):
    """An optional dependency that is not installed; the message holds the line that installs it.

    Args:
      package: what is missing, for the message.
      extra: the extra of this package that brings it; or, if there is none,
      install: what to pass to `pip install`.
    """

    def __init__(self, package: str, extra: str = "", *, install: str = "") -> None:
        install = install or extra_requirement(extra)
        super().__init__(f"{package} is not installed. Install it with: pip install {install}")

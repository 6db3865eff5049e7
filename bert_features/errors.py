"""The errors a user can cause. Each message says what was wrong, what was received, what to do."""

from typing import Any


class BertFeaturesError(Exception):
    """A failure that the user can fix; the command line prints it as one line, no traceback.

    Its message names settings as Python writes them: `max_seq_length`, `long_text='window'`.
    """


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


class ServiceError(BertFeaturesError):
    """A service that cannot be reached, does not answer as it should, or refuses a request.

    Attributes:
      status: the status of its answer, as 422; None if there is no answer.
    """

    status: int | None = None


_first_process: int | None = None  # where TensorFlow or JAX was used first


def check_process() -> None:
    """Refuses a process that was forked after a tokenizer or a runtime was made.

    TensorFlow's and JAX's threads are in its parent alone. It would wait for them for ever. A call
    inside a graph of TensorFlow 1 is refused too: nothing is computed there.

    Raises:
      DeviceError: it is one.
    """
    import os
    import sys

    global _first_process
    _first_process = _first_process or os.getpid()
    if _first_process != os.getpid():
        raise DeviceError(
            "this process was forked from one that had a tokenizer or an extractor, and cannot "
            "compute: the threads of TensorFlow are not in it; start processes by 'spawn' or "
            "'forkserver' (multiprocessing.get_context). Where they can only be forked, as by the "
            "num_proc of datasets, make the extractor inside the function that they run, and none "
            "before"
        )
    tf: Any = sys.modules.get("tensorflow")
    if hasattr(tf, "inside_function") and not (tf.executing_eagerly() or tf.inside_function()):
        raise DeviceError(
            "eager execution is off, and bert_features cannot compute without; leave out "
            "disable_v2_behavior() and disable_eager_execution(), or call it outside of tf.Graph"
        )


def first_line(error: BaseException, limit: int = 200, *, empty: str = "") -> str:
    """The first line of an error's message, of at most `limit` characters.

    `empty` stands for an empty message; by default the name of the error's class.
    """
    return (str(error).strip() or empty or type(error).__name__).splitlines()[0][:limit]


def printable(text: str) -> str:
    """A text on one line, its control characters escaped: others may have written it."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def extra_requirement(extra: str) -> str:
    """What to pass to `pip install` for an extra of this package, quoted for a shell.

    The package need not be on an index: the extra comes from where the package came from, which pip
    records (PEP 610), or from the checkout that is imported without being installed.
    """
    import contextlib
    import importlib.metadata
    import json
    import shlex
    from pathlib import Path
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    name, checkout = f"bert_features[{extra}]", Path(__file__).resolve().parents[1]
    record = None
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        record = importlib.metadata.distribution("bert_features").read_text("direct_url.json")
    if record is None:  # a checkout that is not installed, or it came from an index
        is_checkout = (checkout / "setup.cfg").is_file()
        return shlex.quote(f"{checkout}[{extra}]" if is_checkout else name)
    origin = json.loads(record)
    url = origin["url"]
    if "dir_info" in origin:
        editable = "--editable " if origin["dir_info"].get("editable") else ""
        return editable + shlex.quote(f"{url2pathname(urlsplit(url).path)}[{extra}]")
    if "vcs_info" in origin:
        url = f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    return shlex.quote(f"{name} @ {url}")


def describe_exit(status: int) -> str:
    """How a process ended, by its exit status as `multiprocessing` has it: below 0 for a signal."""
    import signal

    if status >= 0:
        return f"exit status {status}"
    name = signal.Signals(-status).name
    return f"{name}, as the system ends what takes too much memory" if name == "SIGKILL" else name


class MissingExtraError(BertFeaturesError, ImportError):
    """An optional dependency that is not installed; the message holds the line that installs it.

    Args:
      package: what is missing, for the message.
      extra: the extra of this package that brings it; or, if there is none,
      install: what to pass to `pip install`.
    """

    def __init__(self, package: str, extra: str = "", install: str = "") -> None:
        super().__init__(package, extra, install or extra_requirement(extra))

    def __str__(self) -> str:
        package, _, install = self.args
        return f"{package} is not installed. Install it with: pip install {install}"

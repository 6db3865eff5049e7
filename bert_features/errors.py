"""The errors a user can cause. Each message says what was wrong, what was received, what to do."""

from collections.abc import Callable, Mapping
from typing import Any, Self

# Writes a setting as its user would: from its name and, if not empty, its value as in Python.
Spell = Callable[[str, str], str]


def as_keyword(name: str, value: str = "") -> str:
    """A setting as Python writes it: `max_seq_length`, `long_text='window'`."""
    return f"{name}={value}" if value else name


class BertFeaturesError(Exception):
    """A failure that the user can fix; the command line prints it as one line, no traceback.

    Attributes:
      spell: how the user wrote the settings, if the place that knows has said so.
    """

    spell: Spell | None = None
    _template: str | None = None
    _values: Mapping[str, object] = {}

    @classmethod
    def naming(cls, template: str, **values: object) -> Self:
        """An error whose message names settings: as keywords in Python, as options elsewhere.

        Args:
          template: the message for `str.format_map`. A name in braces that is not among `values`
            is a setting, if need be with a value: `{stride}`, `{long_text:'window'}`.
          **values: what else stands in braces. The settings that an error among them names are
            written in the same way.
        """
        error = cls(_fill(template, values, as_keyword))
        error._template, error._values = template, values
        return error

    def __reduce__(self) -> tuple[object, ...]:
        # Another process makes it without `__init__`, whose arguments a subclass may have changed.
        return _restore, (type(self), self.args, self.__dict__)

    def spelled(self, spell: Spell) -> str:
        """The message with its settings as `spell` writes them."""
        return str(self) if self._template is None else _fill(self._template, self._values, spell)


def _restore(
    kind: type[BertFeaturesError], args: tuple[object, ...], state: dict[str, object]
) -> BertFeaturesError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class _Names(dict[str, object]):
    """Values by name; any other name is a setting."""

    def __init__(self, values: Mapping[str, object], spell: Spell) -> None:
        super().__init__(
            {
                name: value.spelled(spell) if isinstance(value, BertFeaturesError) else value
                for name, value in values.items()
            }
        )
        self._spell = spell

    def __missing__(self, name: str) -> "_Setting":
        return _Setting(name, self._spell)


class _Setting:
    def __init__(self, name: str, spell: Spell) -> None:
        self._name, self._spell = name, spell

    def __format__(self, value: str) -> str:
        return self._spell(self._name, value)


def _fill(template: str, values: Mapping[str, object], spell: Spell) -> str:
    return template.format_map(_Names(values, spell))


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

    def __init__(self, package: str, extra: str = "", *, install: str = "") -> None:
        install = install or extra_requirement(extra)
        super().__init__(f"{package} is not installed. Install it with: pip install {install}")

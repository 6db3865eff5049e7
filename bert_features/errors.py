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


class MissingExtraError(BertFeaturesError, ImportError):
    """An optional dependency that is not installed; the message holds the line that installs it.

    Args:
      package: what is missing, for the message.
      extra: the extra of this package that brings it; or, if there is none,
      install: what to pass to `pip install`.
    """

    def __init__(self, package: str, extra: str = "", *, install: str = "") -> None:
        install = install or f"'bert_features[{extra}]'"
        super().__init__(f"{package} is not installed. Install it with: pip install {install}")

"""The errors a user can cause. Each message says what was wrong, what was received, what to do."""


class BertFeaturesError(Exception):
    """A failure that the user can mend; the command line prints it as one line, no traceback."""


class ConfigError(BertFeaturesError, ValueError):
    """A setting, or a combination of settings, that is not allowed (exit status 2)."""


class CheckpointError(BertFeaturesError):
    """A checkpoint that is missing, incomplete, of another architecture, or contradicted."""


class InputError(BertFeaturesError):
    """Input text that cannot be read."""


class OutputError(BertFeaturesError):
    """Output that cannot be written, or a features file that cannot be read."""


class DeviceError(BertFeaturesError):
    """A device that cannot do what is asked of it, or is held by someone else."""


class MissingExtraError(BertFeaturesError, ImportError):
    """An optional dependency that is not installed; the message holds the line that installs it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed. Install it with: pip install 'bert_features[{extra}]'"
        )

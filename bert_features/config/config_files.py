"""Files of settings: a user's TOML file, or one of those that come with the package, by name."""

from pathlib import Path

from bert_features.errors import ConfigError

PRESETS = Path(__file__).with_name("presets")


def preset_names() -> list[str]:
    """The names of the settings that come with the package, sorted."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def read_config(name: str | Path) -> tuple[Path, str]:
    """The file of a config, and its text: the file at this path, else the package's of this name.

    Raises ConfigError if there is neither, or it cannot be read.
    """
    path = Path(name)
    try:
        return path, path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    except OSError as error:
        is_absent = isinstance(error, FileNotFoundError)
        if str(name) in preset_names() and (is_absent or isinstance(error, IsADirectoryError)):
            path = PRESETS / f"{name}.toml"
            return path, path.read_text(encoding="utf-8")
        raise ConfigError(
            f"cannot read the config {name}: {error.strerror}; pass the path of a TOML file, or a "
            f"name that comes with the package: {', '.join(preset_names())}"
        ) from error

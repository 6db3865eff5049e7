"""Files of settings: a user's TOML file, or one of those that come with the package, by name."""

from pathlib import Path

from bert_features.errors import ConfigError

_PRESETS = Path(__file__).with_name("presets")


def preset_names() -> list[str]:
    """The names of the settings that come with the package, sorted."""
    return sorted(path.stem for path in _PRESETS.glob("*.toml"))


def find_config(name: str | Path) -> Path:
    """The file of a config: the one at this path, else the one of this name in the package.

    Raises:
      ConfigError: there is neither.
    """
    path = Path(name)
    if path.exists() and not path.is_dir():  # a pipe too
        return path
    preset = _PRESETS / f"{name}.toml"
    if path.name == str(name) and preset.is_file():
        return preset
    reason = "it is a folder" if path.is_dir() else "there is no such file"
    raise ConfigError(
        f"cannot read the config {name}: {reason}; pass the path of a TOML file, or a name that "
        f"comes with the package: {', '.join(preset_names())}"
    )


def read_config(path: Path) -> str:
    """The text of a config.

    Raises:
      ConfigError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the config {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error

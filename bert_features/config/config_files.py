"""Files of settings: a user's TOML file, or one of those that come with the package, by name."""

from pathlib import Path

from bert_features.errors import ConfigError

PRESETS = Path(__file__).with_name("presets")
# Names of version 0.1.0, whose settings were a checkpoint and the defaults. A run that began with
# one is resumed with this checkpoint and casing.
_CHECKPOINTS = {
    "bert-base-cased": "cased_L-12_H-768_A-12",
    "bert-base-chinese": "chinese_L-12_H-768_A-12",
    "bert-base-multilingual-cased": "multi_cased_L-12_H-768_A-12",
    "bert-base-uncased": "uncased_L-12_H-768_A-12",
    "bert-large-uncased": "uncased_L-24_H-1024_A-16",
    "minilm": "minilm",
}


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
        if (checkpoint := _CHECKPOINTS.get(str(name))) and is_absent:
            is_cased = checkpoint.startswith(("cased", "multi_cased"))
            casing = "" if checkpoint == name else f" {{do_lower_case:{not is_cased}}}"
            raise ConfigError.naming(
                f"there is no config {name} any more; pass {{checkpoint:{checkpoint!r}}}{casing}"
            ) from error
        if str(name) in preset_names() and (is_absent or isinstance(error, IsADirectoryError)):
            path = PRESETS / f"{name}.toml"
            return path, path.read_text(encoding="utf-8")
        raise ConfigError(
            f"cannot read the config {name}: {error.strerror}; pass the path of a TOML file, or a "
            f"name that comes with the package: {', '.join(preset_names())}"
        ) from error

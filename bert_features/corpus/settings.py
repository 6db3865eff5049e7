"""The settings of a run as its manifest records them, and back."""

from collections.abc import Collection, Mapping
from typing import Any

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.outputs import OutputConfig
from bert_features.config.poolings import AUTO_POOLING
from bert_features.config.settings import Settings
from bert_features.errors import ConfigError, OutputError
from bert_features.formats.manifest import Manifest

# They do not change the features of an example.
_LEFT_OUT = {"format", "shard", *ExtractConfig.names("reuse")}


def record_settings(config: ExtractConfig) -> dict[str, Any]:
    """The settings that the features depend on.

    Pooling `auto` leaves to the checkpoint what the user has not set. So of each output with it,
    the settings that were set to their defaults are recorded too.
    """
    return {
        "settings": config.model_dump(mode="json", exclude=_LEFT_OUT),
        "set_to_default": _set_to_default(config),
    }


def add_defaults(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Recorded settings, with defaults for settings that an earlier version did not have."""
    usual = OutputConfig().model_dump(mode="json")
    outputs = [usual | output for output in recorded.get("outputs", ())]
    defaults = ExtractConfig().model_dump(mode="json", exclude=_LEFT_OUT)
    return {**defaults, **recorded, "outputs": outputs}


def restore_settings(manifest: Manifest) -> ExtractConfig:
    """The settings of a run that has begun.

    Raises OutputError if the manifest lacks them, or this release does not know one.
    """
    try:
        recorded, chosen = manifest.run["settings"], manifest.run["set_to_default"]
        outputs = recorded["outputs"]
        values = _without_defaults(recorded, ExtractConfig(), () if outputs else chosen[0])
        if outputs:
            values["outputs"] = [
                _without_defaults(output, OutputConfig(), names)
                for output, names in zip(outputs, chosen, strict=True)
            ]
        return ExtractConfig.of({**values, "format": manifest.format})
    except (ConfigError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise OutputError(
            f"cannot take the settings of the run from the manifest of {manifest.folder} "
            f"({error}); use the release that wrote it, or extract again with --overwrite"
        ) from error


def _set_to_default(config: ExtractConfig) -> list[list[str]]:
    """For each output with pooling `auto`, the settings that were set and are at their default."""
    found = []
    for output in config.output_configs():
        source: Settings = output if config.outputs else config
        names = output.model_fields_set if output.pooling == AUTO_POOLING else set()
        fields = type(source).model_fields
        found.append(sorted(n for n in names if getattr(source, n) == fields[n].default))
    return found


def _without_defaults(
    recorded: Mapping[str, Any], defaults: Settings, chosen: Collection[str]
) -> dict[str, Any]:
    """The settings that differ from their defaults, and the chosen ones."""
    at_default = defaults.model_dump(mode="json")
    return {
        name: value
        for name, value in recorded.items()
        if name in chosen or name not in at_default or value != at_default[name]
    }

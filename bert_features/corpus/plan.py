"""The plan of a run: its inputs cut into shards, and what their features depend on."""

import hashlib
import importlib.metadata
import platform
from pathlib import Path
from typing import Any, Literal

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.config.extract_config import ExtractConfig
from bert_features.corpus.shards import changed_input
from bert_features.errors import InputError, OutputError
from bert_features.files import connect, is_url, local_path
from bert_features.formats import SUFFIXES
from bert_features.formats.manifest import InputEntry, Manifest, ShardEntry
from bert_features.machine.tpu_installation import tensorflow_version
from bert_features.readers.examples import source_of
from bert_features.readers.opening import reading
from bert_features.readers.parts import cut

_PACKAGES = ("bert_features", "tensorflow-text", "keras", "numpy")


def make_plan(
    config: ExtractConfig, input_path: str, folder: Path, file_format: str, checkpoint: Checkpoint
) -> Manifest:
    """Reads the input and cuts it into shards.

    Args:
      config: the settings.
      input_path: the input; it can be read more than once.
      folder: where the shards go.
      file_format: their format.
      checkpoint: the checkpoint of the settings.

    Raises:
      InputError: the input cannot be read, is not of its format, or has wrong ids.
    """
    source = source_of(input_path, config.input_settings(), config.encoding_errors)
    size, modified = look_up(input_path)
    shards: list[ShardEntry] = []
    id_type: Literal["int", "str"] = "int"
    for found in cut(source, config.shard_examples):
        id_type = found.id_type if found.part.records else id_type
        span = found.part.span
        shards.append(
            ShardEntry(
                input=0,
                first=found.part.first,
                records=found.part.records or 0,
                start=span.start,
                end=span.end,
                line=span.line,
                crc32c=found.crc32c,
            )
        )
    records = sum(shard.records for shard in shards)
    if look_up(input_path) != (size, modified):
        raise changed_input(input_path)
    return Manifest(
        folder=folder,
        format=file_format,
        suffix=_suffix(file_format),
        id_type=id_type,
        run=describe_run(config, checkpoint),
        inputs=(InputEntry(path=input_path, bytes=size, modified_ns=modified, records=records),),
        shards=tuple(shards),
    )


def describe_run(config: ExtractConfig, checkpoint: Checkpoint) -> dict[str, Any]:
    """What the bytes of the files depend on, beside the input and the device."""
    vocabulary = checkpoint.vocab_file
    return {
        "settings": config.model_dump(mode="json", exclude={"format", "shard"}),
        "checkpoint": {"name": checkpoint.name, "sha256": checkpoint.sha256},
        "vocabulary": {
            "sha256": hashlib.sha256(vocabulary.read_bytes()).hexdigest() if vocabulary else None
        },
        "versions": _versions(),
    }


def look_up(path: str) -> tuple[int, int | None]:
    """The size of an input in bytes, and when it was last changed, in ns; None if not known.

    Raises:
      InputError: the input is gone.
    """
    if is_url(path):
        filesystem, name = connect(path, InputError)
        with reading(path):
            size: int = filesystem.info(name)["size"]
        return size, None
    with reading(path):
        status = local_path(path).stat()
    return status.st_size, status.st_mtime_ns


def check_same_run(begun: Manifest, wanted: dict[str, Any]) -> None:
    """Refuses to go on with a run that other settings, weights or versions began.

    Args:
      begun: the run.
      wanted: `describe_run` of now.

    Raises:
      OutputError: they differ; the message names each difference.
    """
    before = {name: value for name, value in begun.run.items() if name in wanted}
    differences = _differences(before, wanted)
    if differences:
        raise OutputError.naming(
            "{folder} was begun by a run with {differences}; pass the same to go on, another "
            "folder, or {overwrite:True} to begin again",
            folder=begun.folder,
            differences="; ".join(differences),
        )


def check_same_format(begun: Manifest, wanted: str) -> None:
    """Refuses to go on with a run in another format.

    Raises:
      OutputError: the formats differ.
    """
    if begun.format != wanted:
        raise OutputError.naming(
            "{folder} was begun in format {before}, but {format} is {wanted}; pass {same}",
            folder=begun.folder,
            before=begun.format,
            wanted=wanted,
            same=OutputError.naming("{format:'" + begun.format + "'}"),
        )


def _differences(before: Any, now: Any, name: str = "") -> list[str]:
    """Each value that differs, as `dtype 'float16', now 'float32'`."""
    if isinstance(before, dict) and isinstance(now, dict):
        found = []
        for key in sorted(before.keys() | now.keys()):
            inner = key if name in ("", "settings") else f"{name}.{key}"
            found += _differences(before.get(key), now.get(key), inner)
        return found
    return [] if before == now else [f"{name} {before!r}, now {now!r}"]


def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return versions | {"tensorflow": tensorflow_version(), "python": platform.python_version()}


def _suffix(file_format: str) -> str:
    return next(suffix for suffix, name in SUFFIXES.items() if name == file_format)

"""The plan of a run: its inputs cut into shards, and what their features depend on."""

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.shards import MAX_COUNT
from bert_features.corpus.inputs import Stamp, check_still, look_up_all, name_some
from bert_features.corpus.settings import record_settings
from bert_features.errors import InputError
from bert_features.extraction.description import describe_vocabulary, find_versions
from bert_features.files import Location
from bert_features.formats import SUFFIXES
from bert_features.formats.manifest import InputEntry, Manifest, ShardEntry
from bert_features.machine.selection import choose_runtime
from bert_features.readers.contents import no_examples
from bert_features.readers.examples import source_of_input
from bert_features.readers.ids import Ids
from bert_features.readers.parts import cut

logger = logging.getLogger("bert_features")


def make_plan(
    config: ExtractConfig,
    inputs: Sequence[str],
    folder: Location,
    file_format: str,
    checkpoint: Checkpoint,
) -> Manifest:
    """Reads the inputs and cuts each into shards; an input can be read more than once.

    An input without examples gets no shard. Raises ConfigError if no input has examples, InputError
    if an input cannot be read, is not of its format or has wrong ids, or there are too many shards.
    """
    stamps = look_up_all(inputs)
    entries: list[InputEntry] = []
    shards: list[ShardEntry] = []
    id_type: Literal["int", "str"] = "int"
    first = 0
    with contextlib.closing(Ids(source_of_input(config, inputs[0]))) as ids:
        for number, (path, stamp) in enumerate(zip(inputs, stamps, strict=True)):
            found = cut_input(config, path, stamp, number=number, first=first, ids=ids)
            entries.append(found.entry)
            if not found.entry.records:
                continue
            first += found.entry.records
            shards += found.shards
            id_type = found.id_type
            if len(shards) > MAX_COUNT:
                raise InputError.naming(
                    "the inputs make more than {most:,} shards; pass a larger {shard_examples}, or "
                    "fewer and larger files",
                    most=MAX_COUNT,
                )
        ids.finish()
    check_still(inputs, stamps)
    empty = [entry.path for entry in entries if not entry.records]
    if not shards:
        raise no_examples(name_some(empty))
    if empty:
        message = "%d of %d inputs have no examples: %s"
        logger.warning(message, len(empty), len(inputs), name_some(empty))
    return Manifest(
        folder=folder,
        format=file_format,
        suffix=next(suffix for suffix, name in SUFFIXES.items() if name == file_format),
        id_type=id_type,
        run=describe_run(config, checkpoint),
        inputs=tuple(entries),
        shards=tuple(shards),
    )


@dataclass(frozen=True)
class CutInput:
    """An input and its shards.

    Attributes:
      shards: its shards; one without examples for an input without examples.
      id_type: whether its ids are `int` or `str`.
    """

    entry: InputEntry
    shards: tuple[ShardEntry, ...]
    id_type: Literal["int", "str"]


def cut_input(
    config: ExtractConfig,
    path: str,
    stamp: Stamp,
    *,
    number: int,
    first: int,
    ids: Ids | None = None,
) -> CutInput:
    """Cuts an input, whose first example has the number `first`; errors as `make_plan`.

    Its `stamp` is from a `look_up` before; the caller looks it up again afterwards (`check_still`).
    For `ids` see `registry.read`.
    """
    parts = list(cut(source_of_input(config, path), config.shard_examples, first=first, ids=ids))
    shards = tuple(
        ShardEntry(
            input=number,
            crc32c=found.crc32c,
            **asdict(found.part) | {"records": found.part.records or 0},
        )
        for found in parts
    )
    records = sum(shard.records for shard in shards)
    entry = InputEntry(path=path, **stamp._asdict(), records=records)
    return CutInput(entry, shards, parts[0].id_type)


def describe_run(config: ExtractConfig, checkpoint: Checkpoint) -> dict[str, Any]:
    """What the bytes of the files depend on, beside the input and the device."""
    return {
        **record_settings(config),
        "checkpoint": {"name": checkpoint.name, "sha256": checkpoint.sha256},
        "vocabulary": describe_vocabulary(checkpoint),
        "versions": find_versions(choose_runtime(config.runtime, config.device)),
    }

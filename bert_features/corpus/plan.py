"""The plan of a run: its inputs cut into shards, and what their features depend on.

The manifest records the settings, and a run that is resumed or repaired takes them from there.
"""

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import asdict

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.shards import MAX_COUNT
from bert_features.corpus.inputs import Stamp, check_still, look_up_all, name_some
from bert_features.errors import ConfigError, InputError, OutputError
from bert_features.extraction.recipe import plan_recipe
from bert_features.files import Location
from bert_features.formats import SUFFIXES, IdType
from bert_features.formats.manifest import InputEntry, Manifest, ShardEntry
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
    id_type: IdType = "int"
    first = 0
    with contextlib.closing(Ids(source_of_input(config, inputs[0]))) as ids:
        for number, (path, stamp) in enumerate(zip(inputs, stamps, strict=True)):
            entry, parts, own_type = cut_input(
                config, path, stamp, number=number, first=first, ids=ids
            )
            entries.append(entry)
            if not entry.records:
                continue
            first += entry.records
            shards += parts
            id_type = own_type
            if len(shards) > MAX_COUNT:
                raise InputError(
                    f"the inputs make more than {MAX_COUNT:,} shards; pass a larger "
                    "shard_examples, or fewer and larger files"
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
        recipe=plan_recipe(config, checkpoint),
        inputs=tuple(entries),
        shards=tuple(shards),
    )


def cut_input(
    config: ExtractConfig,
    path: str,
    stamp: Stamp,
    *,
    number: int,
    first: int,
    ids: Ids | None = None,
) -> tuple[InputEntry, list[ShardEntry], IdType]:
    """Cuts an input, whose first example has the number `first`; errors as `make_plan`.

    Gives its shards, one without examples for an input without examples, and the type of its ids.
    Its `stamp` is from a `look_up` before; the caller looks it up again afterwards (`check_still`).
    For `ids` see `registry.read`.
    """
    parts = list(cut(source_of_input(config, path), config.shard_examples, first=first, ids=ids))
    shards = [
        ShardEntry(
            input=number,
            crc32c=piece.crc32c,
            **asdict(piece.part) | {"records": piece.part.records or 0},
        )
        for piece in parts
    ]
    records = sum(shard.records for shard in shards)
    entry = InputEntry(path=path, **stamp._asdict(), records=records)
    return entry, shards, parts[0].id_type


def restore_settings(manifest: Manifest) -> ExtractConfig:
    """The settings of a run that has begun.

    Raises OutputError if this release does not know one.
    """
    try:
        return manifest.recipe.to_config(format=manifest.format)
    except ConfigError as error:
        raise OutputError(
            f"cannot take the settings of the run from the manifest of {manifest.folder} "
            f"({error}); use the release that wrote it, or extract again with --overwrite"
        ) from error

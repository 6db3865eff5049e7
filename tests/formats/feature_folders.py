"""Features folders for tests: each batch is a shard."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from bert_features.files.checksums import checksum_of_ends, checksum_of_file
from bert_features.formats import IdType, output_targets
from bert_features.formats.manifest import FinishedEntry, InputEntry, Manifest, ShardEntry
from bert_features.formats.records import Feature, FeatureBatch
from tests.formats.feature_files import SUFFIX, write
from tests.recipes import make_recipe


def make_manifest(
    folder: Path, format: str, counts: Sequence[int], id_type: IdType = "int"
) -> Manifest:
    """The manifest of a run that has just begun: shards of these numbers of records."""
    shards = [
        ShardEntry(
            input=0, first=sum(counts[:i]), records=count, start=0, end=None, line=0, crc32c="0" * 8
        )
        for i, count in enumerate(counts)
    ]
    of_input = InputEntry(
        path="in.txt", bytes=7, modified_ns=None, version=None, records=sum(counts)
    )
    return Manifest(
        folder=folder,
        format=format,
        suffix=SUFFIX[format],
        id_type=id_type,
        recipe=make_recipe(
            checkpoint={
                "name": "naïve 東京",
                "sha256": "ab",
                "bert_config": {"num_hidden_layers": 3},
            }
        ),
        inputs=(of_input,),
        shards=tuple(shards),
    )


def describe_shard(manifest: Manifest, shard: int) -> FinishedEntry:
    """The record of a shard that has been written."""
    *sidecar, path = output_targets(manifest.path(shard), format=manifest.format)
    return FinishedEntry(
        bytes=path.stat().st_size,
        crc32c=checksum_of_file(path),
        sidecar_crc32c=checksum_of_file(sidecar[0]) if sidecar else None,
        ends_crc32c=checksum_of_ends(path)[1],
        seconds=0.5,
        counts={"examples": manifest.shards[shard].records},
    )


def finish(manifest: Manifest) -> Manifest:
    """Ends a run all of whose shards have been written, and writes its manifest."""
    entries = tuple(describe_shard(manifest, shard) for shard in range(len(manifest.shards)))
    finished = dataclasses.replace(manifest, finished=entries)
    finished.write()
    return finished


def write_folder(
    folder: Path,
    format: str,
    features: tuple[Feature, ...],
    *batches: FeatureBatch,
    id_type: IdType = "int",
) -> Manifest:
    """The folder of a finished run."""
    folder.mkdir()
    manifest = make_manifest(folder, format, [len(batch) for batch in batches], id_type)
    for shard, batch in enumerate(batches):
        write(manifest.path(shard), format, features, batch, id_type=id_type)
    return finish(manifest)

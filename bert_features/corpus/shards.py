"""The shards of one process: each computed by itself, and put in its place whole."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Self

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.recipe import Recipe
from bert_features.corpus.executor import Ready
from bert_features.corpus.inputs import changed_input
from bert_features.extraction.counts import Counts
from bert_features.extraction.feature_store import StorePlace, open_store
from bert_features.extraction.ledger import Ledger
from bert_features.extraction.writing import write_behind
from bert_features.files import storage_errors
from bert_features.files.checksums import as_hex, checksum_of_ends, checksum_of_file
from bert_features.formats import FeatureWriter, IdType, open_writer, output_targets
from bert_features.formats.headers import TEXTS_CHECKSUM
from bert_features.formats.jsonl import StreamWriter
from bert_features.formats.manifest import FinishedEntry, Manifest
from bert_features.machine.hardware import describe_processor
from bert_features.machine.quiet_tensorflow import import_tensorflow
from bert_features.monitor.stages import StageClock
from bert_features.readers import registry
from bert_features.readers.examples import source_of_input
from bert_features.readers.input_example import InputExample
from bert_features.readers.labels import check_labels
from bert_features.readers.lines import InputPart, Place

if TYPE_CHECKING:
    from bert_features.extraction.pipeline import Pipeline


@dataclass(frozen=True)
class ShardJob:
    """What the shards of a run are computed from.

    Attributes:
      place: where the features of texts that repeat are; None for nowhere.
    """

    config: ExtractConfig
    manifest: Manifest
    place: StorePlace | None = None


class ShardWriter:
    """Computes the shards of a run with one model.

    Attributes:
      ready: on what it computes, and which facts it would share.
    """

    def __init__(self, job: ShardJob, extractor: "Pipeline") -> None:
        processor = describe_processor(extractor.devices.kind)
        self.ready = Ready(extractor.recipe, processor)
        self._job, self._extractor = job, extractor
        self.checkpoint = extractor.checkpoint
        self.stages = StageClock()

    @classmethod
    def load(cls, job: ShardJob, checkpoint: Checkpoint | None = None) -> Self:
        """Loads the model, with its checkpoint if found already; errors of `Pipeline`."""
        import_tensorflow(job.config.runtime, job.config.device, many_batches=True)
        from bert_features.extraction.pipeline import Pipeline

        extractor = Pipeline(job.config, checkpoint=checkpoint)
        sources = (source_of_input(job.config, entry.path) for entry in job.manifest.inputs)
        texts = chain.from_iterable(map(registry.read, sources))
        return cls(job, extractor.sharing(job.manifest.recipe).with_all_scales(texts)[0])

    def share(self, recipe: Recipe) -> None:
        """Computes all shards that follow with the scales and the canaries of the run.

        In a run that accepts new numbers each process keeps its own canaries.
        """
        manifest = self._job.manifest
        accepts = manifest.earlier and not manifest.recipe.canaries
        self._extractor = self._extractor.sharing(
            replace(recipe, canaries={}) if accepts else recipe
        )

    def write(self, shard: int, progress: Callable[[Counts], None]) -> FinishedEntry:
        """Computes a shard and puts its features file in its place.

        What is there already is replaced: the file of a run that was killed before it could record
        it. After every step of the device `progress` is called with the totals of this shard.

        Raises:
          BertFeaturesError: see `Pipeline.batches`; or the input is not what it was when
            the run began.
        """
        with self.stages.running():
            return self._write(shard, progress)

    def _write(self, shard: int, progress: Callable[[Counts], None]) -> FinishedEntry:
        started = time.monotonic()
        manifest, place = self._job.manifest, Place()
        entry = manifest.shards[shard]
        source = replace(
            source_of_input(self._extractor.config, manifest.inputs[entry.input].path),
            part=InputPart(entry.first, entry.records, entry.start, entry.end, entry.line),
            place=place,
        )
        form = manifest.format, manifest.id_type
        with manifest.store.placing(manifest.name(shard)) as path:
            file = open_file(
                self._extractor, path, *form, self.stages, overwrite=True, checksum=True
            )
            with file as writer:
                counts = compute_shard(
                    self._extractor,
                    lambda: registry.read(source),
                    writer,
                    self._job.place,
                    progress,
                    self.stages,
                )
                if entry.crc32c != as_hex(place.crc) or counts.examples != entry.records:
                    # Other machines may have what it was.
                    cure = "and run the same command again"
                    raise changed_input(manifest.inputs[entry.input].path, cure)
            finished = describe_shard(path, manifest.format, counts, writer.crc32c)
        seconds = time.monotonic() - started
        return finished.model_copy(update={"seconds": seconds, TEXTS_CHECKSUM: writer.texts_crc32c})


def open_file(
    extractor: "Pipeline",
    path: Path | None,
    format: str,
    id_type: IdType,
    stages: StageClock,
    *,
    overwrite: bool,
    checksum: bool = False,
) -> contextlib.AbstractContextManager[FeatureWriter | StreamWriter]:
    """Begins the features file of a shard; without a path, JSON lines on standard output."""
    if path is None:
        return contextlib.nullcontext(StreamWriter(extractor.features()))
    stages.lead("device")  # the canaries are the first to be computed, which takes seconds
    metadata = extractor.metadata()
    stages.lead("files")
    return open_writer(
        path,
        format=format,
        features=extractor.features(),
        metadata=metadata,
        id_type=id_type,
        overwrite=overwrite,
        checksum=checksum,
    )


def compute_shard(
    extractor: "Pipeline",
    examples: Callable[[], Iterable[InputExample]],
    writer: FeatureWriter | StreamWriter,
    place: StorePlace | None,
    progress: Callable[[Counts], None],
    stages: StageClock,
    *,
    ledger: Ledger | None = None,
) -> Counts:
    """Computes the features of the examples of a shard, and writes them; gives the totals.

    `place` is where the features of texts that repeat are; None for nowhere. After every step of
    the device `progress` is called with the totals so far. Raises errors of
    `Pipeline.batches`.
    """
    counts, crc = Counts(), 0

    def read() -> Iterator[InputExample]:
        nonlocal crc
        for example in examples():
            check_labels(example)
            crc = example.checksum(crc)
            yield example

    recipe = extractor.recipe if place else None
    with open_store(place, extractor.preparation, recipe) as store:
        batches = extractor.batches(
            read,
            counts=counts,
            progress=progress,
            ledger=ledger,
            warn=False,
            stages=stages,
            store=store,
        )
        max_bytes = extractor.config.buffer_mb << 20
        write_behind(batches, writer.write, max_bytes=max_bytes, stages=stages)
    writer.texts_crc32c = as_hex(crc)
    return counts


def describe_shard(path: Path, format: str, counts: Counts, crc32c: str | None) -> FinishedEntry:
    """The record of a shard, but for its seconds; a file without a checksum is read again."""
    *sidecars, file = output_targets(path, format=format)
    with storage_errors(f"read {path}", advice="finished shards are kept"):
        return FinishedEntry(
            bytes=file.stat().st_size,
            crc32c=crc32c or checksum_of_file(file),
            sidecar_crc32c=checksum_of_file(sidecars[0]) if sidecars else None,
            ends_crc32c=checksum_of_ends(file)[1],
            seconds=0.0,
            counts=asdict(counts),
        )

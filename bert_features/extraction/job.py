"""extract(): the job. A file of texts in, a file of features out, whole or not at all.

Importing this imports no framework: `extract` does, after the checks that need none.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.shards import AUTO, Shard
from bert_features.extraction.checks import Targets, check_extraction, files_read
from bert_features.extraction.counts import Counts
from bert_features.extraction.ledger import Ledger
from bert_features.extraction.writing import write_behind
from bert_features.files import Location
from bert_features.formats import FeatureWriter, IdType, open_writer
from bert_features.formats.stream import StreamWriter
from bert_features.machine.quiet_tensorflow import import_tensorflow
from bert_features.readers.examples import count_examples, read_examples
from bert_features.readers.input_example import InputExample

if TYPE_CHECKING:
    from bert_features.extraction.extractor import FeatureExtractor
    from bert_features.runtime.base import Runtime

logger = logging.getLogger("bert_features")


@dataclass(frozen=True, repr=False)
class ExtractSummary:
    """The result of `extract`.

    Attributes:
      counts: totals of the run.
      seconds: time from the first example read to the file closed.
      bytes_written: size of the output.
      output: the file or the folder written: its path, or its address; None for standard output.
      cures: settings that would keep what truncation cut off, with their values as in Python.
      before: the part of `counts` that earlier runs into the same folder computed.
      shards: the number of shards of a folder; None for a single file.
    """

    counts: Counts
    seconds: float
    bytes_written: int
    output: Location | None
    cures: Mapping[str, str] = field(default_factory=dict)
    before: Counts = field(default_factory=Counts)
    shards: int | None = None

    def __repr__(self) -> str:
        return (
            f"<ExtractSummary: {self.counts.examples:,} examples, {self.counts.tokens:,} tokens in "
            f"{self.seconds:.1f} s, {self.counts.tokens_lost:,} tokens lost, "
            f"{self.bytes_written:,} bytes in {self.output or 'standard output'}>"
        )

    @property
    def tokens_per_second(self) -> float:
        """Real tokens of this run divided by its whole time."""
        tokens = self.counts.tokens - self.before.tokens
        return tokens / self.seconds if self.seconds else 0.0


def extract(
    config: ExtractConfig,
    input_path: str | Path,
    output_path: str | Path,
    *,
    ledger_path: str | Path | None = None,
    overwrite: bool = False,
    progress: Callable[[Counts, int | None], None] | None = None,
) -> ExtractSummary:
    """Extracts the features of a file of examples into a file.

    The output appears under its name only when it is whole; a failure leaves nothing.

    Args:
      config: the settings.
      input_path: the file to read, in `config.input_format`; or `-` for standard input.
      output_path: the file to write; with `config.shard` its name gets the share's number. `-` for
        standard output, which takes JSON lines without a sidecar, as they are computed.
      ledger_path: a file for what happened to each example, one JSON line each, with the fields of
        `ExampleCounts`.
      overwrite: whether existing files may be replaced.
      progress: called after every step of the device with the totals so far and the number of
        examples in the input, None if that is unknown.

    Raises:
      BertFeaturesError: says in one sentence what was wrong.
    """
    checkpoint = check_extraction(config, input_path, output_path, ledger_path, overwrite=overwrite)
    import_tensorflow(config.runtime, config.device)
    from bert_features.extraction.extractor import FeatureExtractor
    from bert_features.runtime.start import make_runtime

    runtime = (
        make_runtime(config.runtime, config.device, config.attention)
        if config.shard == AUTO
        else None
    )
    shard = _shard(config, runtime)
    targets = Targets.of(config, output_path, ledger_path, shard, overwrite=overwrite)
    targets.check(files_read(config, input_path))
    count = count_examples(input_path, config.input_settings())
    total = None if count is None else shard.size(count)
    extractor = FeatureExtractor(config, runtime=runtime, checkpoint=checkpoint)
    targets.check(extractor.checkpoint.files())
    started = time.monotonic()
    counts = Counts()

    def note(latest: Counts) -> None:
        nonlocal counts
        counts = latest
        if progress:
            progress(latest, total)

    examples = read_examples(
        input_path, config.input_settings(), encoding_errors=config.encoding_errors
    )
    bytes_written = _write(extractor, examples, shard, targets, note)
    return ExtractSummary(
        counts,
        time.monotonic() - started,
        bytes_written,
        targets.output,
        cures=extractor.preparation.truncation_cures(),
    )


def _shard(config: ExtractConfig, runtime: "Runtime | None") -> Shard:
    """The share of this process; the log names one that `auto` chose."""
    from bert_features.extraction.preparation import resolve_shard

    shard = resolve_shard(config.shard, runtime)
    if config.shard == AUTO:  # hosts that do not know of each other would all do the same work
        alone = ", the whole input: this process knows of no others" if shard.count == 1 else ""
        logger.info("shard auto is %d/%d%s", shard.index, shard.count, alone)
    return shard


def _write(
    extractor: "FeatureExtractor",
    examples: Iterator[InputExample],
    shard: Shard,
    targets: Targets,
    progress: Callable[[Counts], None],
) -> int:
    """Computes the examples of a share and writes their features; gives the bytes written."""
    with contextlib.ExitStack() as stack:
        ledger = None
        if targets.ledger is not None:
            ledger = stack.enter_context(Ledger(targets.ledger, overwrite=targets.overwrite))
        mine, id_type = _peeked(examples, shard)
        writer = stack.enter_context(_writer(extractor, targets, id_type))
        batches = extractor.batches(lambda: mine, progress=progress, ledger=ledger)
        write_behind(batches, writer.write, max_bytes=extractor.config.buffer_mb << 20)
        if ledger:
            ledger.finish()
    return writer.bytes_written


def _writer(
    extractor: "FeatureExtractor", targets: Targets, id_type: IdType
) -> contextlib.AbstractContextManager[FeatureWriter | StreamWriter]:
    if targets.output is None:
        return contextlib.nullcontext(StreamWriter(features=extractor.features(), id_type=id_type))
    return open_writer(
        targets.output,
        format=targets.format,
        features=extractor.features(),
        metadata=extractor.metadata(),
        id_type=id_type,
        overwrite=targets.overwrite,
    )


def _peeked(
    examples: Iterator[InputExample], shard: Shard
) -> tuple[Iterator[InputExample], IdType]:
    """The share of the examples, and the type of the ids of all examples."""
    first = next(examples, None)
    if first is None:
        return iter(()), "int"
    id_type: IdType = "str" if isinstance(first.unique_id, str) else "int"
    return shard.take(chain([first], examples)), id_type

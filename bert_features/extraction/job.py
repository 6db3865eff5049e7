"""extract(): the job. A file of texts in, a file of features out, whole or not at all."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.shards import AUTO, Shard
from bert_features.errors import ConfigError, OutputError
from bert_features.extraction.counts import Counts
from bert_features.extraction.extractor import FeatureExtractor
from bert_features.extraction.ledger import Ledger
from bert_features.extraction.preparation import resolve_shard
from bert_features.files import check_target, real_target
from bert_features.formats import (
    IdType,
    check_dtype,
    check_output,
    open_writer,
    output_format,
    output_targets,
)
from bert_features.formats.checks import check_name
from bert_features.readers.examples import count_examples, read_examples
from bert_features.readers.input_example import InputExample
from bert_features.runtime.base import Runtime
from bert_features.runtime.start import make_runtime

logger = logging.getLogger("bert_features")


@dataclass(frozen=True, repr=False)
class ExtractSummary:
    """The result of `extract`.

    Attributes:
      counts: totals of the run.
      seconds: time from the first example read to the file closed.
      bytes_written: size of the output on disk.
      output: the file written.
    """

    counts: Counts
    seconds: float
    bytes_written: int
    output: Path

    def __repr__(self) -> str:
        return (
            f"<ExtractSummary: {self.counts.examples:,} examples, {self.counts.tokens:,} tokens in "
            f"{self.seconds:.1f} s, {self.counts.tokens_lost:,} tokens lost, "
            f"{self.bytes_written:,} bytes in {self.output}>"
        )

    @property
    def tokens_per_second(self) -> float:
        """Real tokens divided by the time of the whole run."""
        return self.counts.tokens / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class _Targets:
    """The files to write.

    Attributes:
      output: the features.
      format: their format.
      ledger: the ledger, if one is wanted.
      overwrite: whether existing files may be replaced.
    """

    output: Path
    format: str
    ledger: Path | None
    overwrite: bool

    def check(self) -> None:
        """Refuses files that exist or cannot be made, and writes nothing.

        Raises:
          OutputError: there is such a file.
        """
        check_output(self.output, format=self.format, overwrite=self.overwrite)
        if self.ledger is None:
            return
        for target in output_targets(self.output, format=self.format):
            if self.ledger.resolve() == target.resolve():
                raise OutputError(f"--output and --ledger both write {target}; pass two paths")
        check_target(real_target(self.ledger), overwrite=self.overwrite)


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
      output_path: the file to write; with `config.shard` its name gets the share's number.
      ledger_path: a file for what happened to each example, one JSON line each, with the fields of
        `ExampleCounts`.
      overwrite: whether existing files may be replaced.
      progress: called after every step of the device with the totals so far and the number of
        examples in the input, None if that is unknown.

    Raises:
      BertFeaturesError: says in one sentence what was wrong.
    """
    # Run cheap checks before loading the checkpoint.
    file_format = output_format(output_path, config.format)
    _check_outputs(config, file_format)
    runtime = make_runtime(config.runtime, config.device) if config.shard == AUTO else None
    shard = _shard(config, runtime)
    ledger = None if ledger_path is None else shard.path(ledger_path)
    targets = _Targets(shard.path(output_path), file_format, ledger, overwrite)
    targets.check()
    count = count_examples(input_path, config.input_settings())
    total = None if count is None else shard.size(count)
    extractor = FeatureExtractor(config, runtime=runtime)
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
    return ExtractSummary(counts, time.monotonic() - started, bytes_written, targets.output)


def _shard(config: ExtractConfig, runtime: Runtime | None) -> Shard:
    """The share of this process; the log names one that `auto` chose."""
    shard = resolve_shard(config.shard, runtime)
    if config.shard == AUTO:  # hosts that do not know of each other would all do the same work
        alone = ", the whole input: this process knows of no others" if shard.count == 1 else ""
        logger.info("shard auto is %d/%d%s", shard.index, shard.count, alone)
    return shard


def _write(
    extractor: FeatureExtractor,
    examples: Iterator[InputExample],
    shard: Shard,
    targets: _Targets,
    progress: Callable[[Counts], None],
) -> int:
    """Computes the examples of a share and writes their features; gives the bytes written."""
    with contextlib.ExitStack() as stack:
        ledger = None
        if targets.ledger is not None:
            ledger = stack.enter_context(Ledger(targets.ledger, overwrite=targets.overwrite))
        mine, id_type = _peeked(examples, shard)
        writer = stack.enter_context(
            open_writer(
                targets.output,
                format=targets.format,
                features=extractor.features(),
                metadata=extractor.metadata(),
                id_type=id_type,
                overwrite=targets.overwrite,
            )
        )
        for batch in extractor.batches(lambda: mine, progress=progress, ledger=ledger):
            writer.write(batch)
        if ledger:
            ledger.finish()
    return writer.bytes_written


def _check_outputs(config: ExtractConfig, file_format: str) -> None:
    """Refuses outputs that the file cannot hold, before anything is loaded."""
    for output in config.output_configs():
        if output.name is not None:
            check_name(output.name, ConfigError)
        check_dtype(file_format, output.dtype or config.dtype, ConfigError)


def _peeked(
    examples: Iterator[InputExample], shard: Shard
) -> tuple[Iterator[InputExample], IdType]:
    """The share of the examples, and the type of the ids of all examples."""
    first = next(examples, None)
    if first is None:
        return iter(()), "int"
    id_type: IdType = "str" if isinstance(first.unique_id, str) else "int"
    return shard.take(chain([first], examples)), id_type

"""A run that writes a single file, or standard output: one shard without a manifest.

Importing this imports no framework.
"""

import contextlib
import logging
import time
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.shards import Shard
from bert_features.corpus.shards import compute_shard
from bert_features.corpus.summary import ExtractSummary, Progress
from bert_features.corpus.target import FileTarget, check_run, files_read
from bert_features.extraction import losses
from bert_features.extraction.counts import Counts
from bert_features.extraction.feature_store import store_place
from bert_features.extraction.ledger import Ledger
from bert_features.formats import FeatureWriter, IdType, open_writer
from bert_features.formats.jsonl import StreamWriter
from bert_features.machine.quiet_tensorflow import import_tensorflow
from bert_features.monitor.run import RunMonitor
from bert_features.readers.examples import count_examples, read_examples
from bert_features.readers.input_example import InputExample

if TYPE_CHECKING:
    from bert_features.extraction.extractor import FeatureExtractor

logger = logging.getLogger("bert_features")


def run_file(
    config: ExtractConfig,
    path: str,
    target: FileTarget,
    progress: Progress | None,
    monitor: RunMonitor,
) -> ExtractSummary:
    """Computes the features of an input, or of a share of it.

    The output appears under its name only when it is whole; a failure leaves nothing.

    Args:
      config: the settings.
      path: the input.
      target: what to write.
      progress: see `corpus.job.extract`.
      monitor: see `corpus.job.extract`.

    Raises:
      BertFeaturesError: says in one sentence what was wrong.
    """
    checkpoint = check_run(config, [path], target)
    import_tensorflow(config.runtime, config.device)
    from bert_features.extraction.extractor import FeatureExtractor
    from bert_features.runtime.start import make_runtime

    runtime = None
    if target.shard is None:
        runtime = make_runtime(config.runtime, config.device, config.attention)
        target = target.of_shard(_find_shard(*runtime.process))
        target.check([*files_read(config, path), *checkpoint.files()])
    count = count_examples(path, config.input_settings())
    total = None if count is None or target.shard is None else target.shard.size(count)
    extractor = FeatureExtractor(config, runtime=runtime, checkpoint=checkpoint)
    monitor.begin(checkpoint.name, extractor.device)
    started = time.monotonic()

    def note(counts: Counts) -> None:
        if progress:
            progress(counts, total)

    with monitor.clock.running(), contextlib.ExitStack() as stack:
        ledger = None
        if target.ledger is not None:
            ledger = stack.enter_context(Ledger(target.ledger, overwrite=target.overwrite))
        settings = config.input_settings()
        examples = read_examples(path, settings, encoding_errors=config.encoding_errors)
        mine, id_type = _take_share(examples, target.shard or Shard())
        writer = stack.enter_context(_open_writer(extractor, target, id_type))
        place = stack.enter_context(store_place(config, target.output))
        counts = compute_shard(
            extractor, lambda: mine, writer, place, note, monitor.clock, ledger=ledger
        )
        losses.warn(counts, checkpoint)
        if ledger:
            ledger.finish()
    return ExtractSummary(
        counts,
        time.monotonic() - started,
        writer.bytes_written,
        target.output,
        cures=losses.find_cures(config, checkpoint),
        stages=monitor.times(),
    )


def _find_shard(index: int, count: int) -> Shard:
    """The share of this process, which the log names."""
    # Hosts that do not know of each other would all do the same work.
    alone = ", the whole input: this process knows of no others" if count == 1 else ""
    logger.info("shard auto is %d/%d%s", index, count, alone)
    return Shard(index, count)


def _open_writer(
    extractor: "FeatureExtractor", target: FileTarget, id_type: IdType
) -> contextlib.AbstractContextManager[FeatureWriter | StreamWriter]:
    if target.output is None:
        return contextlib.nullcontext(StreamWriter(extractor.features()))
    return open_writer(
        target.output,
        format=target.format,
        features=extractor.features(),
        metadata=extractor.metadata(),
        id_type=id_type,
        overwrite=target.overwrite,
    )


def _take_share(
    examples: Iterator[InputExample], shard: Shard
) -> tuple[Iterator[InputExample], IdType]:
    """The share of the examples, and the type of the ids of all examples."""
    first = next(examples, None)
    if first is None:
        return iter(()), "int"
    id_type: IdType = "str" if isinstance(first.unique_id, str) else "int"
    return shard.take(chain([first], examples)), id_type

"""extract(): the job, into a file or into a folder of shards.

Importing this imports no framework: `extract` does, after the checks that need none.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.find import find_checkpoint
from bert_features.config.extract_config import ExtractConfig
from bert_features.corpus.folder import (
    check_apart,
    check_checkpoint_apart,
    check_folder,
    conclude,
    empty,
    holding,
)
from bert_features.corpus.plan import (
    check_same_format,
    check_same_run,
    describe_run,
    look_up,
    make_plan,
)
from bert_features.corpus.processes import Workers
from bert_features.corpus.shards import ShardWriter, changed_input
from bert_features.errors import ConfigError, OutputError
from bert_features.extraction import job as one_file
from bert_features.extraction import losses
from bert_features.extraction.checks import check_folder_extraction, row_length
from bert_features.extraction.counts import Counts
from bert_features.extraction.job import ExtractSummary
from bert_features.files import STDOUT, is_url, local_path
from bert_features.formats.manifest import MANIFEST, FinishedEntry, Manifest
from bert_features.machine.quiet_tensorflow import import_tensorflow
from bert_features.machine.shares import Share, share_out

logger = logging.getLogger("bert_features")

_DEFAULT_FORMAT = "parquet"

Progress = Callable[[Counts, int | None], None]


def extract(
    config: ExtractConfig,
    input_path: str | Path,
    output_path: str | Path,
    *,
    ledger_path: str | Path | None = None,
    overwrite: bool = False,
    processes: int = 1,
    progress: Progress | None = None,
) -> ExtractSummary:
    """Extracts the features of a file of examples into a file, or into a folder of shards.

    A file appears under its name only when it is whole; a failure leaves nothing. A folder gets a
    features file for every `config.shard_examples` examples, each of which appears when it is
    whole, and `manifest.json`. A failure leaves those that are finished, and the same call goes on
    from there. `read_features` reads the folder as one file. The bytes of a shard depend on its
    examples, the settings and the kind of CPU or device alone.

    Args:
      config: the settings.
      input_path: the file to read, in `config.input_format`; or `-` for standard input, which only
        a file can be made of.
      output_path: the file to write; with `config.shard` its name gets the share's number. `-` for
        standard output, which takes JSON lines without a sidecar, as they are computed. A name
        that ends in `/`, or that of an existing folder, means a folder of shards, in
        `config.format` (by default Parquet).
      ledger_path: a file for what happened to each example, one JSON line each, with the fields of
        `ExampleCounts`. Not with a folder.
      overwrite: whether an existing file may be replaced; whether a folder's run begins again.
      processes: how many processes compute the shards of a folder, each with its share of the TPU
        chips, GPUs or CPU cores of this machine.
      progress: called after every step of the device with the totals so far and the number of
        examples in the input, None if that is unknown.

    Raises:
      BertFeaturesError: says in one sentence what was wrong.
    """
    if processes < 1:
        raise ConfigError.naming(
            "{processes} is {count}; allowed: an integer of at least 1", count=processes
        )
    if is_folder(output_path):
        if ledger_path is not None:
            raise ConfigError.naming(
                "{ledger_path} needs a single output file, but {output} is a folder; leave it out",
                output=output_path,
            )
        run = _FolderRun(config, str(input_path), local_path(output_path), overwrite=overwrite)
        return run.finish(processes, progress or (lambda counts, total: None))
    if processes > 1:
        raise ConfigError.naming(
            "{processes} is {count}, but {output} is a single file; several processes write a "
            "folder: end {output_path} with a /",
            count=processes,
            output="standard output" if str(output_path) == STDOUT else output_path,
        )
    return one_file.extract(
        config,
        input_path,
        output_path,
        ledger_path=ledger_path,
        overwrite=overwrite,
        progress=progress,
    )


def is_folder(output: str | Path) -> bool:
    """Whether an output is a folder of shards: its name ends in `/`, or it is a folder already."""
    if is_url(output) or str(output) == STDOUT:
        return False
    return str(output).endswith(("/", os.sep)) or os.path.isdir(local_path(output))  # noqa: PTH112


class _FolderRun:
    """A run that writes a folder of shards.

    Args:
      config: the settings.
      input_path: the input.
      folder: the folder.
      overwrite: whether a run that has begun there is thrown away.

    Raises:
      BertFeaturesError: says in one sentence what was wrong.
    """

    def __init__(
        self, config: ExtractConfig, input_path: str, folder: Path, *, overwrite: bool
    ) -> None:
        self._config, self._input, self._folder = config, input_path, folder
        self._overwrite = overwrite
        self._format = config.format or _DEFAULT_FORMAT
        check_folder(folder)
        check_apart(config, input_path, folder)
        found = check_folder_extraction(config, input_path, self._format)
        self._checkpoint = found or _find_by_tensorflow(config)
        check_checkpoint_apart(self._checkpoint, folder)

    def finish(self, processes: int, progress: Progress) -> ExtractSummary:
        """Computes what is not finished yet, with this many processes."""
        shares = share_out(processes, self._config.device) if processes > 1 else [Share()]
        with holding(self._folder):
            if self._overwrite:
                empty(self._folder)
            manifest, is_new = self._planned()
            state = _State(manifest)
            if state.todo:
                self._compute(state, is_new, shares, progress)
            if manifest.finished is None or state.todo:
                conclude(manifest, state.done)
        losses.warn(state.total, self._checkpoint)
        return ExtractSummary(
            state.total,
            time.monotonic() - state.started,
            sum(entry.bytes for entry in state.done.values()),
            self._folder,
            cures=self._cures(),
            before=state.before,
            shards=len(manifest.shards),
        )

    def _planned(self) -> tuple[Manifest, bool]:
        """The run that has begun in the folder, or a new one; and whether it is new."""
        if not (self._folder / MANIFEST).exists():
            return self._plan(), True
        begun = Manifest.read(self._folder)
        check_same_run(begun, describe_run(self._config, self._checkpoint))
        check_same_format(begun, self._format)
        entry = begun.inputs[0]
        if entry.path != self._input:
            raise OutputError.naming(
                "{folder} holds the features of {before}, not of {input}; pass another folder, or "
                "{overwrite:True} to begin again",
                folder=self._folder,
                before=entry.path,
                input=self._input,
            )
        if (entry.bytes, entry.modified_ns) != look_up(self._input):
            # Perhaps it was only copied: then it cuts into the same shards.
            now = self._plan()
            if now.shards != begun.shards or now.inputs[0].bytes != entry.bytes:
                raise changed_input(self._input)
        return begun, False

    def _plan(self) -> Manifest:
        logger.info("reading %s to cut it into shards", self._input)
        return make_plan(self._config, self._input, self._folder, self._format, self._checkpoint)

    def _compute(
        self, state: "_State", is_new: bool, shares: Sequence[Share], progress: Progress
    ) -> None:
        """Computes what is left to do."""
        manifest = state.manifest

        def begin(device: str) -> None:
            if is_new:
                replace(manifest, run={**manifest.run, "device": device}).write()
            else:
                check_same_run(manifest, {"device": device})
            manifest.begin()
            state.started = time.monotonic()

        def note(current: Counts) -> None:
            progress(Counts.sum([state.total, current]), manifest.records)

        if len(shares) > 1:
            with Workers(self._config, manifest, shares[: len(state.todo)]) as workers:
                begin(workers.device)
                workers.run(state.todo, state.finish, note)
            return
        writer = ShardWriter.load(self._config, manifest, self._checkpoint)
        begin(writer.device)
        for shard in state.todo:
            state.finish(shard, writer.write(shard, note))

    def _cures(self) -> dict[str, str]:
        config, checkpoint = self._config, self._checkpoint
        return losses.truncation_cures(
            max_seq_length=row_length(config, checkpoint),
            positions=checkpoint.config.max_position_embeddings,
            in_windows=config.long_text == "window",
        )


class _State:
    """Which shards of a run are finished.

    Attributes:
      manifest: the run.
      done: the records of the finished shards, those of earlier runs among them.
      todo: the shards that were left to do at the beginning.
      before: totals of those that were finished.
      total: totals of those that are finished now.
      started: when the first of `todo` began, by `time.monotonic`.
    """

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.done = {
            shard: entry
            for shard, entry in manifest.finished_shards()
            if _is_there(manifest.path(shard), entry)
        }
        self.todo = [shard for shard in range(len(manifest.shards)) if shard not in self.done]
        self.before = Counts.sum(Counts(**entry.counts) for entry in self.done.values())
        self.total = self.before
        self.started = time.monotonic()
        if self.done and self.todo:
            logger.info("%d of %d shards are finished", len(self.done), len(manifest.shards))

    def finish(self, shard: int, entry: FinishedEntry) -> None:
        """Records that a shard is in its place."""
        self.manifest.finish_shard(shard, entry)
        self.done[shard] = entry
        self.total = Counts.sum([self.total, Counts(**entry.counts)])


def _is_there(path: Path, entry: FinishedEntry) -> bool:
    try:
        return path.stat().st_size == entry.bytes
    except OSError:
        return False


def _find_by_tensorflow(config: ExtractConfig) -> Checkpoint:
    """The checkpoint of the settings, if only TensorFlow can read it."""
    import_tensorflow(config.runtime, config.device)
    return find_checkpoint(
        config.checkpoint,
        config_file=config.config_file,
        vocab_file=config.vocab_file,
        hidden_act=config.hidden_act,
    )

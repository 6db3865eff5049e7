"""A run that writes a folder of shards: planned or resumed, computed, concluded.

Importing this imports no framework.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TypeAlias

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.ray_settings import RaySettings
from bert_features.config.shards import WHOLE, Shard
from bert_features.corpus import resuming
from bert_features.corpus.executor import Executor, Ready
from bert_features.corpus.folder import empty, holding, tidy
from bert_features.corpus.inputs import name_some
from bert_features.corpus.plan import make_plan
from bert_features.corpus.processes import Processes
from bert_features.corpus.ray_actors import RayActors
from bert_features.corpus.shards import ShardJob, ShardWriter
from bert_features.corpus.status import count_left, name_left, read_finished
from bert_features.corpus.target import FolderTarget, check_run
from bert_features.errors import ConfigError, OutputError
from bert_features.extraction import losses
from bert_features.extraction.counts import Counts
from bert_features.extraction.feature_store import StorePlace, store_place
from bert_features.extraction.recipe import plan_recipe
from bert_features.files import Location
from bert_features.formats.manifest import MANIFEST, FinishedEntry, Manifest, has_manifest
from bert_features.formats.shard_files import find_missing
from bert_features.machine.shares import Share, share_out
from bert_features.monitor.run import RunMonitor
from bert_features.monitor.stages import StageTimes
from bert_features.ray.cluster import check_answers

logger = logging.getLogger("bert_features")

# Called with the totals so far, and the number of examples of the run if it is known.
Progress: TypeAlias = Callable[[Counts, int | None], None]


@dataclass(frozen=True, repr=False)
class ExtractSummary:
    """The result of `extract`.

    Attributes:
      counts: totals of the whole output, shards of earlier runs included.
      seconds: time of this run from the first example read to the file closed.
      bytes_written: size of the output.
      output: the file or the folder written: its path, or its address; None for standard output.
      cures: settings that would keep what truncation cut off, with their values as in Python.
      before: the part of `counts` that earlier runs into the same folder computed.
      shards: the number of shards of a folder; None for a single file.
      left: of a folder that several hosts share, for each share the number of shards that are not
        finished.
      stages: where the time of this run went; of several processes, their sum.
    """

    counts: Counts
    seconds: float
    bytes_written: int
    output: Location | None
    cures: Mapping[str, str] = field(default_factory=dict)
    before: Counts = field(default_factory=Counts)
    shards: int | None = None
    left: tuple[int, ...] = ()
    stages: StageTimes = field(default_factory=StageTimes)

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


class FolderRun:
    """A run that writes a folder of shards, by processes of this machine or on Ray.

    For progress, monitor and accept_new_numbers see `corpus.job.extract`. Shards that are `damaged`
    are computed again, though they are finished.

    Raises:
      BertFeaturesError: says in one sentence what was wrong.
    """

    def __init__(
        self,
        config: ExtractConfig,
        inputs: Sequence[str],
        target: FolderTarget,
        *,
        processes: int,
        ray: RaySettings | None = None,
        progress: Progress | None = None,
        monitor: RunMonitor | None = None,
        damaged: Collection[int] = frozenset(),
        accept_new_numbers: bool = False,
    ) -> None:
        # Each features file names the settings: they must not depend on how the format was chosen,
        # or on the host.
        self._config = config.model_copy(update={"format": target.format, "shard": None})
        self._config.model_fields_set.discard("shard")
        self._inputs, self._target, self._folder = inputs, target, target.folder
        self._share = target.share or WHOLE
        self._processes, self._ray, self._progress = processes, ray, progress
        self._monitor, self._damaged = monitor or RunMonitor(), damaged
        self._accept_new_numbers = accept_new_numbers
        self._checkpoint = check_run(self._config, inputs, target)
        if (processes > 1 or ray) and str(self._folder).startswith("memory://"):
            raise ConfigError(
                f"{self._folder} is in the memory of one process; leave processes and ray out"
            )
        self._shares = share_out(processes, config.device) if processes > 1 else [Share()]

    def finish(self) -> ExtractSummary:
        """Computes what is not finished yet; raises BertFeaturesError."""
        share = self._share
        # How many actors compute on Ray is known there alone.
        with holding(self._folder, 0 if self._ray else self._processes, share):
            state = self._computed()
            if share.count > 1 and has_manifest(self._folder):
                state.take_others()
            left = count_left(state.manifest, state.done)
            if sum(left):
                logger.info("shares that are not finished: %s", name_left(left))
            else:
                if state.manifest.finished is None or state.todo:
                    state.conclude()
                tidy(self._folder)
        losses.warn(state.total, self._config, self._checkpoint)
        return ExtractSummary(
            state.total,
            time.monotonic() - state.started,
            sum(entry.bytes for entry in state.done.values()),
            self._folder,
            cures=losses.find_cures(self._config, self._checkpoint),
            before=state.before,
            shards=len(state.manifest.shards),
            left=left,
            stages=self._monitor.times(),
        )

    def _computed(self) -> "_State":
        """The run, its shards of this share finished."""
        beside = self._folder / MANIFEST if isinstance(self._folder, Path) else None
        while True:
            manifest, is_new = self._planned()
            finished: Mapping[int, FinishedEntry] = {}
            if not is_new:  # other hosts may have ended the run since the manifest was read
                now, finished = read_finished(self._folder)
                manifest = replace(manifest, finished=now.finished)
            state = _State(manifest, finished, self._damaged, self._share)
            self._monitor.shards = len(manifest.shards)
            if not state.todo:
                logger.info("%s; nothing was computed", self._describe_done(state))
                return state
            resuming.check_same_scales(manifest, state.done)
            with contextlib.suppress(_BegunByAnotherError):  # behind it the first model is gone
                with _saying_what_is_kept(state), store_place(self._config, beside) as place:
                    self._compute(state, is_new, place)
                return state

    def _describe_done(self, state: "_State") -> str:
        share, count = self._share, len(state.manifest.shards)
        if len(state.done) == count:
            return f"{self._folder} is finished already"
        if share.index >= count:
            return f"the share {share} of {self._folder} has no shards, as it has {count:,}"
        return f"the share {share} of {self._folder} is finished already"

    def _planned(self) -> tuple[Manifest, bool]:
        """The run that has begun in the folder, or a new one; and whether it is new."""
        if not self._target.overwrite and has_manifest(self._folder):
            begun = Manifest.read(self._folder)
            now = plan_recipe(self._config, self._checkpoint)
            if self._accept_new_numbers:
                begun = resuming.with_new_numbers(begun, now.versions)
            resuming.check_same_run(begun, now)
            resuming.check_same_format(begun, self._target.format)
            resuming.check_same_inputs(begun, self._inputs)
            resuming.check_same_hosts(begun, self._share)
            resuming.check_unchanged_inputs(begun, self._config)
            return begun, False
        if self._ray is not None:
            check_answers(self._ray)
        count = len(self._inputs)
        named = f"{self._inputs[0]} to cut it" if count == 1 else f"{count:,} inputs to cut them"
        logger.info("reading %s into shards", named)
        file_format = self._target.format
        plan = make_plan(self._config, self._inputs, self._folder, file_format, self._checkpoint)
        return replace(plan, hosts=self._share.count), True

    def _compute(self, state: "_State", is_new: bool, place: StorePlace | None) -> None:
        """Computes what is left to do."""
        manifest, monitor = state.manifest, self._monitor
        records = sum(manifest.shards[shard].records for shard in (*state.done, *state.todo))

        def begin(ready: Ready) -> None:
            if is_new:
                if self._target.overwrite:
                    # Not before: what is there stays if the new run cannot begin.
                    empty(self._folder)
                plan = replace(manifest, recipe=ready.recipe, processor=ready.processor)
                if not plan.create():
                    raise _BegunByAnotherError
            else:
                resuming.check_ready(manifest, ready)
                if self._accept_new_numbers:
                    state.manifest = resuming.record_new_numbers(
                        manifest, ready.recipe, len(state.done)
                    )
            manifest.begin()
            arithmetic = ready.recipe.arithmetic
            monitor.begin(arithmetic["device"], arithmetic["precision"])
            state.started = time.monotonic()

        def note(current: Counts) -> None:
            if self._progress:
                self._progress(Counts.sum([state.total, current]), records)

        job = ShardJob(self._config, manifest, place)
        executor: Executor | None = None  # this process computes
        if self._ray is not None:
            executor = RayActors(job, self._ray, len(state.todo))
        elif len(shares := _used(self._shares, len(state.todo))) > 1:
            executor = Processes(job, shares)
        if executor is not None:
            with executor:
                begin(executor.ready)
                executor.run(state.todo, state.finish, note, monitor)
            return
        writer = ShardWriter.load(job, self._checkpoint)
        writer.stages = monitor.clock
        begin(writer.ready)
        for shard in state.todo:
            state.finish(shard, writer.write(shard, note))


class _BegunByAnotherError(Exception):
    """Another host has made the plan of the run meanwhile; it is to be resumed."""


class _State:
    """Which shards of a run are finished.

    Attributes:
      done: the records of the finished shards, earlier runs included.
      todo: the shards of the share that were left to do at the beginning; a `damaged` one counts as
        such.
      before: totals of the shards that were finished at the beginning.
      total: totals of the shards that are finished now.
      started: when the first of `todo` began, by `time.monotonic`.
    """

    def __init__(
        self,
        manifest: Manifest,
        finished: Mapping[int, FinishedEntry],
        damaged: Collection[int],
        share: Shard,
    ) -> None:
        self.manifest = manifest
        lost = find_missing(manifest, finished) | set(damaged)
        self.done = {shard: entry for shard, entry in finished.items() if shard not in lost}
        shards = range(len(manifest.shards))
        self.todo = [shard for shard in shards if share.has(shard) and shard not in self.done]
        _check_counts(manifest, self.done.values())
        self.before = Counts.sum(Counts(**entry.counts) for entry in self.done.values())
        self.total = self.before
        self.started = time.monotonic()
        if self.done and self.todo:
            logger.info("%d of %d shards are finished", len(self.done), len(manifest.shards))

    def finish(self, shard: int, entry: FinishedEntry) -> None:
        """Records that a shard is in its place."""
        finished = self.manifest.finished and Manifest.read(self.manifest.folder).finished
        if finished is None:
            self.manifest.finish_shard(shard, entry)
        else:  # a lost shard of a finished folder, whose records are in the manifest
            finished = (*finished[:shard], entry, *finished[shard + 1 :])
            replace(self.manifest, finished=finished).write()
        self.done[shard] = entry
        self.total = Counts.sum([self.total, Counts(**entry.counts)])

    def take_others(self) -> None:
        """Takes what other hosts have finished meanwhile."""
        self.manifest, finished = read_finished(self.manifest.folder)
        lost = find_missing(self.manifest, finished)
        others = {shard: entry for shard, entry in finished.items() if shard not in lost}
        self.done = others | self.done
        _check_counts(self.manifest, self.done.values())
        counts = {shard: Counts(**entry.counts) for shard, entry in self.done.items()}
        self.total = Counts.sum(counts.values())
        self.before = Counts.sum(each for shard, each in counts.items() if shard not in self.todo)

    def conclude(self) -> None:
        """Records that all shards are finished.

        Raises:
          OutputError: another program has changed a shard, or another run has written its manifest
            there; or the disk or the server failed.
        """
        if lost := find_missing(self.manifest, self.done):
            raise OutputError(
                f"{len(lost):,} shards of {self.manifest.folder} were changed while this run wrote "
                f"the others, {self.manifest.name(min(lost))} first; run the same command again"
            )
        stored = Manifest.read(self.manifest.folder)
        resuming.check_same_plan(stored, self.manifest)
        finished = tuple(self.done[shard] for shard in range(len(self.manifest.shards)))
        replace(stored, finished=finished).write()


def _check_counts(manifest: Manifest, finished: Iterable[FinishedEntry]) -> None:
    known = {each.name for each in fields(Counts)}
    unknown = sorted({name for entry in finished for name in entry.counts.keys() - known})
    if unknown:
        raise OutputError(
            f"cannot resume {manifest.folder}: its shards count {name_some(unknown)}, which this "
            "release does not know; use the release that wrote it, or extract again with "
            "overwrite=True"
        )


@contextlib.contextmanager
def _saying_what_is_kept(state: _State) -> Iterator[None]:
    """Logs, before an error is reported, that the run can be resumed."""
    try:
        yield
    except Exception:
        if state.done:
            logger.info(
                "%d of %d shards are finished and kept; once the cause is gone, the same command "
                "resumes the run (without overwrite)",
                len(state.done),
                len(state.manifest.shards),
            )
        raise


def _used(shares: Sequence[Share], shards: int) -> Sequence[Share]:
    """The shares of the processes that have something to compute; a single one has everything."""
    if shards < len(shares):
        logger.warning(
            "only %d of %d processes compute: there are no more shards; a smaller shard_examples "
            "makes more shards",
            shards,
            len(shares),
        )
    return shares[:shards] if shards > 1 else [Share()]

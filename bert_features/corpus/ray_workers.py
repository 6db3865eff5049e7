"""Actors of a Ray cluster that compute the shards of one run."""

import contextlib
import logging
import math
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.ray_settings import RaySettings
from bert_features.corpus.messages import Failed, Finished, Log, Ready
from bert_features.corpus.pool import Pool
from bert_features.corpus.ray_actor import RayJob, ShardActor
from bert_features.errors import DeviceError
from bert_features.extraction.counts import Counts
from bert_features.extraction.feature_store import StorePlace
from bert_features.formats.manifest import FinishedEntry, Manifest
from bert_features.formats.shard_files import find_damaged
from bert_features.monitor.run import RunMonitor
from bert_features.ray.cluster import (
    actor_options,
    connected,
    describe_resources,
    one_line,
    resources_of_actors,
)

logger = logging.getLogger("bert_features")

_Kind = Literal["load", "write", "news"]
_MAX_TRIES = 3
_TICK_SECONDS, _NEWS_SECONDS = 0.1, 0.5
_WAIT_SECONDS = 30.0  # before the run says what it waits for
_LAST_NEWS_SECONDS = 1.0
_GRACE_SECONDS = 10.0  # to remove what is half-written


@dataclass(eq=False)
class _Actor:
    """An actor, placed on a node or waiting for one.

    Attributes:
      handle: Ray's handle.
      is_ready: whether it has loaded the model.
      shard: the shard that it computes.
      counts: totals of that shard.
      news_at: when to ask it for news, by `time.monotonic`.
    """

    handle: Any
    is_ready: bool = False
    shard: int | None = None
    counts: Counts = field(default_factory=Counts)
    news_at: float = 0.0


class RayWorkers(Pool):
    """Actors of a Ray cluster.

    Some are asked for at once. While shards wait, more are asked for: as many as are ready, and at
    least one. Those that find no room wait in Ray's queue, so a node that joins is used, and an
    autoscaler sees what is wanted. A shard whose actor is lost is computed by another.

    Args:
      config: the settings.
      manifest: the run.
      settings: how it uses Ray.
      shards: the number of shards to compute.
      place: the cache of texts that repeat; None for none.

    Raises:
      BertFeaturesError: the cluster cannot be used, or an actor could not load the model.
    """

    def __init__(
        self,
        config: ExtractConfig,
        manifest: Manifest,
        settings: RaySettings,
        shards: int,
        place: StorePlace | None = None,
    ) -> None:
        super().__init__()
        self._manifest = manifest
        self._min, self._max = settings.min_actors, settings.max_actors or shards
        self._actors: set[_Actor] = set()
        self._calls: dict[Any, tuple[_Actor, _Kind]] = {}
        self._tries: Counter[int] = Counter()
        self._failed_starts = 0
        self._left: deque[int] = deque()
        self._unfinished = shards
        self._monitor = RunMonitor()
        self._exits = contextlib.ExitStack()
        self._ray = self._exits.enter_context(connected(settings))
        try:
            self._resources = resources_of_actors(self._ray, settings, config.device)
            self._job = self._ray.put(self._describe_job(config, place))
            self._kind = self._ray.remote(ShardActor).options(**actor_options(self._resources))
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def run(
        self,
        shards: Iterable[int],
        finished: Callable[[int, FinishedEntry], None],
        progress: Callable[[Counts], None],
        monitor: RunMonitor | None = None,
    ) -> None:
        """See `Pool`; a shard that is lost too often is an error too."""
        self._monitor = monitor or RunMonitor()
        self._left.extend(shards)
        self._unfinished = len(self._left)
        while self._unfinished:
            self._add_actors()
            self._give_work()
            for message in self._take_answers():
                if self._is_in_place(message):
                    self._unfinished -= 1
                    finished(message.shard, message.entry)
            progress(Counts.sum(actor.counts for actor in self._actors))
        until = time.monotonic() + _LAST_NEWS_SECONDS
        while self._news_is_asked() and time.monotonic() < until:
            self._take_answers()

    def _news_is_asked(self) -> bool:
        return any(kind == "news" for _, kind in self._calls.values())

    def stop(self) -> None:
        """Ends the actors, and the connection to Ray."""
        try:
            busy = [ref for ref, (_, kind) in self._calls.items() if kind == "write"]
            for actor in self._actors:
                if actor.shard is not None:
                    actor.handle.stop.remote()
            if busy:
                self._ray.wait(busy, num_returns=len(busy), timeout=_GRACE_SECONDS)
            for actor in self._actors:
                self._ray.kill(actor.handle)
        finally:
            self._actors.clear()
            self._calls.clear()
            self._exits.close()

    def _describe_job(self, config: ExtractConfig, place: StorePlace | None) -> RayJob:
        folder = self._manifest.folder
        if isinstance(folder, Path):
            folder = folder.absolute()
        manifest = replace(self._manifest, folder=folder)
        if place is not None:
            place = replace(place, folder=place.folder.absolute())
        cores = self._resources.get("CPU", 0)
        return RayJob(config, manifest, os.getcwd(), math.ceil(cores) or None, place)  # noqa: PTH109

    def _add_actors(self) -> None:
        """Asks for the actors that must be there, and for one more while shards wait."""
        most = min(self._max, self._unfinished)
        while len(self._actors) < min(self._min, most):
            self._add_actor()
        not_ready = sum(not actor.is_ready for actor in self._actors)
        ready = len(self._actors) - not_ready
        if self._left and len(self._actors) < most and not_ready < max(1, ready):
            self._add_actor()

    def _add_actor(self) -> None:
        actor = _Actor(self._kind.remote())
        self._actors.add(actor)
        self._call(actor, "load", actor.handle.load.remote(self._job))

    def _wait_until_ready(self) -> None:
        """Waits for the first actor, and says now and then what for."""
        say_at = time.monotonic() + _WAIT_SECONDS
        while not self.device:
            self._add_actors()
            self._take_answers()
            if time.monotonic() >= say_at:
                say_at += _WAIT_SECONDS
                there = self._ray.cluster_resources()
                logger.warning(
                    "no Ray actor is ready yet: each needs %s, and the cluster has %s in all",
                    describe_resources(self._resources),
                    describe_resources({name: there.get(name, 0) for name in self._resources}),
                )

    def _give_work(self) -> None:
        for actor in self._actors:
            if actor.is_ready and actor.shard is None and self._left:
                actor.shard, actor.counts = self._left.popleft(), Counts()
                actor.news_at = time.monotonic() + _NEWS_SECONDS
                self._call(actor, "write", actor.handle.write.remote(actor.shard))
            elif actor.shard is not None and time.monotonic() >= actor.news_at:
                self._ask_for_news(actor)

    def _ask_for_news(self, actor: _Actor) -> None:
        actor.news_at = math.inf  # until it has answered
        self._call(actor, "news", actor.handle.take_news.remote())

    def _call(self, actor: _Actor, kind: _Kind, ref: Any) -> None:
        self._calls[ref] = actor, kind

    def _take_answers(self) -> list[Finished]:
        """The shards that actors have finished in the meantime."""
        refs = list(self._calls)
        done, _ = self._ray.wait(refs, num_returns=1, timeout=_TICK_SECONDS)
        done, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0) if done else ([], [])
        finished = []
        for ref in done:
            if ref not in self._calls:  # its actor was lost
                continue
            actor, kind = self._calls.pop(ref)
            try:
                answer = self._ray.get(ref)
            except self._ray.exceptions.RayError as error:
                self._lose(actor, error)
            else:
                finished += self._take(actor, kind, answer)
        return finished

    def _take(self, actor: _Actor, kind: _Kind, answer: Any) -> list[Finished]:
        if isinstance(answer, Failed):
            raise answer.exception()
        if kind == "news":
            actor.news_at = time.monotonic() + _NEWS_SECONDS
            self._take_news(actor, answer)
        elif isinstance(answer, Ready):
            actor.is_ready, self._failed_starts = True, 0
            self._ask_for_news(actor)
            self._check_device(answer)
        elif isinstance(answer, Finished):
            actor.shard, actor.counts = None, Counts()
            self._monitor.note(actor, answer.stages)
            self._ask_for_news(actor)
            return [answer]
        return []

    def _take_news(self, actor: _Actor, news: Iterable[Any]) -> None:
        for message in news:
            if not isinstance(message, Log):
                actor.counts = Counts(**message.counts) if actor.shard is not None else Counts()
                self._monitor.note(actor, message.stages)
            else:
                self._log(message)

    def _check_device(self, ready: Ready) -> None:
        if not self.device:
            self.device, self.processor = ready.device, ready.processor
        if ready.device != self.device:
            raise DeviceError(
                f"the Ray actors do not compute on the same kind of device: {self.device}; "
                f"{ready.device}; name one with the setting device"
            )
        if ready.processor != self.processor:
            text = (
                f"the Ray actors compute on different processors ({self.processor}; "
                f"{ready.processor}): the last digits of features may differ from shard to shard"
            )
            self._log(Log(logging.WARNING, text))

    def _lose(self, actor: _Actor, error: Exception) -> None:
        """Forgets an actor; its shard waits again."""
        self._actors.discard(actor)
        self._monitor.lose(actor)
        self._calls = {ref: call for ref, call in self._calls.items() if call[0] is not actor}
        self._ray.kill(actor.handle)  # it may be alive, on a node that cannot be reached
        if not actor.is_ready:
            self._failed_starts += 1
            if self._failed_starts >= _MAX_TRIES:
                raise DeviceError(f"Ray actors cannot start: {one_line(error)}") from error
        if actor.shard is not None:
            self._try_again(actor.shard, one_line(error))

    def _try_again(self, shard: int, reason: str) -> None:
        self._tries[shard] += 1
        entry = self._manifest.shards[shard]
        if self._tries[shard] >= _MAX_TRIES:
            raise DeviceError(
                f"shard {shard} ({entry.records:,} examples of "
                f"{self._manifest.inputs[entry.input].path}) was lost {_MAX_TRIES} times: {reason}"
            )
        logger.warning("shard %d is computed again: %s", shard, reason)
        self._left.appendleft(shard)

    def _is_in_place(self, message: Finished) -> bool:
        """Whether the file of a shard is what its record says; else the shard waits again.

        Only a shard that was tried before can have had two writers at a time.
        """
        shard = message.shard
        if self._tries[shard] and find_damaged(self._manifest, {shard: message.entry}):
            self._try_again(shard, f"{self._manifest.path(shard)} is not what its actor wrote")
            return False
        return True

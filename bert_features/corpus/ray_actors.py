"""Actors of a Ray cluster that compute the shards of one run."""

import contextlib
import logging
import math
import os
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bert_features.config.ray_settings import RaySettings
from bert_features.config.recipe import Recipe, find_differences
from bert_features.corpus.executor import Executor, Finished, Message, Ready
from bert_features.corpus.folder import MARK, is_seen
from bert_features.corpus.shards import ShardJob
from bert_features.corpus.worker import load_writer, portable, report_logs, write_shard
from bert_features.errors import BertFeaturesError, DeviceError, OutputError
from bert_features.extraction.feature_store import check_cache
from bert_features.extraction.recipe import plan_recipe
from bert_features.files import local_path
from bert_features.machine.hardware import limit_cores
from bert_features.machine.selection import choose_runtime
from bert_features.machine.versions import find_versions
from bert_features.ray.cluster import (
    actor_options,
    connected,
    describe_resources,
    one_line,
    resources_of_actors,
)

logger = logging.getLogger("bert_features")

_TRIES = 3  # of a shard whose actor is lost
_TICK_SECONDS, _NEWS_SECONDS = 0.1, 0.5
_WAIT_SECONDS = 30.0  # before the run says what it waits for
_GRACE_SECONDS = 20.0  # to remove what is half-written, before Kubernetes kills at 30
_MAX_NEWS = 1000


@dataclass(eq=False)
class _Actor:
    """An actor, placed on a node or waiting for one.

    Attributes:
      news_at: when to ask it for news, by `time.monotonic`.
    """

    handle: Any
    is_ready: bool = False
    shard: int | None = None
    news_at: float = 0.0


class RayActors(Executor):
    """Actors of a Ray cluster.

    Some are asked for at once. While shards wait, more are asked for: as many as are ready, and at
    least one. Actors without room wait in Ray's queue, so a node that joins is used, and an
    autoscaler sees what is wanted. A shard whose actor is lost is computed by another.

    Raises:
      BertFeaturesError: the cluster cannot be used, or an actor could not load the model.
    """

    def __init__(self, job: ShardJob, settings: RaySettings, shards: int) -> None:
        super().__init__()
        self._manifest = job.manifest
        self._min, self._max = settings.min_actors, settings.max_actors or shards
        self._actors: set[_Actor] = set()
        self._left: deque[int] = deque()
        self._tries: Counter[int] = Counter()
        self._failed_starts = 0
        self._calls: dict[Any, tuple[_Actor, Literal["work", "news"]]] = {}
        self._exits = contextlib.ExitStack()
        self._ray = self._exits.enter_context(connected(settings))
        try:
            self._resources = resources_of_actors(self._ray, settings, job.config.device)
            cores = math.ceil(self._resources.get("CPU", 0)) or None
            self._arguments = self._ray.put(job), str(local_path(".")), cores, MARK
            self._kind = self._ray.remote(ShardActor).options(**actor_options(self._resources))
            self._wait_until_ready(shards)
        except BaseException:
            self.stop()
            raise

    def _wait_until_ready(self, shards: int) -> None:
        """Waits for the first actor, and says now and then what for."""
        say_at = time.monotonic() + _WAIT_SECONDS
        while self._ready is None:
            self._add_actors(shards, shards)
            for message in self._take_answers():
                self._note(message)
            if time.monotonic() >= say_at:
                say_at += _WAIT_SECONDS
                there = self._ray.cluster_resources()
                logger.warning(
                    "no Ray actor is ready yet: each needs %s, and the cluster has %s in all",
                    describe_resources(self._resources),
                    describe_resources({name: there.get(name, 0) for name in self._resources}),
                )

    def _compute(self, shards: Sequence[int]) -> Iterator[Message | None]:
        self._left.extend(shards)
        unfinished = len(shards)
        while unfinished:
            self._add_actors(len(self._left), unfinished)
            self._give_work()
            yield None
            for message in self._take_answers():
                unfinished -= isinstance(message, Finished)
                yield message

    def stop(self) -> None:
        """Ends the actors, and the connection to Ray."""
        try:
            for actor in self._actors:
                if actor.shard is not None:
                    actor.handle.stop.remote()
            # What only loads, or waits for room, has nothing to remove.
            work = ((ref, actor) for ref, (actor, kind) in self._calls.items() if kind == "work")
            busy = [ref for ref, actor in work if actor.shard is not None]
            if busy:
                self._ray.wait(busy, num_returns=len(busy), timeout=_GRACE_SECONDS)
            for actor in list(self._actors):
                self._release(actor)
        finally:
            self._exits.close()

    def _add_actors(self, waiting: int, unfinished: int) -> None:
        """Asks for the actors that must be there, and for one more while shards wait."""
        most = min(self._max, unfinished)
        not_ready = sum(not actor.is_ready for actor in self._actors)
        ready = len(self._actors) - not_ready
        more = waiting and len(self._actors) < most and not_ready < max(1, ready)
        for _ in range(max(min(self._min, most) - len(self._actors), int(more))):
            actor = _Actor(self._kind.remote(*self._arguments))
            self._actors.add(actor)
            self._calls[actor.handle.load.remote()] = actor, "work"

    def _give_work(self) -> None:
        for actor in self._actors:
            if actor.is_ready and actor.shard is None and self._left:
                actor.shard = self._left.popleft()
                call = actor.handle.write.remote(actor.shard, self.ready.recipe)
                self._calls[call] = actor, "work"
            elif actor.shard is not None and time.monotonic() >= actor.news_at:
                actor.news_at = math.inf  # until it has answered
                self._calls[actor.handle.take_news.remote()] = actor, "news"

    def _release(self, actor: _Actor) -> None:
        self._actors.discard(actor)
        self._calls = {ref: call for ref, call in self._calls.items() if call[0] is not actor}
        self._ray.kill(actor.handle)

    def _take_answers(self) -> Iterator[Message]:
        """What actors have answered meanwhile."""
        refs = list(self._calls)
        done, _ = self._ray.wait(refs, num_returns=1, timeout=_TICK_SECONDS)
        done, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0) if done else ([], [])
        for ref in done:
            if ref not in self._calls:  # its actor was lost
                continue
            actor, kind = self._calls.pop(ref)
            try:
                messages = self._ray.get(ref)
            except self._ray.exceptions.RayError as error:
                self._lose(actor, one_line(error))
                continue
            if kind == "news":
                actor.news_at = time.monotonic() + _NEWS_SECONDS
            for message in messages:
                self._follow(actor, message)
                yield message

    def _follow(self, actor: _Actor, message: Message | Exception) -> None:
        """Notes what a message says of its actor; raises an error."""
        if isinstance(message, Exception):
            raise message
        if isinstance(message, Ready):
            actor.is_ready, self._failed_starts = True, 0
        if isinstance(message, Finished):
            actor.shard = None

    def _lose(self, actor: _Actor, reason: str) -> None:
        """Forgets an actor; its shard waits again. Raises DeviceError if too many were lost."""
        self._release(actor)  # it may be alive, on a node that cannot be reached
        self._failed_starts += not actor.is_ready
        if self._failed_starts >= _TRIES:
            raise DeviceError(f"Ray actors cannot start: {reason}")
        if actor.shard is None:
            return
        self._begun.pop(actor.shard, None)
        self._tries[actor.shard] += 1
        if self._tries[actor.shard] >= _TRIES:
            entry = self._manifest.shards[actor.shard]
            raise DeviceError(
                f"shard {actor.shard} ({entry.records:,} examples of "
                f"{self._manifest.inputs[entry.input].path}) was lost {_TRIES} times: {reason}"
            )
        logger.warning("shard %d is computed again: %s", actor.shard, reason)
        self._left.appendleft(actor.shard)


class ShardActor:
    """Holds a model in a process of Ray's.

    Its methods return messages and raise nothing: an error that Ray carries loses its class.
    `write` runs in one thread; `take_news` and `stop` are called meanwhile in others. Relative
    paths are seen from `current_folder`; Ray reckons it to use `cores`, None for all. For `mark`
    see `is_seen`.
    """

    def __init__(self, job: ShardJob, current_folder: str, cores: int | None, mark: str) -> None:
        self._job, self._current_folder = job, current_folder
        self._cores, self._mark = cores, mark
        self._news: deque[Message] = deque(maxlen=_MAX_NEWS)
        self._ended = threading.Event()

    def load(self) -> list[Message | Exception]:
        """Loads the model, and gives the news: at last `Ready`, or an exception.

        It is an exception if this node has other versions or another checkpoint than the machine of
        the run, if it does not see the run's folder, or if the model cannot be loaded.
        """
        try:
            self._prepare()
            writer = self._writer = load_writer(self._job)
            here = plan_recipe(self._job.config, writer.checkpoint)
            _check_same(self._job.manifest.recipe.changes(here))
        except Exception as error:
            return [*self.take_news(), _name_node(error)]
        return [*self.take_news(), writer.ready]

    def write(self, shard: int, recipe: Recipe) -> list[Message | Exception]:
        """Computes a shard and puts its file in its place; gives the news, at last `Finished`.

        After `stop` it ends without.
        """
        try:
            finished = write_shard(self._writer, shard, recipe, self._news.append, self._check)
        except _Stopped:
            return []
        except Exception as error:
            return [*self.take_news(), _name_node(error)]
        return [*self.take_news(), finished]

    def take_news(self) -> list[Message]:
        """What was reported since the last call."""
        news = []
        with contextlib.suppress(IndexError):  # two threads may take them
            while True:
                news.append(self._news.popleft())
        return news

    def stop(self) -> None:
        """Makes `write` end at its next step, and remove what is half-written."""
        self._ended.set()

    def _prepare(self) -> None:
        job = self._job
        with contextlib.suppress(OSError):  # absolute paths do not need it
            os.chdir(self._current_folder)
        if self._cores is not None:
            limit_cores(self._cores)
        report_logs(self._news.append)
        versions = find_versions(choose_runtime(job.config.runtime, job.config.device))
        there = {"versions": job.manifest.recipe.versions}
        _check_same(find_differences(there, {"versions": versions}))
        if not is_seen(job.manifest.folder, self._mark):
            raise OutputError(
                f"{job.manifest.folder} is not the folder that this run writes; put the output on "
                "a file system that all nodes have at the same path"
            )
        check_cache(job.config)

    def _check(self) -> None:
        if self._ended.is_set():
            raise _Stopped


class _Stopped(Exception):  # noqa: N818 - not an error
    """The run ends."""


def _check_same(differences: Sequence[str]) -> None:
    """Refuses a node on which the files would get other bytes."""
    if differences:
        raise DeviceError(
            f"it differs from the machine of the run: {'; '.join(differences)}; install the same "
            "versions and checkpoints everywhere, and if only the nodes have a TPU or GPU, set "
            "device and runtime"
        )


def _name_node(error: Exception) -> Exception:
    """The error, portable, with the name of this node: there the cause may be, and only there."""
    copy = portable(error)
    if isinstance(copy, BertFeaturesError | MemoryError) and copy.args:
        copy.args = f"Ray node {socket.gethostname()}: {copy.args[0]}", *copy.args[1:]
    return copy

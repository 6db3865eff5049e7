"""How far a run into a folder has come, and whether what it wrote is there.

Importing this imports no framework.
"""

import errno
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bert_features.config.shards import Shard
from bert_features.corpus.folder import Holder, find_holders
from bert_features.corpus.inputs import look_up
from bert_features.errors import BertFeaturesError, OutputError
from bert_features.files import Location
from bert_features.files.store import in_parallel
from bert_features.formats.manifest import (
    MANIFEST,
    FinishedEntry,
    InputEntry,
    Manifest,
    has_manifest,
)
from bert_features.formats.shard_files import find_missing

State = Literal["finished", "running", "stopped", "unfinished"]


@dataclass(frozen=True)
class Status:
    """The state of a features folder.

    Attributes:
      state: `finished`; `running` while a run holds the folder; else `stopped`, or `unfinished` at
        an address, where it is unknown whether a run is computing.
      holders: the runs that hold it: one, or those of hosts that share it.
      shards: the number of shards; 0 while the run still reads its inputs.
      finished_shards: the number of shards that are finished and there.
      examples: the number of examples of all shards.
      finished_examples: the number of examples of the finished shards.
      finished_tokens: their real tokens, [CLS] and [SEP] included.
      seconds: how long the finished shards took, one after the other, each in one process.
      left: of a folder that several hosts share, for each share the number of shards that are not
        finished.
      missing: files of shards that were finished, but are gone or have another size now.
      changed_inputs: inputs that are gone or have another size or time now.
      order: see `Manifest.order`.
    """

    folder: Location
    state: State
    holders: tuple[Holder, ...] = ()
    shards: int = 0
    finished_shards: int = 0
    examples: int = 0
    finished_examples: int = 0
    finished_tokens: int = 0
    seconds: float = 0.0
    left: tuple[int, ...] = ()
    missing: tuple[Location, ...] = ()
    changed_inputs: tuple[str, ...] = ()
    order: dict[str, Any] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the run is finished and the files of all shards are there."""
        return self.state == "finished" and not self.missing

    @property
    def tokens_per_second(self) -> float:
        """The speed of one process."""
        return self.finished_tokens / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """About how long the run will take, at the speed so far; None if that is unknown.

        Shards that are being computed count as not begun.
        """
        processes = [holder.processes for holder in self.holders]
        if not processes or not all(processes) or not self.finished_examples:
            return None
        left = self.examples - self.finished_examples
        return left * self.seconds / self.finished_examples / sum(processes)


def read_status(folder: Location) -> Status:
    """Looks at a features folder. It reads no features, and changes nothing.

    Raises OutputError if it is no such folder, or its manifest or a record of a shard is damaged.
    """
    holders = find_holders(folder)
    if not has_manifest(folder):
        if holders:
            return Status(folder, "running", holders)
        if isinstance(folder, Path) and not folder.is_dir():
            reason = "it is a file" if folder.exists() else os.strerror(errno.ENOENT)
            raise OutputError(f"cannot read {folder}: {reason}; pass the folder that a run wrote")
        raise OutputError(f"{folder} has no {MANIFEST}; pass the folder that a run wrote")
    manifest, finished = read_finished(folder)
    missing = find_missing(manifest, finished)
    done = [shard for shard in finished if shard not in missing]
    state: State = "stopped" if isinstance(folder, Path) else "unfinished"
    if holders:
        state = "running"
    elif manifest.finished is not None:
        state = "finished"
    return Status(
        folder,
        state,
        holders,
        shards=len(manifest.shards),
        finished_shards=len(done),
        examples=manifest.records,
        finished_examples=sum(manifest.shards[shard].records for shard in done),
        finished_tokens=sum(finished[shard].counts.get("tokens", 0) for shard in done),
        seconds=sum(finished[shard].seconds for shard in done),
        left=count_left(manifest, done),
        missing=tuple(manifest.path(shard) for shard in sorted(missing)),
        changed_inputs=tuple(_changed(manifest.inputs)),
        order=manifest.order,
    )


def count_left(manifest: Manifest, done: Collection[int]) -> tuple[int, ...]:
    """For each host that shares a run the number of its shards that are not done."""
    if manifest.hosts == 1:
        return ()
    shares = [Shard(host, manifest.hosts) for host in range(manifest.hosts)]
    left = [shard for shard in range(len(manifest.shards)) if shard not in done]
    return tuple(sum(share.has(shard) for shard in left) for share in shares)


def name_left(left: Sequence[int]) -> str:
    """What `count_left` has found, as `1/4 (3 shards), 2/4 (1 shard)`."""
    return ", ".join(
        f"{Shard(host, len(left))} ({count:,} shard{'' if count == 1 else 's'})"
        for host, count in enumerate(left)
        if count
    )


def read_finished(folder: Location) -> tuple[Manifest, dict[int, FinishedEntry]]:
    """The manifest and the records of finished shards."""
    manifest = Manifest.read(folder)
    try:
        finished = dict(manifest.finished_shards())
    except OutputError:
        if Manifest.read(folder).finished is None:
            raise
        finished = {}
    if manifest.finished is None:
        # Perhaps the run has come to its end meanwhile: then the manifest has all records now.
        again = Manifest.read(folder)
        if again.finished is not None:
            return again, dict(again.finished_shards())
    return manifest, finished


def _changed(inputs: Sequence[InputEntry]) -> list[str]:
    same = in_parallel(_is_as_it_was, inputs)
    return [entry.path for entry, is_same in zip(inputs, same, strict=True) if not is_same]


def _is_as_it_was(entry: InputEntry) -> bool:
    try:
        return look_up(entry.path) == (entry.bytes, entry.modified_ns, entry.version)
    except BertFeaturesError:
        return False

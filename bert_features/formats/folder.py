"""A features folder, which holds one features file for each shard of a run, read as one file."""

import contextlib
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np

from bert_features.errors import OutputError
from bert_features.files import Location, Store, name_of, open_store, storage_errors
from bert_features.formats.checksums import checksum_of_file
from bert_features.formats.columns import convert_to_splits, find_parts
from bert_features.formats.headers import Header
from bert_features.formats.manifest import MANIFEST, FinishedEntry, Manifest
from bert_features.formats.reader import FeatureFile
from bert_features.formats.records import Feature, FeatureBatch, FeatureRecord
from bert_features.formats.sidecar import sidecar_name, sidecar_path

# Shards that stay open for the next record.
MAX_OPEN = 4


class FeatureFolder(FeatureFile):
    """The records of all shards of a finished run, in order, as if they were in one file.

    A shard is opened, and compared with the manifest, when one of its records is asked for. The few
    that were used last stay open. `ragged` copies what lies in several shards; what lies in one is
    what its file returns.

    `verify` compares each file with the checksum that the manifest has of all its bytes, then with
    its own checksums.

    Args:
      path: the folder: its path, or its address.

    Attributes:
      path: the folder.
      format: the format of its files.
      metadata: that of the first shard.
      features: the features of each record, in order; the same in all shards.
      id_type: whether ids are `int` or `str`.

    Raises:
      OutputError: there is no manifest, it is damaged, the run is not finished, a file is missing,
        or the first shard is not what the manifest says.
    """

    path: Location  # type: ignore[assignment]  # of a file it is a path
    _noun = "folder"

    def __init__(self, path: Location) -> None:
        self._opened: dict[int, FeatureFile] = {}  # the last one used is last
        self._lock = threading.Lock()
        super().__init__(path)  # type: ignore[arg-type]

    @property
    def shards(self) -> tuple[Location, ...]:
        """The features file of each shard, in order."""
        return tuple(map(self._manifest.path, range(len(self._manifest.shards))))

    @property
    def bytes(self) -> int:
        """Size of the files of all shards, their sidecars included."""
        store, name = self._manifest.store.listed(), self._manifest.name
        return sum(
            store.size(part)
            for number, entry in enumerate(self._finished)
            for part in _checksums(store, name(number), entry)
        )

    def close(self) -> None:
        """Closes the shards that are open."""
        with self._lock:
            opened, self._opened = self._opened, {}
        for shard in opened.values():
            shard.close()

    # What a format implements.

    def _check_readable(self) -> None:
        names = _names_in(self.path)
        self._manifest = Manifest.read(self.path)
        self.format = self._manifest.format
        self._finished = _finished(self._manifest)
        _check_complete(self.path, self.shards, names)

    def _read_header(self) -> Header:
        _check_format(self.format)
        self._starts = convert_to_splits([shard.records for shard in self._manifest.shards])
        _check_beginnings(self._manifest, self._starts)
        first = self._shard(0)
        self.has_token_ids = first.has_token_ids
        return Header(first.metadata, first.features, first.id_type, self._manifest.records)

    def _records(self, wanted: range) -> Iterator[FeatureRecord]:
        for number, start, stop in find_parts(self._starts, wanted):
            shard = self._shard(number)
            # Some formats read a whole file without looking for the places of its records first.
            yield from shard if stop - start == len(shard) else shard[start:stop]

    def _batches(self, wanted: range) -> Iterator[FeatureBatch]:
        for number, start, stop in find_parts(self._starts, wanted):
            yield from self._shard(number)._read_batches(range(start, stop))

    def _record(self, number: int) -> FeatureRecord:
        ((shard, start, _),) = find_parts(self._starts, range(number, number + 1))
        return self._shard(shard)[start]

    def _ragged(self, feature: Feature, wanted: range) -> tuple[np.ndarray, np.ndarray | None]:
        # For no records, what the first shard returns for none.
        parts = list(find_parts(self._starts, wanted)) or [(0, 0, 0)]
        values: list[np.ndarray] = []
        lengths = [np.zeros(1, np.int64)]
        for number, start, stop in parts:
            rows, row_splits = self._shard(number)[start:stop].ragged(feature.name)
            if len(parts) == 1:
                return rows, row_splits
            values.append(rows)
            if row_splits is not None:
                lengths.append(np.diff(row_splits))
        joined = _join(values)
        if feature.level == "sequence":
            return joined, None
        return joined, np.cumsum(np.concatenate(lengths), dtype=np.int64)

    def _all_ids(self) -> np.ndarray:
        return np.concatenate([self._shard(number).ids for number in range(len(self._finished))])

    def _verify(self) -> tuple[str, ...]:
        for number, entry in enumerate(self._finished):
            _check_file(self._manifest.store, self._manifest.name(number), entry)
            self._shard(number).verify()
        # The manifest has a checksum of all bytes, also of what a file itself has none of.
        return ()

    @property
    def _extent(self) -> str:
        count = len(self._manifest.shards)
        return f" in {count:,} shard{'' if count == 1 else 's'}"

    # The shards.

    def _shard(self, number: int) -> FeatureFile:
        """The file of a shard, open for as long as it is one of the last few that were used."""
        with self._lock:
            shard = self._opened.pop(number, None) or self._open(number)
            self._opened[number] = shard
            if len(self._opened) > MAX_OPEN:
                # Not closed: an iterator or another thread may read it. Once nobody does, it is.
                del self._opened[next(iter(self._opened))]
            return shard

    def _open(self, number: int) -> FeatureFile:
        from bert_features.formats import read_features  # which itself needs this module

        store, name = self._manifest.store, self._manifest.name(number)
        _check_sizes(store, name, self._finished[number])
        with contextlib.ExitStack() as copies:
            path = copies.enter_context(_fetched(store, name, self._finished[number]))
            shard = read_features(path, format=self.format)
            self._check_shard(number, shard)
            # A copy of a shard at an address is removed once nobody reads it.
            weakref.finalize(shard, copies.pop_all().close)
        return shard

    def _check_shard(self, number: int, shard: FeatureFile) -> None:
        """Refuses a shard that is not what the manifest says."""
        manifest, problem = self._manifest, None
        expected = manifest.shards[number].records
        if len(shard) != expected:
            problem = f"it holds {len(shard)} records, and {MANIFEST} records {expected}"
        elif shard.id_type != manifest.id_type:
            problem = f"its ids are {shard.id_type}, and {MANIFEST} records {manifest.id_type}"
        elif number > 0 and shard.features != self.features:
            problem = _difference(shard.features, self.features, manifest.name(0))
        if problem:
            raise _bad(manifest.store, manifest.name(number), problem)


def _names_in(folder: Location) -> set[str]:
    """The names in a features folder.

    Raises:
      OutputError: it cannot be listed, or has no manifest.
    """
    with storage_errors(f"read {folder}", advice="pass the folder that a run wrote"):
        names = open_store(folder).names()
    if MANIFEST not in names:
        raise OutputError(
            f"cannot read {folder}: Is a directory, without the {MANIFEST} of a features folder; "
            "pass a features file, or the folder that a run wrote"
        )
    return names


def _finished(manifest: Manifest) -> tuple[FinishedEntry, ...]:
    """The records of all shards.

    Raises:
      OutputError: the run is not finished.
    """
    if manifest.finished is None:
        done = sum(1 for _ in manifest.finished_shards())
        raise OutputError(
            f"cannot read {manifest.folder}: its run is not finished: {done:,} of "
            f"{len(manifest.shards):,} shards are done; run the same command again, and it goes on"
        )
    return manifest.finished


def _check_complete(folder: Location, shards: Sequence[Location], names: Collection[str]) -> None:
    """Refuses a folder in which the file of a shard is missing."""
    missing = [name for name in map(name_of, shards) if name not in names]
    if missing:
        raise OutputError(
            f"cannot read {folder}: {len(missing):,} of its {len(shards):,} shards not found, "
            f"{missing[0]} first; {_advice(folder, 'them')}"
        )


def _check_format(format: str) -> None:
    from bert_features.formats import FORMATS  # which itself needs this module

    if format not in FORMATS:
        raise ValueError(f"{MANIFEST}: format {format!r} is unknown; allowed: {', '.join(FORMATS)}")


def _check_beginnings(manifest: Manifest, starts: np.ndarray) -> None:
    for number, shard in enumerate(manifest.shards):
        if shard.first != starts[number]:
            raise ValueError(
                f"{MANIFEST}: shard {number} begins at example {shard.first}, and the shards "
                f"before it hold {starts[number]}"
            )


def find_damaged(manifest: Manifest, finished: Mapping[int, FinishedEntry]) -> set[int]:
    """The shards that are missing, or whose bytes are not those that were written.

    Args:
      manifest: the manifest.
      finished: the shards to look at, by number, with their records.
    """
    return _find(_check_file, manifest, finished)


def find_missing(manifest: Manifest, finished: Mapping[int, FinishedEntry]) -> set[int]:
    """The shards that have not the recorded size, or lack their sidecar; see `find_damaged`."""
    return _find(_check_sizes, manifest, finished)


def _find(
    check: Callable[[Store, str, FinishedEntry], None],
    manifest: Manifest,
    finished: Mapping[int, FinishedEntry],
) -> set[int]:
    with storage_errors(f"read {manifest.folder}", advice="nothing was changed"):
        store = manifest.store.listed()
    found = set()
    for shard, entry in finished.items():
        try:
            check(store, manifest.name(shard), entry)
        except OutputError:
            found.add(shard)
    return found


def _check_sizes(store: Store, name: str, entry: FinishedEntry) -> None:
    """Refuses a shard that is not of the recorded size, or lacks its sidecar."""
    with _reading(store, name):
        size = store.size(name)
    if size != entry.bytes:
        raise _bad(store, name, f"it has {size:,} bytes, and {MANIFEST} records {entry.bytes:,}")
    if entry.sidecar_crc32c is not None:
        sidecar = _sidecar(store, name)
        with _reading(store, sidecar):
            store.size(sidecar)


def _check_file(store: Store, name: str, entry: FinishedEntry) -> None:
    """Refuses a shard whose bytes, or those of its sidecar, are not those that were written."""
    _check_sizes(store, name, entry)
    for part, crc32c in _checksums(store, name, entry).items():
        with _reading(store, part), store.fetched(part) as path:
            _check_bytes(store, part, path, crc32c)


@contextlib.contextmanager
def _fetched(store: Store, name: str, entry: FinishedEntry) -> Iterator[Path]:
    """The path of a shard on this machine, its sidecar beside it; a copy has been checked."""
    parts = _checksums(store, name, entry)
    with contextlib.ExitStack() as copies:
        with _reading(store, name):
            path = copies.enter_context(store.fetched(*parts))
        if path != store.location(name):
            for part, crc32c in parts.items():
                _check_bytes(store, part, path.with_name(part), crc32c)
        yield path


def _checksums(store: Store, name: str, entry: FinishedEntry) -> dict[str, str]:
    """The files of a shard and the checksums that they had."""
    checksums = {name: entry.crc32c}
    if entry.sidecar_crc32c is not None:
        checksums[_sidecar(store, name)] = entry.sidecar_crc32c
    return checksums


def _sidecar(store: Store, name: str) -> str:
    """The name of the sidecar of a shard."""
    path = store.location(name)
    if isinstance(path, Path) and path.is_symlink():  # it may be beside the file itself
        return str(sidecar_path(path).absolute())
    return sidecar_name(name)


def _check_bytes(store: Store, name: str, path: Path, crc32c: str) -> None:
    """Refuses a file, or its copy at `path`, whose bytes are not those that were written."""
    found = checksum_of_file(path)
    if found != crc32c:
        raise _bad(
            store, name, f"its bytes have the CRC-32C {found}, and {MANIFEST} records {crc32c}"
        )


def _reading(store: Store, name: str) -> contextlib.AbstractContextManager[None]:
    return storage_errors(f"read {store.location(name)}", advice=_advice(store.folder))


def _advice(folder: Location, what: str = "it") -> str:
    return (
        f"take {what} from a copy of the folder, or compute {what} again: bert-features check "
        f"{folder} --repair"
    )


def _bad(store: Store, name: str, reason: str) -> OutputError:
    return OutputError(f"cannot read {store.location(name)}: {reason}; {_advice(store.folder)}")


def _difference(features: Sequence[Feature], first: Sequence[Feature], name: str) -> str:
    """What a shard has in place of a feature of the first shard, whose file has this name."""
    pairs = zip_longest(features, first)
    received, expected = next(pair for pair in pairs if pair[0] != pair[1])
    return f"it has {received or 'no feature'} where {name} has {expected or 'none'}"


def _join(parts: list[np.ndarray]) -> np.ndarray:
    """The rows of all parts, in order, in a new array; takes each part out of the list."""
    width, dtype = parts[0].shape[1], parts[0].dtype
    joined = np.empty((sum(map(len, parts)), width), dtype)
    end = len(joined)
    while parts:  # from the end, each part is freed once it is copied
        part = parts.pop()
        joined[end - len(part) : end] = part
        end -= len(part)
    return joined

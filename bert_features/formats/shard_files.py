"""The files of the shards of a features folder: whether they are there and as they were written."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bert_features.errors import OutputError
from bert_features.files import Location, Store, storage_errors
from bert_features.files.checksums import checksum_of_ends, checksum_of_file
from bert_features.formats.manifest import FinishedEntry, Manifest
from bert_features.formats.sidecar import sidecar_name, sidecar_path


def find_damaged(manifest: Manifest, finished: Mapping[int, FinishedEntry]) -> set[int]:
    """The shards that are missing, or whose bytes are not those that were written.

    Only the shards in `finished` are checked. Raises OutputError if a server cannot be asked.
    """
    return _find(check_file, manifest, finished)


def find_missing(manifest: Manifest, finished: Mapping[int, FinishedEntry]) -> set[int]:
    """The shards that have not the recorded size, or lack their sidecar; see `find_damaged`."""
    return _find(check_sizes, manifest, finished)


def _find(
    check: Callable[[Store, str, FinishedEntry], None],
    manifest: Manifest,
    finished: Mapping[int, FinishedEntry],
) -> set[int]:
    with storage_errors(f"read {manifest.folder}", advice="nothing was changed"):
        store = manifest.store.listed()
    damaged = set()
    for shard, entry in finished.items():
        try:
            check(store, manifest.name(shard), entry)
        except OutputError as error:
            if _is_of_a_server(store, error):
                raise
            damaged.add(shard)
    return damaged


def _is_of_a_server(store: Store, error: OutputError) -> bool:
    """Whether a server could not be asked, which says nothing about the shard."""
    cause = error.__cause__
    at_an_address = isinstance(store.folder, str)
    return at_an_address and isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError)


def check_sizes(store: Store, name: str, entry: FinishedEntry) -> None:
    """Refuses a shard that is not of the recorded size, or lacks its sidecar."""
    with _reading(store, name):
        size = store.size(name)
    if size != entry.bytes:
        raise unreadable(
            store, name, f"it has {size:,} bytes, and the manifest records {entry.bytes:,}"
        )
    if entry.sidecar_crc32c is not None:
        sidecar = _sidecar(store, name)
        with _reading(store, sidecar):
            store.size(sidecar)


def check_file(store: Store, name: str, entry: FinishedEntry) -> None:
    """Refuses a shard if its bytes, or its sidecar's, are not what was written."""
    check_sizes(store, name, entry)
    for part, crc32c in checksums_of(store, name, entry).items():
        with _reading(store, part), store.fetched(part) as path:
            _check_bytes(store, part, path, crc32c)


@contextlib.contextmanager
def fetched(store: Store, name: str, entry: FinishedEntry) -> Iterator[Path]:
    """The path of a shard on this machine, its sidecar beside it.

    A copy has been checked. Of a file in its place only the ends have, which costs next to nothing,
    and shows a shard that stands in the place of another.
    """
    parts = checksums_of(store, name, entry)
    with contextlib.ExitStack() as copies:
        with _reading(store, name):
            path = copies.enter_context(store.fetched(*parts))
        if path != store.location(name):
            for part, crc32c in parts.items():
                _check_bytes(store, part, path.with_name(part), crc32c)
        else:
            with _reading(store, name):
                _, computed = checksum_of_ends(path)
            if computed != entry.ends_crc32c:
                raise unreadable(
                    store, name, "its first or last 64 KiB are not those that the manifest records"
                )
        yield path


def checksums_of(store: Store, name: str, entry: FinishedEntry) -> dict[str, str]:
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
    computed = checksum_of_file(path)
    if computed != crc32c:
        raise unreadable(
            store, name, f"its bytes have the CRC-32C {computed}, and the manifest records {crc32c}"
        )


def _reading(store: Store, name: str) -> contextlib.AbstractContextManager[None]:
    return storage_errors(f"read {store.location(name)}", advice=how_to_mend(store.folder))


def how_to_mend(folder: Location, what: str = "it") -> str:
    """What to do about a shard that is missing or damaged, for messages."""
    return (
        f"take {what} from a copy of the folder, or compute {what} again: bert-features check "
        f"{folder} --repair"
    )


def unreadable(store: Store, name: str, reason: str) -> OutputError:
    """The error of a shard that is not what was written."""
    return OutputError(f"cannot read {store.location(name)}: {reason}; {how_to_mend(store.folder)}")

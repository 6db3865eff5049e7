"""FeatureStore: finished features by their text, in a file that several processes may share.

It is an SQLite database. Its index leads from a hash of a text to the entries of that hash; a text
is known only if the key of an entry is equal to its own.
"""

import contextlib
import hashlib
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from bert_features.errors import OutputError
from bert_features.files import locked
from bert_features.files.checksums import checksum

logger = logging.getLogger("bert_features")

_SUFFIX = ".sqlite"
_BESIDE = ("", "-wal", "-shm")  # SQLite's own files beside the database
_CRC_BYTES = 4
# SQLite's limit of the parameters of a statement was 999 for long.
_MAX_PARAMETERS = 900
# An entry of several windows of a long text may be larger; SQLite's own limit is 1e9.
_MAX_ENTRY_BYTES = 256 << 20
# Another process may write the features of a whole sorting window.
_PATIENCE_SECONDS = 60
_SCHEMA = """
create table if not exists facts (fingerprint text not null);
create table if not exists entries (
  id integer primary key, hash integer not null, tokens integer not null, run integer not null,
  key blob not null, value blob not null
);
create index if not exists by_hash on entries (hash, tokens);
"""
_INSERT = """
insert into entries (hash, tokens, run, key, value)
select :hash, :tokens, :run, :key, :value
where not exists (select 1 from entries where hash = :hash and key = :key)
"""


@dataclass(frozen=True)
class StorePlace:
    """Where the processes of a run share features.

    Attributes:
      folder: the folder.
      run: a number that no other run has.
      lasting: whether the folder is kept for other runs.
      max_bytes: size of the folder at which nothing more is added; None for no limit.
    """

    folder: Path
    run: int
    lasting: bool = False
    max_bytes: int | None = None


# The warnings of this process, by run: each of its shards opens the file again.
_said: set[tuple[int, str]] = set()


class Entry(NamedTuple):
    """What is stored for a text.

    Attributes:
      value: its features, see `entries.Codec`.
      is_own: whether this run has computed them.
    """

    value: bytes
    is_own: bool


class NewEntry(NamedTuple):
    """What is to be stored for a text: its key and the hash of it, its tokens, its features."""

    key: bytes
    hash: int
    tokens: int
    value: bytes


def hash_key(key: bytes) -> int:
    """A hash of 64 bits with a sign, as SQLite has integers."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big", signed=True)


class FeatureStore:
    """The features that runs of one fingerprint share; a context manager.

    What goes wrong with the file later is logged once and costs time only: a damaged entry counts
    as absent, and on a full disk nothing more is added.

    Args:
      place: where the file is.
      fingerprint: all that features depend on beside the text. Each has a file of its own.

    Attributes:
      accepts: whether entries are still added.

    Raises:
      OutputError: the file cannot be made or opened.
    """

    def __init__(self, place: StorePlace, fingerprint: str) -> None:
        self._place = place
        name = hashlib.sha256(fingerprint.encode()).hexdigest()[:32]
        self._path = place.folder / f"{name}{_SUFFIX}"
        self.accepts = True
        self._reads = True
        # One for the thread that reads the input, one for the thread that has the features.
        with self._opening():
            self._asking = self._open(fingerprint)
            self._writing = self._connect()
        self._notice_limit()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        # The thread that reads the input of a run that failed may still ask.
        self.accepts = self._reads = False
        for connection in (self._asking, self._writing):
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def tokens(self, hashes: Sequence[int]) -> dict[int, int]:
        """Those of some hashes that have an entry, and the tokens of a text of theirs."""
        found: dict[int, int] = {}
        for part in _parts(hashes):
            with self._tolerating():
                marks = ",".join("?" * len(part))
                query = f"select hash, tokens from entries where hash in ({marks})"
                found.update(self._asking.execute(query, part).fetchall() if self._reads else ())
        return found

    def fetch(self, hashes: Sequence[int], wanted: Iterable[bytes]) -> dict[bytes, Entry]:
        """The entries of some keys, without those that are damaged or absent.

        Args:
          hashes: the hashes of the keys.
          wanted: the keys.
        """
        keys = set(wanted)
        found: dict[bytes, Entry] = {}
        damaged: list[tuple[int]] = []
        for part in _parts(hashes):
            with self._tolerating():
                marks = ",".join("?" * len(part))
                query = f"select id, run, key, value from entries where hash in ({marks})"
                for number, run, key, value in self._writing.execute(query, part).fetchall():
                    if not _is_whole(key, value):
                        damaged.append((number,))
                    elif key in keys:
                        found[key] = Entry(value[_CRC_BYTES:], run == self._place.run)
        if damaged:
            self._say("%s has damaged entries; their texts are computed again", self._path)
            with self._tolerating():
                self._writing.executemany("delete from entries where id = ?", damaged)
        return found

    def add(self, entries: Iterable[NewEntry]) -> None:
        """Adds entries, if there is room, without huge ones. One that is there already stays."""
        if not self.accepts:
            return
        rows = (
            {
                "hash": entry.hash,
                "tokens": entry.tokens,
                "run": self._place.run,
                "key": entry.key,
                "value": _checksum(entry.key, entry.value) + entry.value,
            }
            for entry in entries
            if len(entry.value) <= _MAX_ENTRY_BYTES
        )
        with self._tolerating():
            self._writing.execute("begin immediate")
            try:
                self._writing.executemany(_INSERT, rows)
                self._writing.execute("commit")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._writing.execute("rollback")
                raise
        self._notice_limit()

    def _notice_limit(self) -> None:
        limit = self._place.max_bytes
        if limit is None or not self.accepts:
            return
        paths = [*self._place.folder.glob(f"*{_SUFFIX}"), *self._place.folder.glob("*-wal")]
        sizes = (path.stat().st_size for path in paths)
        with contextlib.suppress(FileNotFoundError):  # another process has just removed it
            if sum(sizes) >= limit:
                self.accepts = False
                self._say(
                    "the cache %s has reached its limit of %s bytes, so nothing more is added",
                    self._place.folder,
                    f"{limit:,}",
                )

    @contextlib.contextmanager
    def _opening(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise OutputError(
                f"cannot use {self._path} for the features of texts that repeat: {reason}; choose "
                "another folder, or delete that file"
            ) from error

    def _open(self, fingerprint: str) -> sqlite3.Connection:
        """Opens the file; a damaged one is replaced by a new one."""
        waiting = "another process opens the texts that repeat; waiting for it"
        with locked(self._path.with_suffix(".lock"), waiting):
            try:
                return self._prepared(fingerprint)
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError as error:
                self._say("%s is damaged (%s); a new one takes its place", self._path, error)
                for suffix in _BESIDE:
                    self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
                return self._prepared(fingerprint)

    def _prepared(self, fingerprint: str) -> sqlite3.Connection:
        connection = self._connect()
        try:
            connection.executescript(_SCHEMA)
            found = connection.execute("select fingerprint from facts").fetchall()
            if not found:
                connection.execute("insert into facts values (?)", (fingerprint,))
            elif found != [(fingerprint,)]:
                raise sqlite3.DatabaseError("it is of other settings")
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=_PATIENCE_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.execute("pragma journal_mode = wal")
        # What is not kept needs to outlive a killed process, but not the machine.
        connection.execute(f"pragma synchronous = {'normal' if self._place.lasting else 'off'}")
        return connection

    @contextlib.contextmanager
    def _tolerating(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError:  # it was closed meanwhile
            self.accepts = self._reads = False
        except sqlite3.OperationalError as error:  # a full disk, a lock that stays
            self.accepts = False
            self._say("cannot add to %s: %s; nothing more is added", self._path, error)
        except sqlite3.DatabaseError as error:
            self.accepts = self._reads = False
            self._say("%s is damaged (%s) and not used any more; delete it", self._path, error)

    def _say(self, text: str, *values: object) -> None:
        if (self._place.run, text) not in _said:
            _said.add((self._place.run, text))
            logger.warning(text, *values)


def _parts(hashes: Sequence[int]) -> Iterator[Sequence[int]]:
    return (
        hashes[start : start + _MAX_PARAMETERS] for start in range(0, len(hashes), _MAX_PARAMETERS)
    )


def _checksum(key: bytes, value: bytes) -> bytes:
    return checksum(value, checksum(key)).to_bytes(_CRC_BYTES, "big")


def _is_whole(key: object, value: object) -> bool:
    return (
        isinstance(key, bytes)
        and isinstance(value, bytes)
        and value[:_CRC_BYTES] == _checksum(key, value[_CRC_BYTES:])
    )

"""FeatureStore: finished features by their text, in a file that several processes may share.

It is an SQLite table from the key of a text to its entry; under no key are the canaries of the run
that made it. Its name has the first 32 digits of its key. Importing this imports no framework.
"""

import contextlib
import json
import logging
import secrets
import sqlite3
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.recipe import Recipe
from bert_features.errors import OutputError
from bert_features.extraction.recipe import cache_key
from bert_features.files import Staging, is_url, local_path, locked, storage_errors
from bert_features.files.checksums import checksum
from bert_features.formats.canaries import check_numbers
from bert_features.machine import onednn

if TYPE_CHECKING:
    from bert_features.extraction.preparation import Preparation

logger = logging.getLogger("bert_features")

_SUFFIX = ".features"
_CRC_BYTES = 4
# SQLite's limit of the parameters of a statement was 999 for long.
_MAX_PARAMETERS = 900
# An entry of several windows of a long text may be larger; SQLite's own limit is 1e9.
_MAX_ENTRY_BYTES = 256 << 20
# Another process may write the features of a whole megabatch.
_PATIENCE_SECONDS = 60
_RUN_BITS = 63  # SQLite's integers have 64, with a sign
_SCHEMA = """
create table if not exists entries (
  key blob primary key, tokens integer not null, run integer not null, value blob not null
)
"""
_CANARIES = b""  # the key


@dataclass(frozen=True)
class StorePlace:
    """Where the processes of a run share features.

    Attributes:
      run: a number that no other run has.
      lasting: whether the folder is kept for other runs.
    """

    folder: Path
    run: int
    lasting: bool = False


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


class FeatureStore:
    """The features that runs of one recipe share; a context manager.

    A file that is damaged, locked or cannot be opened is no error of the run: it is logged once and
    costs time only. A damaged file is replaced as it is opened, a damaged entry counts as absent,
    and on a full disk nothing more is added. Two threads may use a store: one adds and fetches, one
    asks for tokens.

    Args:
      place: where the file is.
      key: what `recipe.cache_key` gives. Each has a file of its own.
      recipe: that of the run. A file with other canaries is replaced.

    Attributes:
      accepts: whether entries are still added.
    """

    def __init__(self, place: StorePlace, key: str, recipe: Recipe) -> None:
        self._place, self._recipe = place, recipe
        self._path = place.folder / f"{key[:32]}{_SUFFIX}"
        self.accepts = self._reads = True
        # A connection that reads cannot begin to write while another process does.
        self._lock = threading.Lock()
        with self._tolerating():
            self._database = self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        # The thread that reads the input of a run that failed may still ask.
        self.accepts = self._reads = False
        with self._lock, contextlib.suppress(AttributeError, sqlite3.Error):  # it may not be open
            self._database.close()

    def tokens(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        """The keys that have an entry, and the number of tokens of each."""
        return dict(self._select("key, tokens", keys))

    def fetch(self, keys: Sequence[bytes]) -> dict[bytes, Entry]:
        """The entries of some keys, except damaged or absent ones."""
        entries = {}
        for key, run, value in self._select("key, run, value", keys):
            if isinstance(value, bytes) and value[:_CRC_BYTES] == _crc(key, value[_CRC_BYTES:]):
                entries[key] = Entry(value[_CRC_BYTES:], run == self._place.run)
            else:
                self._say("%s has damaged entries; their texts are computed again", self._path)
        return entries

    def _select(self, columns: str, keys: Sequence[bytes]) -> Iterator[tuple[Any, ...]]:
        for start in range(0, len(keys), _MAX_PARAMETERS):
            part = keys[start : start + _MAX_PARAMETERS]
            marks = ",".join("?" * len(part))
            query = f"select {columns} from entries where key in ({marks})"
            rows: list[tuple[Any, ...]] = []
            with self._tolerating(), self._lock:
                if self._reads:
                    rows = self._database.execute(query, part).fetchall()
            yield from rows

    def add(self, entries: Iterable[tuple[bytes, int, bytes]]) -> None:
        """Adds entries (the key of a text, its tokens, its features), if there is room for them.

        Huge ones are left out.
        """
        if not self.accepts:
            return
        rows = (
            (key, tokens, self._place.run, _crc(key, value) + value)
            for key, tokens, value in entries
            if len(value) <= _MAX_ENTRY_BYTES
        )
        with self._tolerating(), self._lock, self._database:  # a transaction
            # A damaged entry is replaced; one that another process has just added is the same.
            self._database.executemany("insert or replace into entries values (?, ?, ?, ?)", rows)

    def _open(self) -> sqlite3.Connection:
        """Opens the file; a damaged one is replaced by a new one."""
        waiting = "waiting for another process that opens the same store of texts"
        with locked(self._path.with_suffix(".lock"), waiting):
            try:
                return self._connect()
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError as error:
                self._say("%s is not usable (%s); it is replaced by a new one", self._path, error)
                for suffix in ("", "-wal", "-shm"):  # SQLite's own files beside the database
                    self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
                return self._connect()

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(
            self._path,
            timeout=_PATIENCE_SECONDS,
            isolation_level="IMMEDIATE",  # waits for another process before it writes
            check_same_thread=False,
        )
        try:
            database.execute("pragma journal_mode = wal")
            # What is not kept needs to outlive a killed process, but not the machine.
            database.execute(f"pragma synchronous = {'normal' if self._place.lasting else 'off'}")
            database.execute(_SCHEMA)
            self._check_canaries(database)
        except BaseException:
            database.close()
            raise
        return database

    def _check_canaries(self, database: sqlite3.Connection) -> None:
        query = "select value from entries where key = ?"
        before = database.execute(query, [_CANARIES]).fetchone()
        if before is None:
            canaries = json.dumps(self._recipe.to_json()["canaries"])
            with database:  # a transaction
                database.execute("insert into entries values (?, 0, 0, ?)", [_CANARIES, canaries])
            return
        try:
            check_numbers(replace(self._recipe, canaries=json.loads(*before)), self._recipe)
        except (OutputError, ValueError, TypeError) as error:  # pydantic's too
            raise sqlite3.DatabaseError("this machine computes other numbers") from error

    @contextlib.contextmanager
    def _tolerating(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError:  # it was closed meanwhile
            self.accepts = self._reads = False
        except (OSError, sqlite3.Error) as error:
            # On a full disk, or behind a lock that stays, what is there can still be read.
            is_open = hasattr(self, "_database")
            self._reads = is_open and isinstance(error, sqlite3.OperationalError)
            self.accepts = False
            use = (
                "nothing more is added to it"
                if self._reads
                else "this run does not use it; if this happens again, delete it"
            )
            self._say("cannot use %s: %s; %s", self._path, error, use)

    def _say(self, text: str, *values: object) -> None:
        if (self._place.run, text) not in _said:
            _said.add((self._place.run, text))
            logger.warning(text, *values)


def _crc(key: bytes, value: bytes) -> bytes:
    return checksum(value, checksum(key)).to_bytes(_CRC_BYTES, "big")


def check_cache(config: ExtractConfig) -> None:
    """Makes the cache folder; raises OutputError if it is an address, or cannot be written."""
    if config.cache is None:
        return
    if is_url(config.cache):
        raise OutputError(f"the cache {config.cache} is an address; pass a local folder")
    folder = local_path(config.cache)
    with storage_errors(f"write the cache {folder}", advice="choose a folder that you may write"):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass


@contextlib.contextmanager
def store_place(config: ExtractConfig, target: Path | None) -> Iterator[StorePlace | None]:
    """Where a run keeps the features of texts; None without `dedupe`.

    Without a cache it is a hidden folder beside `target`, the file that the run writes (never a
    symbolic link; None for standard output and addresses), gone at the end. What a killed run
    leaves there is removed by the next run that writes the file. Raises OutputError if there is no
    place.
    """
    run = secrets.randbits(_RUN_BITS)
    if not config.dedupe:
        yield None
    elif config.cache is not None:
        yield StorePlace(local_path(config.cache), run, lasting=True)
    elif target is None:
        with tempfile.TemporaryDirectory(prefix="bert_features_") as temporary:
            yield StorePlace(Path(temporary), run)
    else:
        with storage_errors(f"write beside {target}"):
            staging = Staging([target], overwrite=True)
        try:
            folder = staging.scratch("texts")
            folder.mkdir()
            yield StorePlace(folder, run)
        finally:
            staging.discard()


@contextlib.contextmanager
def open_store(
    place: StorePlace | None, preparation: "Preparation", recipe: Recipe | None
) -> Iterator[FeatureStore | None]:
    """The store at a place, for the features of a run by its recipe; None if there is no place."""
    if place is None or recipe is None:
        yield None
        return
    if preparation.devices.kind == "cpu" and (off := onednn.find_off()):
        logger.warning(
            "equal texts get equal features only within 1e-5, not to the last bit: oneDNN is off "
            "(%s); %s",
            off.reason,
            off.remedy,
        )
    with FeatureStore(place, cache_key(preparation), recipe) as store:
        yield store

"""The examples' own ids: of one type, none twice, checked in bounded memory."""

import contextlib
import itertools
import reprlib
import sqlite3
from collections.abc import Iterator

from bert_features.errors import InputError
from bert_features.readers.rows import NO_ID, Row, Source

# This many ids are held as Python objects, a few MB; the others are in a temporary database.
_HELD = 1 << 14
_CACHE_KB = 64 * 1024  # what SQLite holds of that in memory
_MIN_INT, _MAX_INT = -(1 << 63), (1 << 63) - 1
_SQL_TYPES: dict[type, str] = {int: "INTEGER", str: "TEXT"}


def read_ids(source: Source, rows: Iterator[Row]) -> Iterator[tuple[int | str, Row]]:
    """Adds to each row its id, checked, or its number from 0 where rows have no id.

    An id that stands twice is refused at its second row, or, if there are many rows between the
    two, up to `_HELD` rows later.

    Raises:
      InputError: an id is neither an integer of 64 bits nor a string, ids are of both types, an id
        stands twice, or only some rows have one.
    """
    first = next(rows, None)
    if first is None:
        return
    rows = itertools.chain([first], rows)
    if first.unique_id is NO_ID:
        for number, row in enumerate(rows):
            if row.unique_id is not NO_ID:
                raise source.error("has an id, but the rows before it have none", row.line)
            yield number, row
        return
    with contextlib.closing(_UniqueIds(source, first)) as ids:
        for row in rows:
            yield ids.check(row), row
        ids.finish()


class _UniqueIds:
    """The ids of one source, each with the line it is on."""

    def __init__(self, source: Source, first: Row) -> None:
        self._source = source
        self._first = first
        self._type = type(first.unique_id)
        self._held: dict[int | str, int] = {}
        self._database: sqlite3.Connection | None = None

    def check(self, row: Row) -> int | str:
        """The id of a row."""
        value = row.unique_id
        if type(value) is not self._type or not isinstance(value, int | str):
            raise self._wrong_type(row)
        if isinstance(value, int) and not self._is_integer(value):
            raise self._wrong_type(row)
        if value == "":
            raise self._source.error("the id is empty", row.line)
        before = self._held.setdefault(value, row.line)
        if before != row.line:
            raise self._repeated(value, row.line, before)
        if len(self._held) == _HELD:
            self._store()
        return value

    def finish(self) -> None:
        """Checks what was not checked yet."""
        if self._database is not None:
            self._store()

    def close(self) -> None:
        """Removes the database."""
        if self._database is not None:
            self._database.close()

    @staticmethod
    def _is_integer(value: int) -> bool:
        return type(value) is int and _MIN_INT <= value <= _MAX_INT

    def _store(self) -> None:
        try:
            self._insert()
        except sqlite3.Error as error:
            raise self._source.error(
                f"cannot check that no id stands twice: {error}; is the temporary folder full? "
                "SQLITE_TMPDIR can name another"
            ) from error
        self._held.clear()

    def _insert(self) -> None:
        if self._database is None:
            self._database = self._new_database()
        changes = self._database.total_changes
        self._database.execute("BEGIN")
        self._database.executemany(
            # In order: neighbours go to the same page, which is then in the cache.
            "INSERT OR IGNORE INTO ids VALUES (?, ?)",
            sorted(self._held.items()),
        )
        self._database.execute("COMMIT")
        if self._database.total_changes - changes < len(self._held):
            raise self._first_repeated(self._database)

    def _new_database(self) -> sqlite3.Connection:
        # An empty name stands for a temporary file. tf.data reads examples from several threads,
        # one after the other.
        database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        database.execute("PRAGMA journal_mode = OFF")  # it need not outlive a failure
        database.execute("PRAGMA synchronous = OFF")
        database.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
        database.execute(
            f"CREATE TABLE ids (id {_SQL_TYPES[self._type]} PRIMARY KEY NOT NULL, line INTEGER) "
            "WITHOUT ROWID"
        )
        return database

    def _first_repeated(self, database: sqlite3.Connection) -> InputError:
        for value, line in self._held.items():
            (before,) = database.execute("SELECT line FROM ids WHERE id = ?", (value,)).fetchone()
            if before != line:
                return self._repeated(value, line, before)
        raise AssertionError("no id is repeated")

    def _repeated(self, value: int | str, line: int, before: int) -> InputError:
        return self._source.error(
            f"the id {reprlib.repr(value)} is that of {self._source.unit} {before} too; each "
            "example needs its own: name another id_field, or an empty one to number the examples",
            line,
        )

    def _wrong_type(self, row: Row) -> InputError:
        if row.unique_id is NO_ID:
            return self._source.error("has no id, but the rows before it have one", row.line)
        is_id = type(row.unique_id) in _SQL_TYPES
        received = f"the id is {reprlib.repr(row.unique_id)}"
        if is_id and type(row.unique_id) is not self._type:
            return self._source.error(
                f"{received}, of type {type(row.unique_id).__name__}, but that of "
                f"{self._source.unit} {self._first.line} is "
                f"{reprlib.repr(self._first.unique_id)}, of type {self._type.__name__}; all must "
                "be of one type",
                row.line,
            )
        return self._source.error(
            f"{received}; allowed: a string, or an integer of 64 bits", row.line
        )

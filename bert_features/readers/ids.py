"""The ids of examples: of one type, none twice, checked in bounded memory."""

import reprlib
import sqlite3

from bert_features.errors import InputError
from bert_features.readers.source import Origin

NO_ID = object()  # for a row without an id; None is an id that is null

# Ids held as Python objects, a few MB; the others are in a temporary database.
_HELD = 1 << 14
_CACHE_KB = 64 * 1024  # SQLite's page cache
_MIN_INT, _MAX_INT = -(1 << 63), (1 << 63) - 1
_SQL_TYPES: dict[type, str] = {int: "INTEGER", str: "TEXT"}


class Ids:
    """Gives each example of a source its id: its own, checked, or its number.

    An id that occurs twice is refused at its second row; if many rows lie between the two, up to
    `_HELD` rows later.

    Args:
      source: where the examples come from.
      first: the number of the first example.
    """

    def __init__(self, source: Origin, *, first: int = 0) -> None:
        self._source = source
        self._first = first
        self._next = first
        self._own: _OwnIds | None = None

    def of(self, line: int, value: object = NO_ID) -> int | str:
        """The id of the next example.

        Args:
          line: where it begins, from 1: a line, or in Parquet a row.
          value: its own id, of any type; `NO_ID` for none.

        Raises:
          InputError: the id is neither an integer of 64 bits nor a string, ids are of both types,
            an id occurs twice, or only some rows have one.
        """
        if value is NO_ID:
            if self._own is not None:
                raise self._source.error("has no id, but the rows before it have one", line)
            number = self._next
            self._next += 1
            return number
        if self._own is None:
            if self._next > self._first:
                raise self._source.error("has an id, but the rows before it have none", line)
            self._own = _OwnIds(self._source, line, value)
        return self._own.check(line, value)

    def finish(self) -> None:
        """Checks the ids that are not checked yet."""
        if self._own is not None:
            self._own.finish()

    def close(self) -> None:
        """Removes what is on disk."""
        if self._own is not None:
            self._own.close()


class _OwnIds:
    """The ids that a source itself gives, each with the line it is on."""

    def __init__(self, source: Origin, first_line: int, first: object) -> None:
        self._source = source
        self._first_line = first_line
        self._first = first
        self._type = type(first)
        self._held: dict[int | str, int] = {}
        self._database: sqlite3.Connection | None = None

    def check(self, line: int, value: object) -> int | str:
        """The id of a row."""
        if type(value) is not self._type or not isinstance(value, int | str):
            raise self._wrong_type(line, value)
        if isinstance(value, int) and not self._is_integer(value):
            raise self._wrong_type(line, value)
        if value == "":
            raise self._source.error("the id is empty", line)
        before = self._held.setdefault(value, line)
        if before != line:
            raise self._repeated(value, line, before)
        if len(self._held) == _HELD:
            self._store()
        return value

    def finish(self) -> None:
        """Checks the ids that are not checked yet."""
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
                f"cannot check that ids are unique: {error}; is the temporary folder full? "
                "SQLITE_TMPDIR can name another"
            ) from error
        self._held.clear()

    def _insert(self) -> None:
        if self._database is None:
            self._database = self._new_database()
        changes = self._database.total_changes
        self._database.execute("BEGIN")
        self._database.executemany(
            # Sorted: neighbours go to the same page, which is then in the cache.
            "INSERT OR IGNORE INTO ids VALUES (?, ?)",
            sorted(self._held.items()),
        )
        self._database.execute("COMMIT")
        if self._database.total_changes - changes < len(self._held):
            raise self._first_repeated(self._database)

    def _new_database(self) -> sqlite3.Connection:
        # An empty name makes a temporary file. tf.data reads examples from several threads,
        # one after the other.
        database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        database.execute("PRAGMA journal_mode = OFF")  # nothing to recover after a failure
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
            f"the id {reprlib.repr(value)} is also the id of {self._source.unit} {before}; ids "
            "must be unique: name another id_field, or an empty one to number the examples",
            line,
        )

    def _wrong_type(self, line: int, value: object) -> InputError:
        received = f"the id is {reprlib.repr(value)}"
        if type(value) in _SQL_TYPES and type(value) is not self._type:
            return self._source.error(
                f"{received}, of type {type(value).__name__}, but the id of {self._source.unit} "
                f"{self._first_line} is {reprlib.repr(self._first)}, of type "
                f"{self._type.__name__}; all must be of one type",
                line,
            )
        return self._source.error(f"{received}; allowed: a string, or an integer of 64 bits", line)

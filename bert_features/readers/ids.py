"""The ids of examples: of one type, none twice, checked in bounded memory."""

import reprlib
import sqlite3

from bert_features.errors import InputError
from bert_features.readers.source import Origin

NO_ID = object()  # for a row without an id; None is an id that is null

# Ids held as Python objects, a few MB; the others are in a temporary database.
_HELD = 1 << 14
_CACHE_KB = 64 * 1024  # SQLite's page cache
_LINE_BITS = 40  # of a position, below the number of the source
_MIN_INT, _MAX_INT = -(1 << 63), (1 << 63) - 1
_SQL_TYPES: dict[type, str] = {int: "INTEGER", str: "TEXT"}


class Ids:
    """Gives each example of a source its id: its own, checked, or its number.

    An id that occurs twice is refused at its second row; if many rows lie between the two, up to
    `_HELD` rows later. `go_on` adds a source: then ids are checked over all sources, and numbers
    continue.

    Args:
      source: where the examples come from.
      first: the number of the first example.
    """

    def __init__(self, source: Origin, *, first: int = 0) -> None:
        self._places = _Places(source)
        self._first = first
        self._next = first
        self._numbered: Origin | None = None  # the last source whose examples have no ids
        self._own: _OwnIds | None = None

    def go_on(self, source: Origin) -> None:
        """Moves to the beginning of another source."""
        self._places.go_on(source)

    def of(self, line: int, value: object = NO_ID) -> int | str:
        """The id of the next example.

        Args:
          line: where it begins, from 1: a line, or in Parquet a row.
          value: its own id, of any type; `NO_ID` for none.

        Raises:
          InputError: the id is neither an integer of 64 bits nor a string, ids are of both types,
            an id occurs twice, or only some rows have one.
        """
        position = self._places.position(line)
        if value is NO_ID:
            if self._own is not None:
                raise self._is_mixed(line, self._own.last_source, "has no id", "have one")
            self._numbered = self._places.source
            number = self._next
            self._next += 1
            return number
        if self._own is None:
            if self._numbered is not None:
                raise self._is_mixed(line, self._numbered, "has an id", "have none")
            self._own = _OwnIds(self._places, position, value)
        return self._own.check(position, value)

    def of_lines(self, line: int, count: int) -> None:
        """Numbers the next examples, one on each line, without ids of their own.

        Args:
          line: the line of the first, from 1.
          count: their number, at least 1.

        Raises:
          InputError: the examples before them have ids.
        """
        self.of(line)
        self._next += count - 1

    def finish(self) -> None:
        """Checks the ids that are not checked yet."""
        if self._own is not None:
            self._own.finish()

    def close(self) -> None:
        """Removes what is on disk."""
        if self._own is not None:
            self._own.close()

    def _is_mixed(self, line: int, before: Origin, this: str, others: str) -> InputError:
        source = self._places.source
        if before is source:
            return source.error(f"{this}, but the rows before it {others}", line)
        return source.error(
            InputError.naming(
                "{this}, but the examples of {before} {others}; pass an empty {id_field} to number "
                "the examples of all inputs, or extract each kind into a folder of its own",
                this=this,
                before=before.name,
                others=others,
            ),
            line,
        )


class _Places:
    """The positions of lines in all sources: the number of the source, then that of the line.

    Attributes:
      source: the source that is read.
    """

    def __init__(self, source: Origin) -> None:
        self._sources = [source]

    @property
    def source(self) -> Origin:
        return self._sources[-1]

    def go_on(self, source: Origin) -> None:
        """Moves to the beginning of another source."""
        self._sources.append(source)

    def position(self, line: int) -> int:
        """The position of a line of the source that is read."""
        return (len(self._sources) - 1) << _LINE_BITS | line

    def describe(self, position: int, *, seen_from: int) -> str:
        """A position as `line 3`, or in another source than `seen_from` as `a.jsonl, line 3`."""
        source, line = self._find(position)
        where = f"{source.unit} {line}"
        return where if source is self._find(seen_from)[0] else f"{source.name}, {where}"

    def error(self, problem: str | InputError, position: int | None = None) -> InputError:
        """An error that names a position; without one, the source that is read."""
        if position is None:
            return self.source.error(problem)
        source, line = self._find(position)
        return source.error(problem, line)

    def _find(self, position: int) -> tuple[Origin, int]:
        return self._sources[position >> _LINE_BITS], position & ((1 << _LINE_BITS) - 1)


class _OwnIds:
    """The ids that the sources themselves give, each with its position."""

    def __init__(self, places: _Places, first_position: int, first: object) -> None:
        self._places = places
        self._first_position = first_position
        self._first = first
        self._type = type(first)
        self._held: dict[int | str, int] = {}
        self._database: sqlite3.Connection | None = None
        self.last_source = places.source

    def check(self, position: int, value: object) -> int | str:
        """The id of a row."""
        self.last_source = self._places.source
        if type(value) is not self._type or not isinstance(value, int | str):
            raise self._wrong_type(position, value)
        if isinstance(value, int) and not self._is_integer(value):
            raise self._wrong_type(position, value)
        if value == "":
            raise self._places.error("the id is empty", position)
        before = self._held.setdefault(value, position)
        if before != position:
            raise self._repeated(value, position, before)
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
            raise self._places.error(
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
            f"CREATE TABLE ids (id {_SQL_TYPES[self._type]} PRIMARY KEY NOT NULL, "
            "position INTEGER) WITHOUT ROWID"
        )
        return database

    def _first_repeated(self, database: sqlite3.Connection) -> InputError:
        for value, position in self._held.items():
            found = database.execute("SELECT position FROM ids WHERE id = ?", (value,))
            (before,) = found.fetchone()
            if before != position:
                return self._repeated(value, position, before)
        raise AssertionError("no id is repeated")

    def _repeated(self, value: int | str, position: int, before: int) -> InputError:
        return self._places.error(
            f"the id {reprlib.repr(value)} is also the id of "
            f"{self._places.describe(before, seen_from=position)}"
            "; ids must be unique: name another id_field, or an empty one to number the examples",
            position,
        )

    def _wrong_type(self, position: int, value: object) -> InputError:
        received = f"the id is {reprlib.repr(value)}"
        if type(value) in _SQL_TYPES and type(value) is not self._type:
            first = self._places.describe(self._first_position, seen_from=position)
            return self._places.error(
                f"{received}, of type {type(value).__name__}, but the id of {first} is "
                f"{reprlib.repr(self._first)}, of type {self._type.__name__}; all must be of one "
                "type",
                position,
            )
        return self._places.error(
            f"{received}; allowed: a string, or an integer of 64 bits", position
        )

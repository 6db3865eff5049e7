"""The ids of examples: of one type, none twice, checked in bounded memory."""

import reprlib
import sqlite3
from collections.abc import Callable
from typing import Any, NamedTuple

from bert_features.errors import InputError
from bert_features.readers.source import Origin

NO_ID = object()  # for a row without an id; None is an id that is null

# Ids held as Python objects, a few MB; the others are in a temporary database.
_HELD = 1 << 14
_CACHE_KB = 64 * 1024  # SQLite's page cache
_LINE_BITS = 40  # of a position, below the number of the source
_MIN_INT, _MAX_INT = -(1 << 63), (1 << 63) - 1


class Ids:
    """Gives each example of a source its id: its own, checked, or its number.

    An id that occurs twice is refused at its second row; if many rows lie between the two, up to
    `_HELD` rows later. `go_on` adds a source: then ids are checked over all sources, and numbers
    continue.
    """

    def __init__(self, source: Origin, *, first: int = 0) -> None:
        self._sources = [source]
        self._next = first
        self._numbered: Origin | None = None  # the last source whose examples have no ids
        self._own: Origin | None = None  # the last one whose examples have ids
        self._first: tuple[int, object] = 0, None  # the position and the value of the first id
        self._seen = _Seen()

    def go_on(self, source: Origin) -> None:
        """Moves to the beginning of another source."""
        self._sources.append(source)

    def of(self, line: int, value: object = NO_ID) -> int | str:
        """The id of the next example.

        Args:
          line: where it begins, from 1: a line, or in Parquet a row.
          value: its own id, of any type; `NO_ID` for none.

        Raises:
          InputError: the id is neither an integer of 64 bits nor a string, ids are of both types,
            an id occurs twice, or only some rows have one.
        """
        source = self._sources[-1]
        if value is NO_ID:
            if self._own is not None:
                raise _mixed(source, line, self._own, "has no id", "have one")
            self._numbered = source
            number = self._next
            self._next += 1
            return number
        position = (len(self._sources) - 1) << _LINE_BITS | line
        if self._own is None:
            if self._numbered is not None:
                raise _mixed(source, line, self._numbered, "has an id", "have none")
            self._first = position, value
        self._own = source
        if type(value) is not type(self._first[1]) or not isinstance(value, int | str):
            raise self._wrong_type(position, value)
        if isinstance(value, int) and not (type(value) is int and _MIN_INT <= value <= _MAX_INT):
            raise self._wrong_type(position, value)
        if value == "":
            raise self._error("the id is empty", position)
        self._check(self._seen.add, value, position)
        return value

    def of_lines(self, line: int, count: int) -> None:
        """Numbers the next examples, each on a line; raises InputError if those before have ids."""
        self.of(line)
        self._next += count - 1

    def finish(self) -> None:
        """Checks the ids that are not checked yet."""
        self._check(self._seen.finish)

    def close(self) -> None:
        """Removes what is on disk."""
        self._seen.close()

    def _check(self, look: "Callable[..., _Repeated | None]", *row: Any) -> None:
        try:
            repeated = look(*row)
        except sqlite3.Error as error:
            raise self._sources[-1].error(
                f"cannot check that ids are unique: {error}; is the temporary folder full? "
                "SQLITE_TMPDIR can name another"
            ) from error
        if repeated is not None:
            raise self._error(
                f"the id {reprlib.repr(repeated.value)} is also the id of "
                f"{self._describe(repeated.before, seen_from=repeated.position)}"
                "; ids must be unique: name another id_field, or an empty one to number the "
                "examples",
                repeated.position,
            )

    def _wrong_type(self, position: int, value: object) -> InputError:
        received = f"the id is {reprlib.repr(value)}"
        at, first = self._first
        if type(value) in (int, str) and type(value) is not type(first):
            return self._error(
                f"{received}, of type {type(value).__name__}, but the id of "
                f"{self._describe(at, seen_from=position)} is {reprlib.repr(first)}, of type "
                f"{type(first).__name__}; all must be of one type",
                position,
            )
        return self._error(f"{received}; allowed: a string, or an integer of 64 bits", position)

    def _error(self, problem: str, position: int) -> InputError:
        source, line = self._find(position)
        return source.error(problem, line)

    def _describe(self, position: int, *, seen_from: int) -> str:
        """A position as `line 3`, or in another source than `seen_from` as `a.jsonl, line 3`."""
        source, line = self._find(position)
        where = f"{source.unit} {line}"
        return where if source is self._find(seen_from)[0] else f"{source.name}, {where}"

    def _find(self, position: int) -> tuple[Origin, int]:
        return self._sources[position >> _LINE_BITS], position & ((1 << _LINE_BITS) - 1)


def _mixed(source: Origin, line: int, before: Origin, this: str, others: str) -> InputError:
    if before is source:
        return source.error(f"{this}, but the rows before it {others}", line)
    return source.error(
        f"{this}, but the examples of {before.name} {others}; pass an empty id_field to number "
        "the examples of all inputs, or extract each kind into a folder of its own",
        line,
    )


class _Repeated(NamedTuple):
    """An id that occurs twice, with both of its positions."""

    value: int | str
    position: int
    before: int


class _Seen:
    """The ids so far, all of one type, each with its position."""

    def __init__(self) -> None:
        self._held: dict[int | str, int] = {}
        self._database: sqlite3.Connection | None = None

    def add(self, value: int | str, position: int) -> _Repeated | None:
        """Adds an id; the one that occurs twice, if that is known now."""
        before = self._held.setdefault(value, position)
        if before != position:
            return _Repeated(value, position, before)
        return self._store() if len(self._held) == _HELD else None

    def finish(self) -> _Repeated | None:
        """The id that occurs twice, if there is one that is not known yet."""
        return self._store() if self._database is not None else None

    def close(self) -> None:
        """Removes the database."""
        if self._database is not None:
            self._database.close()

    def _store(self) -> _Repeated | None:
        """Moves the ids that are held to the database."""
        self._database = self._database or _new_database()
        changes = self._database.total_changes
        self._database.execute("BEGIN")
        self._database.executemany(
            # Sorted: neighbours go to the same page, which is then in the cache.
            "INSERT OR IGNORE INTO ids VALUES (?, ?)",
            sorted(self._held.items()),
        )
        self._database.execute("COMMIT")
        if self._database.total_changes - changes < len(self._held):
            for value, position in self._held.items():
                cursor = self._database.execute("SELECT position FROM ids WHERE id = ?", (value,))
                (before,) = cursor.fetchone()
                if before != position:
                    return _Repeated(value, position, before)
        self._held.clear()
        return None


def _new_database() -> sqlite3.Connection:
    # An empty name makes a temporary file. tf.data reads examples from several threads, one after
    # the other.
    database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode = OFF")  # nothing to recover after a failure
    database.execute("PRAGMA synchronous = OFF")
    database.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
    # Without a type a column keeps integers and strings as they are.
    database.execute("CREATE TABLE ids (id PRIMARY KEY NOT NULL, position) WITHOUT ROWID")
    return database

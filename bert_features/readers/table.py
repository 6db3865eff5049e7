"""Comma- and tab-separated values. Ids are strings; words are split at white space.

The first row has the names of the columns, unless the settings name fields by their numbers: then
it is an example too. A line `sep=;` before it, as Excel writes, names the delimiter.

In tab-separated files quotes are text, unless the setting `quoting` says otherwise. Blank lines are
skipped. An empty second text means none: a table has no other way to say it.
"""

import csv
import functools
import logging
import re
from collections import deque
from collections.abc import Iterator
from itertools import chain

from bert_features.config.input_format import FIELD_NAMES, FORMATS, FormatRow, InputFormat
from bert_features.config.settings import shown
from bert_features.errors import InputError
from bert_features.readers.fields import FieldError, Fields, choose_fields
from bert_features.readers.ids import NO_ID, Ids
from bert_features.readers.input_example import InputExample
from bert_features.readers.lines import size_of, too_long
from bert_features.readers.source import Source

logger = logging.getLogger("bert_features")

_SAMPLE_CHARACTERS = 1 << 16  # of the first record, to find the delimiter
_EXCEL = re.compile('"?sep=(.)"?\\s*$', re.IGNORECASE)


def read_rows(source: Source, ids: Ids) -> Iterator[InputExample]:
    """One example per row after the header; none if the file is empty."""
    lines = _RecordLines(source)
    records = _records(source, lines, _delimiter(source, lines))
    line, header = first = next(records, (0, []))
    if not header:
        return
    is_numbered = _is_numbered(source.input_format, header)
    if is_numbered:
        records, header = chain([first], records), _numbers(header)
    fields = _fields(source, header)
    column = {name: header.index(name) for name in fields.names()}
    id_column = None if fields.unique_id is None else column[fields.unique_id]
    first_column = column[fields.first]
    second_column = None if fields.second is None else column[fields.second]
    if is_numbered:
        _report_no_header(source.name, first[1][first_column])
    for line, values in records:
        if len(values) != len(header):
            raise _wrong_width(source, line, values, header)
        unique_id = ids.of(line, NO_ID if id_column is None else values[id_column])
        first = values[first_column]
        second = None if second_column is None else values[second_column] or None
        if fields.are_words:
            words_b = None if second is None else second.split()
            yield InputExample.from_words(unique_id, first.split(), words_b)
        else:
            yield InputExample(unique_id, first, second)


def count_rows(source: Source) -> int | None:
    """None: a quoted field may hold line ends, so that rows cannot be counted by lines."""
    return None


def _row(source: Source) -> FormatRow:
    return FORMATS[source.input_format.format]


def _delimiter(source: Source, lines: "_RecordLines") -> str:
    """The delimiter: set, or named by the file, or the only one that gives the wanted fields.

    Raises InputError if several give them, from different columns.
    """
    given, known = source.input_format.delimiter, _row(source).delimiters
    sample = lines.sample()
    if stated := _EXCEL.match(sample[-1]) if sample else None:
        for _ in sample:
            next(lines)
        return given or stated[1]
    if given or len(known) == 1:
        return given or known[0]
    rows = {delimiter: _first_record(source, sample, delimiter) for delimiter in known}
    fit = {delimiter: row for delimiter, row in rows.items() if _fits(source.input_format, row)}
    if len({tuple(row) for row in fit.values()}) > 1:
        raise source.error(
            InputError.naming(
                "its first line may be separated by {these}; pass {delimiter} with one of them",
                these=" or ".join(map(repr, fit)),
            )
        )
    # If none fits, the error names the columns of the delimiter that gives most.
    return next(iter(fit), max(rows, key=lambda delimiter: len(rows[delimiter])))


def _first_record(source: Source, lines: list[str], delimiter: str) -> list[str]:
    """The first record by a delimiter; empty if it cannot be parsed, which reading then reports."""
    quoting = csv.QUOTE_MINIMAL if _is_quoted(source) else csv.QUOTE_NONE
    try:
        return next(filter(None, csv.reader(lines, delimiter=delimiter, quoting=quoting)), [])
    except csv.Error:
        return []


def _fits(input_format: InputFormat, row: list[str]) -> bool:
    header = _numbers(row) if _is_numbered(input_format, row) else row
    try:
        choose_fields(input_format, header, "column")
    except FieldError:
        return False
    return True


def _is_numbered(input_format: InputFormat, row: list[str]) -> bool:
    """Whether a field is named by its number, from 1; then the first row is no header.

    A number that is a column's name too is that name if its place has no text but a number, as in
    `0,1,2`, the header that pandas writes.
    """
    named = [getattr(input_format, name) or "" for name in FIELD_NAMES]
    return any(
        name not in row or not ("".join(row[int(name) - 1 : int(name)]) or "0").isdecimal()
        for name in named
        if name.isascii() and name.isdecimal()
    )


@functools.lru_cache(maxsize=64)  # once, however often a file is read
def _report_no_header(name: str, text: str) -> None:
    logger.info("%s has no header: its first row is an example, %s", name, shown(text))


def _numbers(row: list[str]) -> list[str]:
    return [str(number) for number in range(1, len(row) + 1)]


def _fields(source: Source, header: list[str]) -> Fields:
    try:
        return choose_fields(source.input_format, header, "column")
    except FieldError as error:
        quotes = any(name.startswith('"') for name in header)
        hinted = _with_hint(source, error) if quotes else _with_header_hint(source, error, header)
        raise source.error(hinted) from error


def _wrong_width(source: Source, line: int, values: list[str], header: list[str]) -> InputError:
    problem = f"the row has {len(values)} fields, the header {len(header)}: {', '.join(header)}"
    return source.error(problem if _is_quoted(source) else _with_hint(source, problem), line)


def _records(
    source: Source, lines: "_RecordLines", delimiter: str
) -> Iterator[tuple[int, list[str]]]:
    """The line on which each record begins, and its fields."""
    # Python's own limit, 131,072 characters, is shorter than some texts; `lines` sets ours.
    csv.field_size_limit(max(csv.field_size_limit(), source.input_format.max_line_bytes))
    reader = csv.reader(
        lines,
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if _is_quoted(source) else csv.QUOTE_NONE,
        strict=True,
    )
    while True:
        line = lines.begin_record()
        try:
            record = next(reader, None)
        except csv.Error as error:
            raise source.error(_with_hint(source, str(error)), line) from error
        if record is None:
            return
        if record:
            yield line, record


class _RecordLines:
    """The lines of a source for the csv module, which asks for more until a quote is closed."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lines = source.lines()
        self._ahead: deque[str] = deque()
        self._count = self._size = 0
        self.begin_record()

    def sample(self) -> list[str]:
        """The lines of the first record, which are given later all the same; or a part of them."""
        is_quoted, size, quotes = _is_quoted(self._source), 0, 0
        for line in self._lines:
            self._ahead.append(line)
            size += len(line)
            quotes += line.count('"') if is_quoted else 0
            if (quotes % 2 == 0 and not line.isspace()) or size > _SAMPLE_CHARACTERS:
                break
        return list(self._ahead)

    def begin_record(self) -> int:
        """Counts the bytes of a record from here; returns the number of its first line."""
        self._first_line = self._count + 1
        self._size = 0
        return self._first_line

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._ahead.popleft() if self._ahead else next(self._lines)
        self._count += 1
        self._size += size_of(line)
        limit = self._source.input_format.max_line_bytes
        if self._size > limit:
            raise self._source.error(
                too_long("the row", limit, missing="a closing quote"), self._first_line
            )
        return line


def _is_quoted(source: Source) -> bool:
    quoting = source.input_format.quoting
    return _row(source).quoting if quoting is None else quoting


def _with_hint(source: Source, problem: str | InputError) -> InputError:
    """A problem that quotes may be the cause of, and what to do then."""
    if not _is_quoted(source):
        hint = "quotes are text here: if they enclose fields, pass {quoting:True}"
    else:
        hint = (
            "is a quote not closed, or not doubled within quotes? If quotes are text, pass "
            "{quoting:False}"
        )
    return InputError.naming("{problem}; " + hint, problem=problem)


def _with_header_hint(source: Source, problem: InputError, header: list[str]) -> InputError:
    """A problem with the names of columns, and whether the delimiter or the header is its cause."""
    if len(header) == 1 and "," in header[0] and len(_row(source).delimiters) == 1:
        return InputError.naming(
            "{problem}; the first line looks like csv: if it is, pass {input_format:'csv'}",
            problem=problem,
        )
    return InputError.naming(
        "{problem}; the first line must name the columns: if it does not, pass the number of one, "
        "from 1, as in {text_field:'2'}",
        problem=problem,
    )

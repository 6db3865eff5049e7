"""Comma- and tab-separated values. Ids are strings; words are split at white space.

The first row has the names of the columns, unless the settings name fields by their numbers: then
it is an example too. A line `sep=;` before it, as Excel writes, names the delimiter.

In tsv quotes are text; the format csv reads tabs with fields in quotes. Blank lines are skipped. An
empty second text means none: a table has no other way to say it.
"""

import csv
import functools
import logging
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from bert_features.config.input_format import FIELD_NAMES, INPUT_FORMATS, FormatRow, InputFormat
from bert_features.config.settings import shown
from bert_features.readers.fields import FieldError, Fields, choose_fields
from bert_features.readers.ids import NO_ID, Ids
from bert_features.readers.input_example import InputExample
from bert_features.readers.labels import annotated
from bert_features.readers.lines import RETURNS, size_of, too_long
from bert_features.readers.source import Source

logger = logging.getLogger("bert_features")

_EXCEL = re.compile('"?sep=(.)"?\\s*$', re.IGNORECASE)


def read_rows(source: Source, ids: Ids) -> Iterator[InputExample]:
    """One example per row after the header, if there is one."""
    records = _records(source)
    top = next(records, None)
    if top is None:
        return
    header = _header(source.input_format, top[1])
    fields = _fields(source, header)
    column = {name: header.index(name) for name in fields.names()}
    id_column = None if fields.unique_id is None else column[fields.unique_id]
    first_column = column[fields.first]
    second_column = None if fields.second is None else column[fields.second]
    if header is not top[1]:
        _report_no_header(source.name, top[1][first_column])
        records = chain([top], records)
    for line, values in records:
        if len(values) != len(header):
            problem = f"the row has {len(values)} fields, the header {len(header)}"
            problem += f": {', '.join(header)}"
            problem = problem if _row(source).quoted else _with_hint(source, problem)
            raise source.error(problem, line)
        if values == top[1] is header:  # as in files that were joined
            raise source.error("the row repeats the header; remove it", line)
        unique_id = ids.of(line, NO_ID if id_column is None else values[id_column])
        first = values[first_column]
        second = None if second_column is None else values[second_column] or None
        if fields.are_words:
            words_b = None if second is None else second.split()
            example = InputExample.from_words(unique_id, first.split(), words_b)
        else:
            example = InputExample(unique_id, first, second)
        try:
            yield annotated(example, fields, functools.partial(_cell, values, column, fields))
        except FieldError as error:
            raise source.error(error, line) from error


def _cell(values: list[str], column: dict[str, int], fields: Fields, name: str) -> Any:
    """The labels of a row."""
    value = values[column[name]]
    return value.split() if fields.are_words else value


def _row(source: Source) -> FormatRow:
    return INPUT_FORMATS[source.input_format.format]


def _find_delimiter(source: Source, first_line: str) -> str:
    """The only delimiter that gives the wanted fields; InputError if several give other fields."""
    # A lone "\r" is an error of csv, which reading reports.
    lines, quoting = [first_line.rstrip().replace("\r", " ")], _quoting(source)
    known = _row(source).delimiters
    rows = {each: next(csv.reader(lines, delimiter=each, quoting=quoting), []) for each in known}
    fits = {each: row for each, row in rows.items() if _fits(source.input_format, row)}
    if any(len(row) == 1 for row in fits.values()):  # is the whole line meant as a name?
        fits |= {each: row for each, row in rows.items() if len(row) > 1}
    different = {tuple(row): each for each, row in reversed(fits.items())}
    if len(different) > 1:
        these = " or ".join(map(repr, reversed(different.values())))
        raise source.error(
            f"its first line may be separated by {these}; pass delimiter with one of them"
        )
    # If none fits, the error names the columns of the delimiter that gives most.
    return next(iter(fits), max(known, key=lambda each: len(rows[each])))


def _fits(input_format: InputFormat, row: list[str]) -> bool:
    try:
        choose_fields(input_format, _header(input_format, row), "column")
    except FieldError:
        return False
    return True


def _header(input_format: InputFormat, row: list[str]) -> list[str]:
    """The names of the columns: the first row, or if fields are named by numbers these, from 1.

    A number that is also in the first row is a name there if its place has no text but a number, as
    in `0,1,2`, the header that pandas writes.
    """
    named = [getattr(input_format, name) or "" for name in (*FIELD_NAMES, "label_field")]
    has_none = any(
        name not in row or not ("".join(row[int(name) - 1 : int(name)]) or "0").isdecimal()
        for name in named
        if name.isascii() and name.isdecimal()
    )
    return [str(number) for number in range(1, len(row) + 1)] if has_none else row


@functools.lru_cache(maxsize=64)  # once, however often a file is read
def _report_no_header(name: str, text: str) -> None:
    logger.info("%s has no header: its first row is an example, %s", name, shown(text))


def _fields(source: Source, header: list[str]) -> Fields:
    try:
        return choose_fields(source.input_format, header, "column")
    except FieldError as error:
        raise source.error(_with_hint(source, error, header)) from error


def _records(source: Source) -> Iterator[tuple[int, list[str]]]:
    """The line on which each record begins, and its fields."""
    # Python's own limit, 131,072 characters, is shorter than some texts; `lines` sets ours.
    csv.field_size_limit(max(csv.field_size_limit(), source.input_format.max_line_bytes))
    lines = _RecordLines(source)
    reader = csv.reader(lines, delimiter=lines.delimiter, quoting=_quoting(source), strict=True)
    while True:
        lines.begin_record()
        line = reader.line_num + 1
        try:
            record = next(reader, None)
        except csv.Error as error:
            is_return = str(error).startswith("new-line character")
            problem = RETURNS if is_return else _with_hint(source, str(error))
            raise source.error(problem, line) from error
        if record is None:
            return
        if record:
            yield line, record


class _RecordLines:
    """The lines of a source for the csv module, which asks for more until a quote is closed.

    Attributes:
      delimiter: the delimiter: set, or stated by a line `sep=;`, or found in the first line.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lines = source.lines()
        self._count = self._size = 0
        self.begin_record()
        ahead = [""]
        while not ahead[-1].strip() and (line := next(self._lines, "")):
            ahead.append(line)
        stated = _EXCEL.match(ahead[-1])
        if stated:
            ahead[-1] = "\n"  # blank lines are skipped
        self._lines = chain(ahead[1:], self._lines)
        option = (source.input_format.delimiter or "").replace("\\t", "\t")  # as a shell passes it
        self.delimiter = option or (stated[1] if stated else _find_delimiter(source, ahead[-1]))

    def begin_record(self) -> None:
        """Counts the bytes of a record from here."""
        self._first_line = self._count + 1
        self._size = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self._count += 1
        self._size += size_of(line)
        limit = self._source.input_format.max_line_bytes
        if self._size > limit:
            raise self._source.error(
                too_long("the row", limit, missing="a closing quote"), self._first_line
            )
        return line


def _quoting(source: Source) -> Any:
    return csv.QUOTE_MINIMAL if _row(source).quoted else csv.QUOTE_NONE


def _with_hint(source: Source, problem: object, header: Sequence[str] = ()) -> str:
    """A problem, and what may be its cause: quotes, or in a header the delimiter or its absence."""
    if header and not any(name.startswith('"') for name in header):
        hint = (
            "the first line must name the columns: if it does not, pass the number of one, from 1, "
            "as in text_field='2'"
        )
        if len(header) == 1 and "," in header[0] and len(_row(source).delimiters) == 1:
            hint = "the first line looks like csv: if it is, pass input_format='csv'"
    elif _row(source).quoted:
        hint = (
            "is a quote not closed, or not doubled within quotes? Where quotes are text, double "
            "them, or write tsv and pass input_format='tsv'"
        )
    else:
        hint = "quotes are text here: if they enclose fields, pass input_format='csv'"
    return f"{problem}; {hint}"

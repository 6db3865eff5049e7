"""Comma- and tab-separated values with a header. Ids are strings; words are split at white space.

In tab-separated files quotes are text, unless the setting `quoting` says otherwise. Blank lines are
skipped. An empty second text means none: a table has no other way to say it.
"""

import csv
from collections.abc import Iterator

from bert_features.config.input_format import QUOTING, FormatName
from bert_features.errors import InputError
from bert_features.readers.fields import FieldError, Fields, choose_fields
from bert_features.readers.ids import NO_ID, Ids
from bert_features.readers.input_example import InputExample
from bert_features.readers.lines import size_of, too_long
from bert_features.readers.source import Source

_DELIMITERS: dict[FormatName, str] = {"csv": ",", "tsv": "\t"}


def read_rows(source: Source, ids: Ids) -> Iterator[InputExample]:
    """One example per row after the header."""
    records = _records(source)
    _, header = next(records, (0, None))
    if header is None:
        raise source.error("it is empty; expected a header with the names of the columns")
    fields = _fields(source, header)
    column = {name: header.index(name) for name in fields.names()}
    id_column = None if fields.unique_id is None else column[fields.unique_id]
    first_column = column[fields.first]
    second_column = None if fields.second is None else column[fields.second]
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


def _records(source: Source) -> Iterator[tuple[int, list[str]]]:
    """The line on which each record begins, and its fields."""
    # Python's own limit, 131,072 characters, is shorter than some texts; `lines` sets ours.
    csv.field_size_limit(max(csv.field_size_limit(), source.input_format.max_line_bytes))
    lines = _RecordLines(source)
    reader = csv.reader(
        lines,
        delimiter=_DELIMITERS[source.input_format.format],
        quoting=csv.QUOTE_MINIMAL if _is_quoted(source) else csv.QUOTE_NONE,
        strict=True,
    )
    while True:
        lines.begin_record()
        line = reader.line_num + 1
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
        self._count = self._size = 0
        self.begin_record()

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


def _is_quoted(source: Source) -> bool:
    quoting = source.input_format.quoting
    return QUOTING[source.input_format.format] if quoting is None else quoting


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
    for name, delimiter in _DELIMITERS.items():
        if name != source.input_format.format and len(header) == 1 and delimiter in header[0]:
            return InputError.naming(
                f"{{problem}}; the first line looks like {name}: if it is, pass "
                f"{{input_format:{name!r}}}",
                problem=problem,
            )
    return InputError.naming(
        "{problem}; the first line must name the columns: if it does not, put one such as {line} "
        "before it",
        problem=problem,
        line=_DELIMITERS[source.input_format.format].join(["id", "text"]).replace("\t", "<tab>"),
    )

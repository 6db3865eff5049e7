"""Comma- and tab-separated values with a header. Ids are strings; words are split at white space.

Blank lines are skipped. An empty second text means none: a table has no other way to say it.
"""

import csv
from collections.abc import Iterator

from bert_features.config.input_format import FormatName
from bert_features.readers.fields import FieldError, choose_fields
from bert_features.readers.ids import NO_ID, Ids
from bert_features.readers.input_example import InputExample
from bert_features.readers.source import Source

_DELIMITERS: dict[FormatName, str] = {"csv": ",", "tsv": "\t"}
# In characters. Python's own limit, 131,072, is shorter than some texts; without a limit a quote
# that is never closed would bring the whole file into memory.
_MAX_FIELD_SIZE = 1 << 24


def read_rows(source: Source, ids: Ids) -> Iterator[InputExample]:
    """One example per row after the header."""
    records = _records(source)
    _, header = next(records, (0, None))
    if header is None:
        raise source.error("it is empty; expected a header with the names of the columns")
    try:
        fields = choose_fields(source.input_format, header, "column")
    except FieldError as error:
        raise source.error(error) from error
    column = {name: header.index(name) for name in fields.names()}
    id_column = None if fields.unique_id is None else column[fields.unique_id]
    first_column = column[fields.first]
    second_column = None if fields.second is None else column[fields.second]
    for line, values in records:
        if len(values) != len(header):
            raise source.error(
                f"the row has {len(values)} fields, the header {len(header)}: {', '.join(header)}",
                line,
            )
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


def _records(source: Source) -> Iterator[tuple[int, list[str]]]:
    """The line on which each record begins, and its fields."""
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_FIELD_SIZE))
    reader = csv.reader(
        source.lines(),
        delimiter=_DELIMITERS[source.input_format.format],
        quoting=csv.QUOTE_MINIMAL if source.input_format.quoting else csv.QUOTE_NONE,
        strict=True,
    )
    while True:
        line = reader.line_num + 1
        try:
            record = next(reader, None)
        except csv.Error as error:
            raise source.error(f"{error}{_hint(source)}", line) from error
        if record is None:
            return
        if record:
            yield line, record


def _hint(source: Source) -> str:
    if not source.input_format.quoting:
        return ""
    return (
        "; is a quote not closed, or not doubled within quotes? If quotes are text, set "
        "quoting = false"
    )

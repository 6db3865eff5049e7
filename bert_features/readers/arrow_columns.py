"""Examples from Arrow columns: what Parquet files and tables in memory have in common.

pyarrow is imported when it is used: text files do not need it.
"""

import functools
from collections.abc import Iterable, Iterator
from typing import Any

from bert_features.readers.fields import FieldError, Fields, choose_fields
from bert_features.readers.ids import NO_ID, Ids
from bert_features.readers.input_example import InputExample
from bert_features.readers.labels import annotated
from bert_features.readers.source import Origin

# What errors say of the last kind of a row of kinds.
_ALLOWED = {
    "integer": "string, or an integer type",
    "another": "string, a number, or true and false",
    "a list of strings": "a list of strings",
}


def choose_columns(origin: Origin, schema: Any) -> Fields:
    """The columns of the examples; `schema` is a `pyarrow.Schema`.

    Raises InputError if a column is missing, or its type is not allowed.
    """
    try:
        fields = choose_fields(origin.input_format, schema.names, "column")
    except FieldError as error:
        raise origin.error(error) from error
    texts = ("a list of strings",) if fields.are_words else ("string",)
    labels = ("a list", *texts) if fields.are_words else ("string", "integer", "another")
    others = {fields.unique_id: ("string", "integer"), fields.spans: ("a list",)}
    others |= {fields.labels: labels, fields.second_labels: labels}
    for name in fields.names():
        kind, allowed = _kind(schema.field(name).type), others.get(name, texts)
        # A column without any value has the type null: its rows are checked one by one.
        if kind not in (*allowed, "null"):
            raise origin.error(
                f"the column {name!r} is of type {schema.field(name).type}; allowed: "
                + _ALLOWED.get(allowed[-1], allowed[0])
            )
    return fields


def read_batches(
    origin: Origin, fields: Fields, batches: Iterable[Any], ids: Ids, *, first_row: int
) -> Iterator[InputExample]:
    """One example per row of some `pyarrow.RecordBatch`es; `first_row` is its number in errors.

    Raises InputError if a text, a word or an id is null, or an id is wrong.
    """
    row = first_row
    for batch in batches:
        columns = {name: batch.column(name).to_pylist() for name in dict.fromkeys(fields.names())}
        absent = [None] * batch.num_rows
        values = [NO_ID] * len(absent) if fields.unique_id is None else columns[fields.unique_id]
        seconds = absent if fields.second is None else columns[fields.second]
        make = InputExample.from_words if fields.are_words else InputExample
        rows = zip(values, columns[fields.first], seconds, strict=True)
        for place, (value, first, second) in enumerate(rows):
            _check(origin, row, fields, first, second)
            example = make(ids.of(row, value), first, second)
            try:
                yield annotated(example, fields, functools.partial(_cell, columns, place))
            except FieldError as error:
                raise origin.error(error, row) from error
            row += 1


def _cell(columns: dict[str, list[Any]], place: int, name: str) -> Any:
    return columns[name][place]


def _kind(arrow_type: Any) -> str:
    """The kind of a column's values, as errors name it."""
    from pyarrow import types

    if types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    if types.is_null(arrow_type):
        return "null"
    if types.is_integer(arrow_type):
        return "integer"
    if any(
        is_string(arrow_type)
        for is_string in (types.is_string, types.is_large_string, types.is_string_view)
    ):
        return "string"
    if types.is_list(arrow_type) or types.is_large_list(arrow_type):
        return "a list of strings" if _kind(arrow_type.value_type) == "string" else "a list"
    return "another"


def _check(origin: Origin, row: int, fields: Fields, first: Any, second: Any) -> None:
    if first is None:
        raise origin.error(f"{fields.first!r} is null; fill it, or drop the row", row)
    for name, value in ((fields.first, first), (fields.second, second)):
        if fields.are_words and value is not None and None in value:
            raise origin.error(f"{name!r} has a word that is null; drop it", row)

"""Parquet: texts in a string column, or words in a column of lists of strings."""

import contextlib
from collections.abc import Iterator
from typing import Any

from bert_features.files import is_url, local_path
from bert_features.readers import opening
from bert_features.readers.fields import FieldError, Fields, choose_fields
from bert_features.readers.ids import NO_ID, Ids
from bert_features.readers.input_example import InputExample
from bert_features.readers.source import Source

_BATCH_ROWS = 256  # decoded at a time
_OPTIONS = {
    # Without both of these a row group's columns are read as a whole.
    "buffer_size": 1 << 20,
    "pre_buffer": False,
    "page_checksum_verification": True,
}


def read_rows(source: Source, ids: Ids) -> Iterator[InputExample]:
    """One example per row; only the columns that are needed are read."""
    with _open(source) as file:
        fields = _fields(source, file.schema_arrow)
        number = 0
        for columns in _batches(source, file, fields.names()):
            absent = [None] * len(columns[fields.first])
            own = [NO_ID] * len(absent) if fields.unique_id is None else columns[fields.unique_id]
            seconds = absent if fields.second is None else columns[fields.second]
            for value, first, second in zip(own, columns[fields.first], seconds, strict=True):
                number += 1
                _check(source, number, fields, first, second)
                make = InputExample.from_words if fields.are_words else InputExample
                yield make(ids.of(number, value), first, second)


def count_rows(source: Source) -> int | None:
    """Number of rows by the file's metadata."""
    with _open(source) as file:
        rows: int = file.metadata.num_rows
        return rows


@contextlib.contextmanager
def _open(source: Source) -> Iterator[Any]:
    import pyarrow.parquet as pq

    opening.check_file(source.path)
    if opening.is_stream(source.path):
        raise source.error("Parquet cannot be read from a stream, its end comes first; pass a file")
    if opening.is_compressed(source.path):
        raise source.error("Parquet compresses its columns itself; decompress the file first")
    with contextlib.ExitStack() as stack:
        opened: Any = local_path(source.path)
        if is_url(source.path):
            opened = stack.enter_context(opening.open_seekable(source.path))
        with _reading(source):
            file = stack.enter_context(pq.ParquetFile(opened, **_OPTIONS))
        yield file


@contextlib.contextmanager
def _reading(source: Source) -> Iterator[None]:
    import pyarrow as pa

    with opening.reading(source.path):  # a driver of an object store raises errors of its own
        try:
            yield
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            raise source.error(f"cannot be read as Parquet: {error}") from error


def _batches(source: Source, file: Any, names: list[str]) -> Iterator[dict[str, list[Any]]]:
    with _reading(source):
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=names):
            yield {name: batch.column(name).to_pylist() for name in names}


def _fields(source: Source, schema: Any) -> Fields:
    try:
        fields = choose_fields(source.input_format, schema.names, "column")
    except FieldError as error:
        raise source.error(error) from error
    wanted = "a list of strings" if fields.are_words else "string"
    for name in fields.names():
        is_id = name == fields.unique_id
        kind = _kind(schema.field(name).type)
        if kind not in (("string", "integer") if is_id else (wanted,)):
            raise source.error(
                f"the column {name!r} is of type {schema.field(name).type}; allowed: "
                + ("string, or an integer type" if is_id else wanted)
            )
    return fields


def _kind(arrow_type: Any) -> str:
    """The kind of a column's values, as errors name it."""
    from pyarrow import types

    if types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
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


def _check(source: Source, number: int, fields: Fields, first: Any, second: Any) -> None:
    if first is None:
        raise source.error(f"{fields.first!r} is null", number)
    for name, value in ((fields.first, first), (fields.second, second)):
        if fields.are_words and value is not None and None in value:
            raise source.error(f"{name!r} has a word that is null", number)

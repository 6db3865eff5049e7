"""Parquet: texts in a string column, or words in a column of lists of strings."""

import contextlib
from collections.abc import Iterator
from typing import Any

from bert_features.files import is_url, local_path
from bert_features.readers import opening
from bert_features.readers.arrow_columns import choose_columns, read_batches
from bert_features.readers.contents import METADATA_KEY, features_error
from bert_features.readers.ids import Ids
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
        fields = choose_columns(source, file.schema_arrow)
        batches = _batches(source, file, fields.names())
        first_row = source.first_line
        for example in read_batches(source, fields, batches, ids, first_row=first_row):
            if source.place is not None:
                source.place.pass_line(_content(example))
            yield example


def _content(example: InputExample) -> bytes:
    """All that is read of a row, for its checksum; no two rows have the same."""
    values: tuple[object, ...]
    values = (example.unique_id, example.text_a, example.text_b, example.words_a, example.words_b)
    if example.spans is not None or example.labels is not None:
        values = (*values, example.spans, example.labels)
    return repr(values).encode()


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
        if METADATA_KEY in (file.schema_arrow.metadata or {}):
            raise features_error(source.name)
        yield file


@contextlib.contextmanager
def _reading(source: Source) -> Iterator[None]:
    import pyarrow as pa

    with opening.reading(source.path):  # a driver of an object store raises errors of its own
        try:
            yield
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            raise source.error(f"cannot be read as Parquet: {error}") from error


def _batches(source: Source, file: Any, names: list[str]) -> Iterator[Any]:
    """The rows of the part that is read; row groups without such rows are not touched."""
    groups, skipped = _row_groups(source, file.metadata)
    left = file.metadata.num_rows if source.part.records is None else source.part.records
    with _reading(source):
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, row_groups=groups, columns=names):
            rows = batch.slice(min(skipped, len(batch)), left)
            skipped = max(0, skipped - len(batch))
            left -= len(rows)
            if len(rows):
                yield rows
            if not left:
                return


def _row_groups(source: Source, metadata: Any) -> tuple[list[int], int]:
    """The row groups from the first row that is read on; how many rows come before it in them."""
    before, first = 0, source.part.line
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if before + rows > first:
            return list(range(group, metadata.num_row_groups)), first - before
        before += rows
    return [], 0

"""Readers of input files: one module per format, each streaming rows in the order of the input.

Importing this package imports none of the libraries behind the formats.
"""

import importlib
from collections.abc import Iterator
from typing import Any

from bert_features.config.input_format import FormatName, InputFormat
from bert_features.readers.files import check_file
from bert_features.readers.rows import NO_ID, Row, Source

__all__ = ["FORMATS", "NO_ID", "FormatName", "InputFormat", "Row", "Source", "count", "read"]

# Each module has `read_rows(source)` and `count_rows(source)`.
FORMATS: dict[FormatName, str] = {
    "text": "bert_features.readers.text",
    "words": "bert_features.readers.words",
    "jsonl": "bert_features.readers.jsonl",
    "csv": "bert_features.readers.table",
    "tsv": "bert_features.readers.table",
    "parquet": "bert_features.readers.parquet",
    "conll": "bert_features.readers.conll",
    "conllu": "bert_features.readers.conll",
}


def read(source: Source) -> Iterator[Row]:
    """The rows of a source, one at a time.

    Raises:
      InputError: the source cannot be read, or is not what its format says.
    """
    rows: Iterator[Row] = _module(source).read_rows(source)
    return rows


def count(source: Source) -> int | None:
    """How many rows `read` will give; None where counting would use the input up, or be dear.

    Raises:
      InputError: the source cannot be read.
    """
    check_file(source.path)
    rows: int | None = _module(source).count_rows(source)
    return rows


def _module(source: Source) -> Any:
    return importlib.import_module(FORMATS[source.input_format.format])

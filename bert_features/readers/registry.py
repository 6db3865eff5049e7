"""The table of input formats: which module reads each, and which format a path has."""

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert_features.config.input_format import FormatName, InputFormat
from bert_features.readers.ids import Ids
from bert_features.readers.input_example import InputExample
from bert_features.readers.opening import check_file, suffix_of
from bert_features.readers.source import Source

# Each module has `read_rows(source, ids)` and `count_rows(source)`. They are imported when they are
# used: some need a library that takes time to import.
MODULES: dict[FormatName, str] = {
    "text": "bert_features.readers.text",
    "words": "bert_features.readers.text",
    "jsonl": "bert_features.readers.jsonl",
    "csv": "bert_features.readers.table",
    "tsv": "bert_features.readers.table",
    "parquet": "bert_features.readers.parquet",
    "conll": "bert_features.readers.conll",
    "conllu": "bert_features.readers.conll",
}
# The suffix of a path without its .gz, .bz2, .xz or .zst; any other suffix means text.
SUFFIXES: dict[str, FormatName] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".conll": "conll",
    ".conllu": "conllu",
}


def decide_format(input_format: InputFormat, path: str | Path) -> InputFormat:
    """The input format of a path: `auto` becomes the format of the suffix.

    Raises ConfigError if a setting is set that has no meaning in this format.
    """
    name = input_format.format
    if name == "auto":
        name = SUFFIXES.get(suffix_of(path), "text")
    return input_format.decided(name)


def read(source: Source, ids: Ids | None = None) -> Iterator[InputExample]:
    """The examples of a source, one at a time, with checked ids.

    By default ids are checked within the source. Else `ids` has given those of other sources, and
    the caller finishes and closes it.

    Raises:
      InputError: the source cannot be read, is not of its format, or has wrong ids.
    """
    if ids is not None:
        ids.go_on(source)
        yield from _module(source).read_rows(source, ids)
        return
    with contextlib.closing(Ids(source, first=source.part.first)) as own:
        yield from _module(source).read_rows(source, own)
        own.finish()


def count(source: Source) -> int | None:
    """Number of examples that `read` will give; None where counting costs as much as reading.

    Raises InputError if the source cannot be read.
    """
    check_file(source.path)
    rows: int | None = _module(source).count_rows(source)
    return rows


def _module(source: Source) -> Any:
    return importlib.import_module(MODULES[source.input_format.format])

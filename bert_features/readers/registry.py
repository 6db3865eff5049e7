"""Input formats: which one a path has, and its module, which reads it."""

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert_features.config.input_format import INPUT_FORMATS, InputFormat
from bert_features.errors import InputError
from bert_features.readers.ids import Ids
from bert_features.readers.input_example import InputExample
from bert_features.readers.opening import check_file, suffix_of
from bert_features.readers.source import Source

INPUT_SUFFIXES = {suffix: name for name, row in INPUT_FORMATS.items() for suffix in row.suffixes}
# Suffixes of files whose lines are no texts, by what to do with such a file.
_NO_TEXT = {
    "extract its texts first": ".xml .html .htm .xhtml .sgml .tei .tmx .rdf .ttl .yaml .yml .toml "
    ".eml .mbox .srt .vtt .ass .ssa .ttml .warc .wet .wat .tex .bib .ipynb",
    "save its sheet as csv": ".xlsx .xls .xlsm .ods",
    "save it as plain text": ".pdf .docx .doc .odt .rtf .epub .pptx .ppt",
    "unpack it": ".zip .tar .tgz .7z .rar",
    "convert it to jsonl or Parquet": ".orc .avro .sqlite .db .pkl .pickle .npy .pt .feather",
}


def decide_format(input_format: InputFormat, path: str | Path) -> InputFormat:
    """The input format of a path: `auto` becomes the format of the suffix.

    Raises:
      ConfigError: a setting is set that has no meaning in this format.
      InputError: the suffix says that its lines are no texts, and no format is named.
    """
    name = input_format.format
    if name == "auto":
        suffix = suffix_of(path)
        name = INPUT_SUFFIXES.get(suffix, "text")
        cure = next((cure for cure, others in _NO_TEXT.items() if suffix in others.split()), None)
        if cure and name == "text":
            raise InputError(
                f"{path} is no file of texts by its suffix {suffix}; {cure}, or name its format by "
                "input_format"
            )
    return input_format.decided(name)


def read(source: Source, ids: Ids | None = None) -> Iterator[InputExample]:
    """The examples of a source, one at a time, with checked ids.

    By default ids are checked within the source. Else `ids` has given the ids of other sources, and
    the caller finishes and closes it.

    Raises:
      InputError: the source cannot be read, is not of its format, or has wrong ids.
    """
    if ids is not None:
        ids.go_on(source)
        yield from _module(source).read_rows(source, ids)
        return
    with contextlib.closing(Ids(source, first=source.part.first)) as new_ids:
        yield from _module(source).read_rows(source, new_ids)
        new_ids.finish()


def count(source: Source) -> int | None:
    """Number of examples that `read` will give.

    None where counting would use up the input or cost as much as reading it: a stream, a compressed
    file, an object store, a CoNLL file, a table in text (a quoted field may hold line ends). Raises
    InputError if the source cannot be read.
    """
    check_file(source.path)
    count_rows = getattr(_module(source), "count_rows", None)
    rows: int | None = count_rows(source) if count_rows else None
    return rows


def _module(source: Source) -> Any:
    # Imported when it is used: some need a library that takes time to import.
    name = INPUT_FORMATS[source.input_format.format].module
    return importlib.import_module(f"bert_features.readers.{name}")

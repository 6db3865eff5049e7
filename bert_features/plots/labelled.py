"""Texts of a file with their labels: csv, tsv, jsonl or Parquet, where a field holds the labels."""

import contextlib
import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.settings import shown
from bert_features.errors import ConfigError, InputError
from bert_features.files import is_url, local_path
from bert_features.readers import opening, registry
from bert_features.readers.examples import source_of
from bert_features.readers.input_example import InputExample
from bert_features.readers.source import Source


@dataclass(frozen=True)
class Labelled:
    """Texts with their labels.

    Attributes:
      name: the name of the file.
      examples: the texts.
      labels: the label of each; None for each where the file has no labels.
    """

    name: str
    examples: list[InputExample]
    labels: list[str] | None

    def counts(self) -> dict[str, int]:
        """The number of examples of each label, in the order of the labels."""
        return dict(sorted(Counter(self.labels or ()).items()))

    def repeated(self) -> int:
        """Number of different texts that stand there more than once."""
        texts = Counter((example.text_a, example.text_b) for example in self.examples)
        return sum(count > 1 for count in texts.values())


def read_labelled(path: str, settings: ExtractConfig, label_field: str | None) -> Labelled:
    """Reads the texts of a file, and their labels if a field is named.

    Raises:
      ConfigError: the kind of file has no fields.
      InputError: the file cannot be read, there is no such field, or a label is missing.
    """
    source = source_of(path, settings.input_settings(), settings.encoding_errors)
    reader = None if label_field is None else _label_reader(source)
    examples = list(registry.read(source))
    if not examples:
        raise source.error("it has no texts")
    if reader is None or label_field is None:
        return Labelled(source.name, examples, None)
    values = [_label(source, row, value) for row, value in reader(source, label_field)]
    return Labelled(source.name, examples, values)


def _label_reader(source: Source) -> Callable[[Source, str], Iterator[tuple[int, Any]]]:
    kind = source.input_format.format
    if kind not in _READERS:
        raise ConfigError.naming(
            "{label_field} is set, but {name} is read as {kind}, which has no fields; pass a file "
            "of the kind {allowed}",
            name=source.name,
            kind=kind,
            allowed=", ".join(_READERS),
        )
    if opening.is_stream(source.path):
        raise source.error("a labelled input is read twice; save it to a file first")
    return _READERS[kind]


def _label(source: Source, row: int, value: Any) -> str:
    if isinstance(value, str | bool | int | float) and str(value).strip():
        return str(value)
    raise source.error(
        f"the label is {shown(value)}; expected a text, a number, true or false", row
    )


def _of_table(source: Source, field: str) -> Iterator[tuple[int, Any]]:
    """The labels of csv and tsv: the column is read as if it held the texts."""
    fields = {"text_field": field, "text_b_field": None, "tokens_field": None, "id_field": ""}
    column = source.input_format.model_copy(update=fields)
    examples = registry.read(dataclasses.replace(source, input_format=column))
    # Rows may span lines, which a table of texts alone does not count: after the header.
    for row, example in enumerate(examples, start=2):
        yield row, example.text_a


def _of_jsonl(source: Source, field: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(source.lines(), start=source.first_line):
        if not line.isspace():
            record = json.loads(line)
            if field not in record:
                known = ", ".join(record)
                raise source.error(f"no field {field!r}; the fields are {known}", number)
            yield number, record[field]


def _of_parquet(source: Source, field: str) -> Iterator[tuple[int, Any]]:
    import pyarrow.parquet as pq

    with contextlib.ExitStack() as stack:
        opened: Any = local_path(source.path)
        if is_url(source.path):
            opened = stack.enter_context(opening.open_seekable(source.path))
        file = stack.enter_context(pq.ParquetFile(opened))
        names = file.schema_arrow.names
        if field not in names:
            raise source.error(f"no column {field!r}; the columns are {', '.join(names)}")
        yield from enumerate(file.read(columns=[field]).column(0).to_pylist(), start=1)


_READERS: dict[str, Callable[[Source, str], Iterator[tuple[int, Any]]]] = {
    "csv": _of_table,
    "tsv": _of_table,
    "jsonl": _of_jsonl,
    "parquet": _of_parquet,
}


def check_classes(labelled: Labelled, *, folds: int) -> None:
    """Refuses labels that cannot be told apart in cross-validation.

    Raises:
      InputError: there is one class only, or a class has fewer examples than there are folds.
    """
    counts = labelled.counts()
    if len(counts) < 2:
        raise InputError(
            f"{labelled.name}: all {len(labelled.examples)} examples have the label "
            f"{next(iter(counts))!r}; a classifier needs at least two classes"
        )
    small = {label: count for label, count in counts.items() if count < folds}
    if small:
        few = ", ".join(f"{label!r} ({count})" for label, count in list(small.items())[:3])
        more = f" and {len(small) - 3} more" if len(small) > 3 else ""
        least = min(counts.values())
        cure = f", or pass {{folds:{least}}}" if least > 1 else ""
        raise InputError.naming(
            "{name}: fewer than {folds_given} examples, one for each fold, have the label "
            "{few}{more}; add examples" + cure,
            name=labelled.name,
            folds_given=folds,
            few=few,
            more=more,
        )

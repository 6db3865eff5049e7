"""Texts of a file with their labels: csv, tsv, jsonl or Parquet, where a field holds the labels."""

from collections import Counter
from dataclasses import dataclass, replace

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.input_format import FORMATS
from bert_features.config.settings import shown
from bert_features.errors import ConfigError, InputError
from bert_features.readers import registry
from bert_features.readers.examples import source_of
from bert_features.readers.ids import NO_ID, Ids
from bert_features.readers.input_example import InputExample
from bert_features.readers.source import Source


@dataclass(frozen=True)
class Labelled:
    """Texts with their labels.

    Attributes:
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


class _Labels(Ids):
    """Takes labels where readers look for ids, and numbers the examples."""

    arrow_kinds = (*Ids.arrow_kinds, "another")  # numbers, true and false

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._source = source
        self.values: list[str] = []

    def of(self, line: int, value: object = NO_ID) -> int | str:
        """The number of the next example, whose label is `value`.

        Raises:
          InputError: there is no label.
        """
        if not isinstance(value, str | bool | int | float) or not str(value).strip():
            received = shown(None if value is NO_ID else value)
            raise self._source.error(
                f"the label is {received}; expected a text, a number, true or false", line
            )
        self.values.append(str(value))
        return super().of(line)


def read_labelled(path: str, settings: ExtractConfig, label_field: str | None) -> Labelled:
    """Reads the texts of a file, and their labels if a field is named; ids are not read.

    Raises:
      ConfigError: the kind of file has no fields, or the field has no name.
      InputError: the file cannot be read, there is no such field, or a label is missing.
    """
    source = source_of(path, settings.input_settings(), settings.encoding_errors)
    if label_field is not None:
        _check_field(source, label_field)
    # Figures number the texts. Labels are read where readers look for ids.
    input_format = source.input_format.model_copy(update={"id_field": label_field or ""})
    source = replace(source, input_format=input_format)
    labels = None if label_field is None else _Labels(source)
    examples = list(registry.read(source, labels))
    if not examples:
        raise source.error("it has no texts")
    return Labelled(source.name, examples, None if labels is None else labels.values)


def _check_field(source: Source, field: str) -> None:
    """Refuses a field of labels without a name, and one of a file without fields."""
    if not field:
        raise ConfigError.naming("{label_field} is ''; name the field of the labels")
    kind = source.input_format.format
    if "text_field" not in FORMATS[kind].settings:
        raise ConfigError.naming(
            "{label_field} names a field, and {name} is read as {kind}, which has none; pass a "
            "file of one of these formats: {allowed}",
            name=source.name,
            kind=kind,
            allowed=", ".join(n for n, row in FORMATS.items() if "text_field" in row.settings),
        )


def check_classes(labelled: Labelled, *, folds: int) -> None:
    """Refuses labels that cannot be told apart in cross-validation; raises InputError.

    That is a single class, or a class with fewer examples than there are folds.
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

"""Texts of a file with their labels, or with labels of their words or spans."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.poolings import Level
from bert_features.errors import ConfigError
from bert_features.readers import registry
from bert_features.readers.examples import source_of_input
from bert_features.readers.input_example import InputExample


@dataclass(frozen=True)
class Labelled:
    """Texts with their labels.

    Attributes:
      labels: the label of each; None for each where the file has no labels of texts.
    """

    name: str
    examples: list[InputExample]
    labels: list[str] | None

    @property
    def level(self) -> Level:
        """What has labels: `span`, `word` or `sequence`."""
        first = self.examples[0]
        if first.spans is not None:
            return "span"
        return "sequence" if first.words_a is None else "word"

    def labels_of_units(self) -> list[Sequence[str]]:
        """The labels of the spans or words of each text, or its own; "" is none."""
        if self.level == "span":
            return [[span.label for span in example.spans or ()] for example in self.examples]
        return [example.labels or () for example in self.examples]

    def counts(self) -> dict[str, int]:
        """The number of examples of each label, in the order of the labels."""
        return dict(sorted(Counter(self.labels or ()).items()))


def read_labelled(path: str, settings: ExtractConfig, *, units: bool = False) -> Labelled:
    """Reads the texts of a file, and the labels if the settings name a field; ids are not read.

    With `units` labels may be those of words or spans.

    Raises:
      ConfigError: the kind of file has no labels, or they are those of words.
      InputError: the file cannot be read, there is no such field, or a label is missing.
    """
    source = source_of_input(settings, path)
    # Figures number the texts.
    input_format = source.input_format.model_copy(update={"id_field": ""})
    examples = list(registry.read(replace(source, input_format=input_format)))
    if not examples:
        raise source.error("it has no texts")
    labelled = Labelled(source.name, examples, None)
    if settings.label_field is None:
        return labelled
    for number, example in enumerate(examples, start=1):
        if (example.words_a is None) != (examples[0].words_a is None):
            raise source.error(
                f"text {number} is {'a text' if example.words_a is None else 'a list of words'}, "
                "and text 1 is not; expected labels of texts alone, or of words alone"
            )
    if labelled.level == "sequence":
        return replace(labelled, labels=[label for e in examples for label in e.labels or ()])
    if not units:
        raise ConfigError(
            f"label_field is {settings.label_field!r}, a field of labels of words; allowed for "
            "this figure: labels of texts (a probe takes those of words too)"
        )
    return labelled

"""The occurrences of a word in lines of text, and their vectors at every layer.

Dimensions: `N` occurrences, `H` hidden.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bert_features.config.outputs import POOLINGS
from bert_features.errors import InputError
from bert_features.plots.heat_map import MAX_ROWS
from bert_features.plots.model import Layer, Model, output_name, output_of
from bert_features.readers.input_example import InputExample

if TYPE_CHECKING:
    import numpy as np

    from bert_features.formats.records import FeatureRecord

logger = logging.getLogger("bert_features")

_MAX_LINES_NAMED = 8
_POOLING = POOLINGS["word"][0]


@dataclass(frozen=True)
class Occurrence:
    """A word in a text.

    Attributes:
      line: the number of the text, from 1.
      text: the text.
      start: position of the word's first character.
      end: position after its last character.
      label: the label of the text; empty without labels.
    """

    line: int
    text: str
    start: int
    end: int
    label: str = ""

    def context(self, characters: int) -> str:
        """The word with a few characters on either side."""
        first, last = max(0, self.start - characters), self.end + characters
        return (
            ("…" if first else "")
            + self.text[first:last].strip()
            + ("…" if last < len(self.text) else "")
        )


def find_occurrences(
    model: Model,
    word: str,
    examples: Sequence[InputExample],
    labels: Sequence[str] | None,
    source: str,
) -> "tuple[list[Occurrence], Mapping[Layer, np.ndarray]]":
    """The occurrences of a word, those of one label together, and their vectors.

    Lines without the word are left out; a log line names them.

    Args:
      model: the model. If it is uncased, so is the comparison.
      word: the word.
      examples: the texts.
      labels: the label of each text, if they have any.
      source: the name of the texts in errors.

    Returns:
      The occurrences, and by layer their vectors, float32 [N, H].

    Raises:
      InputError: there are fewer than two, or too many for a heat map.
    """
    import numpy as np

    wanted = _folded(model, word)
    # Cheap, and before the checkpoint is loaded: most lines of a large file lack the word.
    numbers = [i for i, e in enumerate(examples) if wanted in _folded(model, e.text_a)]
    if len(numbers) > MAX_ROWS:
        raise _too_many(word, len(numbers), source)
    layers = model.layers()
    outputs = [output_of(layer, "word", _POOLING) for layer in layers]
    texts = [examples[i].text_a for i in numbers]
    found: list[tuple[Occurrence, FeatureRecord, int]] = []
    for i, record in zip(numbers, model.extract(texts, outputs) if texts else (), strict=True):
        label = "" if labels is None else labels[i]
        for place, start, end in _places(model, record, wanted):
            occurrence = Occurrence(i + 1, examples[i].text_a, start, end, label)
            found.append((occurrence, record, place))
    found.sort(key=lambda entry: (entry[0].label, entry[0].line, entry[0].start))
    occurrences = [occurrence for occurrence, _, _ in found]
    _check(word, occurrences, len(examples), source)
    names = {layer: output_name(layer, _POOLING) for layer in layers}
    return occurrences, {
        layer: np.stack([record.features[name][place] for _, record, place in found])
        for layer, name in names.items()
    }


def _places(
    model: Model, record: "FeatureRecord", wanted: str
) -> Iterator[tuple[int, int, int]]:
    """The number of each occurrence among the words, its start and its end."""
    spans = record.word_spans
    if spans is None:
        return
    for place, word in enumerate(record.words or ()):
        # A word without pieces was cut off: it has no vector.
        if _folded(model, word) == wanted and spans.num_pieces[place]:
            yield place, int(spans.starts[place]), int(spans.ends[place])


def _folded(model: Model, text: str) -> str:
    return text.casefold() if model.is_uncased else text


def _check(word: str, occurrences: Sequence[Occurrence], lines: int, source: str) -> None:
    with_word = {occurrence.line for occurrence in occurrences}
    without = [line for line in range(1, lines + 1) if line not in with_word]
    if not occurrences:
        raise InputError(
            f"the word {word!r} is not in {source}, lines 1 to {lines}; words are split as BERT "
            "does, without punctuation"
        )
    if len(occurrences) < 2:
        raise InputError(
            f"the word {word!r} occurs once in {source}, in line {occurrences[0].line}; at least "
            "two occurrences can be compared"
        )
    if len(occurrences) > MAX_ROWS:
        raise _too_many(word, len(occurrences), source)
    if without:
        named = ", ".join(map(str, without[:_MAX_LINES_NAMED]))
        more = " …" if len(without) > _MAX_LINES_NAMED else ""
        logger.warning(
            "the word %r is not in %d of %d lines of %s, which are left out: %s%s",
            *(word, len(without), lines, source, named, more),
        )


def _too_many(word: str, count: int, source: str) -> InputError:
    return InputError(
        f"the word {word!r} occurs {count} times or more in {source}; a heat map shows at most "
        f"{MAX_ROWS}, pass fewer lines"
    )

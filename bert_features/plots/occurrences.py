"""The occurrences of a word in texts, and their vectors at every layer.

Dimensions: `N` occurrences, `H` hidden.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bert_features.config.poolings import POOLINGS
from bert_features.errors import InputError
from bert_features.formats.records import FeatureRecord
from bert_features.plots.heat_map import MAX_ROWS
from bert_features.plots.model import Layer, Model, output_name, output_of
from bert_features.readers.input_example import InputExample

logger = logging.getLogger("bert_features")

_MAX_NAMED = 8
_POOLING = POOLINGS["word"][0]


@dataclass(frozen=True)
class Occurrence:
    """A word in a text, at the characters from `start` to before `end`.

    Attributes:
      number: the number of the text, from 1.
      label: the label of the text; empty without labels.
    """

    number: int
    text: str
    start: int
    end: int
    label: str = ""

    def context(self, characters: int) -> str:
        """The word with the whole words around it that this number of characters has room for."""
        text, room = self.text, characters - (self.end - self.start)
        before = min(self.start, max(room // 2, room - (len(text) - self.end)))
        first = self.start - max(0, before)
        last = min(len(text), self.end + max(0, room - before))
        blanks = [i for i, character in enumerate(text) if character.isspace()]
        if first and first - 1 not in blanks:  # in the middle of a word
            first = min((i + 1 for i in blanks if first <= i < self.start), default=first)
        if last < len(text) and last not in blanks:
            last = max((i for i in blanks if self.end <= i < last), default=last)
        left, right = "…" if first else "", "…" if last < len(text) else ""
        return f"{left}{text[first:last].strip()}{right}"


def find_occurrences(
    model: Model,
    word: str,
    examples: Sequence[InputExample],
    labels: Sequence[str] | None,
    source: str,
) -> tuple[list[Occurrence], Mapping[Layer, np.ndarray]]:
    """The occurrences of a word, grouped by label, and their vectors.

    Texts without the word, and copies of a text with the same label, are left out; log lines name
    them. If the model is uncased, so is the comparison.

    Returns:
      The occurrences, and by layer their vectors, float32 [N, H].

    Raises:
      InputError: there are fewer than two, or too many for a heat map.
    """
    wanted = _folded(model, word)
    numbers, copies = _texts_with(model, wanted, examples, labels, source)
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
    found.sort(key=lambda entry: (entry[0].label, entry[0].number, entry[0].start))
    occurrences = [occurrence for occurrence, _, _ in found]
    others = [i + 1 for i in range(len(examples)) if i not in copies]
    _check(word, occurrences, others, source)
    names = {layer: output_name(layer, _POOLING) for layer in layers}
    return occurrences, {
        layer: np.stack([record.features[name][place] for _, record, place in found])
        for layer, name in names.items()
    }


def _texts_with(
    model: Model,
    wanted: str,
    examples: Sequence[InputExample],
    labels: Sequence[str] | None,
    source: str,
) -> tuple[list[int], set[int]]:
    """The places of the texts that may have the word, and the places of their copies."""
    for number, example in enumerate(examples, start=1):
        if example.text_b is not None:
            raise InputError(
                f"text {number} of {source} is a pair; a word is compared in single texts"
            )
    # Cheap, and before the checkpoint is loaded: most texts of a large file lack the word.
    pattern = _pattern(wanted, model.settings.word_split)
    matches = [i for i, e in enumerate(examples) if pattern.search(_folded(model, e.text_a))]
    # A copy would be a pair of cosine 1, which says nothing about the word.
    first = {(examples[i].text_a, labels and labels[i]): i for i in reversed(matches)}
    copies = set(matches).difference(first.values())
    if copies:
        named = _listed([i + 1 for i in sorted(copies)])
        logger.warning("repeated texts of %s count once; left out: %s", source, named)
    return sorted(first.values()), copies


def _pattern(wanted: str, word_split: str) -> re.Pattern[str]:
    """Finds the word, but not within a longer one of ASCII letters, as `bank` in `banker`."""
    word = re.escape(wanted)
    if word_split == "whitespace":
        return re.compile(rf"(?<!\S){word}(?!\S)")
    # BERT never splits between two of these.
    inner = "[0-9A-Za-z]"
    before = f"(?<!{inner})" if re.match(inner, wanted) else ""
    after = f"(?!{inner})" if re.match(inner, wanted[-1:]) else ""
    return re.compile(before + word + after)


def _places(model: Model, record: FeatureRecord, wanted: str) -> Iterator[tuple[int, int, int]]:
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


def _check(word: str, occurrences: Sequence[Occurrence], texts: Sequence[int], source: str) -> None:
    numbers = {occurrence.number for occurrence in occurrences}
    without = [number for number in texts if number not in numbers]
    if not occurrences:
        raise InputError(
            f"the word {word!r} is not in {source}, texts 1 to {texts[-1]}; words are split as "
            "BERT does, without punctuation"
        )
    if len(occurrences) < 2:
        raise InputError(
            f"the word {word!r} occurs once in {source}, in text {occurrences[0].number}; at least "
            "two occurrences can be compared"
        )
    if len(occurrences) > MAX_ROWS:
        raise _too_many(word, len(occurrences), source)
    if without:
        logger.warning(
            "the word %r is not in %d of %d texts of %s, which are left out: %s",
            *(word, len(without), len(texts), source, _listed(without)),
        )


def _listed(numbers: Sequence[int]) -> str:
    more = " …" if len(numbers) > _MAX_NAMED else ""
    return ", ".join(map(str, numbers[:_MAX_NAMED])) + more


def _too_many(word: str, count: int, source: str) -> InputError:
    return InputError(
        f"the word {word!r} occurs {count} times or more in {source}; a heat map shows at most "
        f"{MAX_ROWS}, pass fewer texts"
    )

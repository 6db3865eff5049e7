"""One word in several contexts: how alike its vectors are at each layer, within a sense or not.

Dimensions: `N` occurrences, `P` = N (N - 1) / 2 pairs of them, `H` hidden.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.poolings import POOLINGS
from bert_features.errors import InputError
from bert_features.formats.records import FeatureRecord
from bert_features.plots.charts import Chart
from bert_features.plots.figures import PANEL_TITLE, finish, layer_axis, look
from bert_features.plots.heat_map import MAX_ROWS, HeatMap
from bert_features.plots.labelled import Labelled
from bert_features.plots.labels import clip
from bert_features.plots.model import Layer, Model, choose_layer, layer_place

logger = logging.getLogger("bert_features")

_CONTEXT = 32  # characters of a word and the words around it
_MAX_LABEL = 42
# Pairs of which each gets a line of its own.
_MAX_LINES = 300
_MAX_NAMED = 8
_POINT = ("mean", "low", "high")
SAME, OTHER, ALL = "same label", "other label", "all pairs"


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


@dataclass(frozen=True)
class WordSimilarity(Chart):
    """The cosine of each pair of occurrences of a word at each layer.

    Attributes:
      occurrences: N occurrences, grouped by label.
      cosines: by layer, float32 [N, N].
    """

    model: str
    word: str
    occurrences: Sequence[Occurrence]
    cosines: Mapping[Layer, np.ndarray]
    layer: Layer

    def describe(self) -> tuple[str, str]:
        """What was drawn, in one line; and the title of a page."""
        texts = len({occurrence.number for occurrence in self.occurrences})
        return (
            f"{len(self.occurrences)} occurrences of {self.word!r} in {texts} texts",
            f"Cosine of the occurrences of “{self.word}”: {self.model}",
        )

    def groups(self) -> dict[str, np.ndarray]:
        """The pairs of the same label and of different ones, or all pairs: each [K + 1 layers, P].

        Groups without a pair are left out.
        """
        labels = np.array([occurrence.label for occurrence in self.occurrences])
        first, second = np.triu_indices(len(labels), k=1)
        values = np.stack([cosines[first, second] for cosines in self.cosines.values()])
        if len(set(labels)) < 2:
            return {ALL: values}
        same = labels[first] == labels[second]
        groups = {SAME: values[:, same], OTHER: values[:, ~same]}
        return {name: group for name, group in groups.items() if group.size}

    def data(self) -> dict[str, list[dict[str, Any]]]:
        """The cells of the heat map, the mean of each group at each layer, single pairs."""
        means, pairs = [], []
        places = [layer_place(layer) for layer in self.cosines]
        for name, values in self.groups().items():
            label = f"{name} (mean of {values.shape[1]:,} pairs)"
            # The range that holds 80 % of the pairs.
            low, high = np.quantile(values, (0.1, 0.9), axis=1)
            rows = zip(values.mean(1), low, high, strict=True)
            for place, (mean, *ends) in zip(places, rows, strict=True):
                point = dict(zip(_POINT, map(_rounded, (mean, *ends)), strict=True))
                means.append({"place": place, "group": label, **point})
            if self._has_lines:
                pairs += [
                    {"place": place, "group": label, "pair": pair, "cosine": _rounded(cosine)}
                    for place, row in zip(places, values, strict=True)
                    for pair, cosine in enumerate(row)
                ]
        return {"cells": self._heat_map.data(), "means": means, "pairs": pairs}

    @property
    def _has_lines(self) -> bool:
        """Whether each pair gets a line of its own."""
        return all(values.shape[1] <= _MAX_LINES for values in self.groups().values())

    @property
    def _heat_map(self) -> HeatMap:
        rows = [
            clip(f"{i}  {f'{o.label}: ' if o.label else ''}{o.context(_CONTEXT)}", _MAX_LABEL)
            for i, o in enumerate(self.occurrences, start=1)
        ]
        columns = [str(i + 1) for i in range(len(rows))]
        hints = [f"text {o.number}: {o.text}" for o in self.occurrences]
        labels = [occurrence.label for occurrence in self.occurrences]
        borders = [i for i in range(1, len(labels)) if labels[i] != labels[i - 1]]
        return HeatMap(rows, columns, hints, hints, self.cosines, self.layer, borders)

    def draw(self, *, interactive: bool) -> alt.TopLevelMixin:
        """Lines over the layers, and the heat map of one layer beside them."""
        heat_map = self._heat_map
        heading = alt.Title(alt.expr("'each pair, ' + layers[layer]"), **PANEL_TITLE)
        panels = alt.hconcat(
            self._lines(heat_map.size()[1]), heat_map.draw(title=heading), spacing=40
        )
        panels = panels.resolve_scale(color="independent", shape="independent")
        title = f"Cosine of the occurrences of “{clip(self.word, 30)}” by layer"
        return finish(panels, title, self.model, *heat_map.parameters())

    def _lines(self, height: int) -> Any:
        """The mean of each group by layer; behind it single pairs, or the range of most."""
        means = alt.Chart(alt.NamedData("means")).transform_calculate(
            layer="layers[datum.place + 1]"
        )
        colors, shapes = look(list(dict.fromkeys(row["group"] for row in self.data()["means"])))
        legend = alt.Legend(orient="top", direction="vertical", offset=4)
        color = alt.Color("group:N", scale=colors, legend=legend, title=None)
        places = [layer_place(layer) for layer in self.cosines]
        axis = layer_axis(places, "emb", "layer (emb: embeddings)")
        x = alt.X("place:Q", axis=axis, scale=alt.Scale(padding=12, nice=False))
        scale = alt.Scale(zero=False)
        if self._has_lines:
            around, text = alt.Chart(alt.NamedData("pairs")), "single pairs"
            behind = around.mark_line(opacity=0.15, strokeWidth=0.8).encode(
                x, alt.Y("cosine:Q", scale=scale), color, alt.Detail("pair:N")
            )
        else:
            text = "80 % of the pairs"
            behind = means.mark_area(opacity=0.15).encode(
                x, alt.Y("low:Q", scale=scale), alt.Y2("high:Q"), color
            )
        line = means.mark_line(strokeWidth=2).encode(
            x, alt.Y("mean:Q", title="cosine", axis=alt.Axis(tickCount=8)), color
        )
        values = [alt.Tooltip(f"{name}:Q", format=".3f") for name in _POINT]
        hint = [alt.Tooltip("group:N"), alt.Tooltip("layer:N"), *values]
        points = means.mark_point(size=60, filled=True, opacity=1).encode(
            x,
            alt.Y("mean:Q"),
            color,
            alt.Shape("group:N", scale=shapes, legend=legend, title=None),
            tooltip=hint,
        )
        heading = alt.Title(f"mean and {text}, by layer", **PANEL_TITLE)
        return alt.layer(behind, line, points).properties(
            width=360, height=max(height, 300), title=heading
        )


def _rounded(value: Any) -> float:
    return round(float(value), 4)


def compare_word(
    settings: ExtractConfig, word: str, lines: Labelled, layer: Layer | None = None
) -> WordSimilarity:
    """Computes the cosines of a word's occurrences at every layer.

    Raises:
      ConfigError: the layer is out of range.
      InputError: there are fewer than two occurrences, or too many for a heat map.
    """
    from bert_features.extraction.similarity import compute_similarity

    model = Model.find(settings)
    shown = choose_layer(model, layer)
    occurrences, vectors = _find_occurrences(model, word, lines)
    cosines = {layer: compute_similarity(rows) for layer, rows in vectors.items()}
    return WordSimilarity(model.title, word, occurrences, cosines, shown)


def _find_occurrences(
    model: Model, word: str, lines: Labelled
) -> tuple[list[Occurrence], Mapping[Layer, np.ndarray]]:
    """The occurrences of a word, grouped by label, and by layer their vectors, float32 [N, H].

    Texts without the word, and copies of a text with the same label, are left out; log lines name
    them. If the model is uncased, so is the comparison.
    """
    folded = _folded(model, word)
    numbers, copies = _texts_with(model, folded, lines)
    if len(numbers) > MAX_ROWS:
        raise _too_many(word, len(numbers), lines.name)
    layers = model.layers()
    texts = [lines.examples[i].text_a for i in numbers]
    pairs = [(layer, POOLINGS["word"][0]) for layer in layers]
    records = model.vectors(texts, "word", pairs) if texts else ()
    entries: list[tuple[Occurrence, np.ndarray]] = []
    for i, text, (record, vectors) in zip(numbers, texts, records, strict=True):
        label = "" if lines.labels is None else lines.labels[i]
        for place, start, end in _places(model, record, folded):
            values = np.stack([vectors[pair][place] for pair in pairs])
            entries.append((Occurrence(i + 1, text, start, end, label), values))
    entries.sort(key=lambda entry: (entry[0].label, entry[0].number, entry[0].start))
    occurrences = [occurrence for occurrence, _ in entries]
    others = [i + 1 for i in range(len(lines.examples)) if i not in copies]
    _check(word, occurrences, others, lines.name)
    by_layer = np.stack([values for _, values in entries], axis=1)
    return occurrences, dict(zip(layers, by_layer, strict=True))


def _texts_with(model: Model, folded: str, lines: Labelled) -> tuple[list[int], set[int]]:
    """The places of the texts that may have the word, and the places of their copies."""
    examples, labels = lines.examples, lines.labels
    for number, example in enumerate(examples, start=1):
        if example.text_b is not None:
            raise InputError(
                f"text {number} of {lines.name} is a pair; a word is compared in single texts"
            )
    # Cheap, and before the checkpoint is loaded: most texts of a large file lack the word.
    pattern = _pattern(folded, model.settings.word_split)
    matches = [i for i, e in enumerate(examples) if pattern.search(_folded(model, e.text_a))]
    # A copy would be a pair of cosine 1, which says nothing about the word.
    first = {(examples[i].text_a, labels and labels[i]): i for i in reversed(matches)}
    copies = set(matches).difference(first.values())
    if copies:
        named = _listed([i + 1 for i in sorted(copies)])
        logger.warning("repeated texts of %s count once; left out: %s", lines.name, named)
    return sorted(first.values()), copies


def _pattern(folded: str, word_split: str) -> re.Pattern[str]:
    """Finds the word, but not within a longer one of ASCII letters, as `bank` in `banker`."""
    word = re.escape(folded)
    if word_split == "whitespace":
        return re.compile(rf"(?<!\S){word}(?!\S)")
    # BERT never splits between two of these.
    inner = "[0-9A-Za-z]"
    before = f"(?<!{inner})" if re.match(inner, folded) else ""
    after = f"(?!{inner})" if re.match(inner, folded[-1:]) else ""
    return re.compile(before + word + after)


def _places(model: Model, record: FeatureRecord, folded: str) -> Iterator[tuple[int, int, int]]:
    """The number of each occurrence among the words, its start and its end."""
    spans = record.word_spans
    if spans is None:
        return
    for place, word in enumerate(record.words or ()):
        # A word without pieces was cut off: it has no vector.
        if _folded(model, word) == folded and spans.num_pieces[place]:
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

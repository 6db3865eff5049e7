"""What a probe learns from: labelled texts, words or spans, and their vectors at each layer.

Dimensions: `N` examples, `D` width of a vector.
"""

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert_features.checkpoints.description import describe_checkpoint, describe_vocabulary
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.layers import EMBEDDINGS, resolve_layers
from bert_features.config.poolings import Level
from bert_features.config.recipe import RECIPE, Recipe
from bert_features.config.settings import shown
from bert_features.errors import ConfigError, InputError, OutputError
from bert_features.formats import SUFFIXES, read_features
from bert_features.formats.reader import FeatureFile
from bert_features.formats.records import Feature, FeatureRecord
from bert_features.machine.quiet_tensorflow import import_tensorflow
from bert_features.machine.versions import find_versions
from bert_features.plots.labelled import Labelled, read_labelled
from bert_features.plots.model import Layer, Model, Report, title_of
from bert_features.plots.pooled import check_memory, combinations, without_noise
from bert_features.probe.classifier import SEED
from bert_features.readers.registry import INPUT_SUFFIXES

logger = logging.getLogger("bert_features")

# By default, the simplest first.
POOLINGS = {"sequence": ("mean", "cls", "max"), "word": ("mean",), "span": ("mean",)}
# What the examples and the test have alike, as an error names it.
_KINDS_OF = {
    "level": "labels of",
    "pairs": "layers and poolings",
    "title": "models",
    "width": "widths",
}
_NOUNS = {"sequence": "texts", "word": "words", "span": "spans"}
# The features of one layer, by its state and the pooling.
_ByLayer = dict[tuple[int, str], list[Feature]]


@dataclass(frozen=True)
class Examples:
    """Labelled texts, words or spans.

    Attributes:
      level: `sequence`, `word` or `span`.
      classes: the labels that occur, in their order.
      labels: int64 [N], the place of the label of each among the classes.
      types: int64 [N], the same number for equal words, spans or texts.
      texts: int64 [N], the same number for examples of equal texts.
      is_test: bool [N], whether it comes from a file of test examples.
      vectors: by layer and pooling, float32 [N, D].
      about: how many there are, and of how many, for a reader.
    """

    level: str
    classes: tuple[str, ...]
    labels: np.ndarray
    types: np.ndarray
    texts: np.ndarray
    is_test: np.ndarray
    vectors: Mapping[tuple[Layer, str], np.ndarray]
    about: str


class _Text(NamedTuple):
    """The words or spans of a text, or itself: what they are, and their labels; "" is none."""

    key: object
    types: Sequence[object]
    labels: Sequence[str]
    vectors: Mapping[tuple[Layer, str], np.ndarray]


class Origin(ABC):
    """Where labelled texts, words or spans come from.

    Attributes:
      name: of the file.
      title: of the model.
      level: `sequence`, `word` or `span`.
      pairs: the layers and poolings, by layer from the lowest.
      width: D.
      field: the field of the labels, or None.
      facts: what a report says of them: the recipe of their vectors, as JSON holds it.
    """

    name: str
    title: str
    field: str | None
    facts: Mapping[str, Any]
    level: Level
    pairs: Sequence[tuple[Layer, str]]
    width: int

    @abstractmethod
    def counts(self) -> list[int]:
        """How many of each text have a label."""

    @abstractmethod
    def read(self, chosen: Sequence[int], report: Report) -> Iterator[_Text]:
        """Some texts, by their numbers, which ascend."""


class Texts(Origin):
    """Labelled texts, or texts with labelled words or spans, which a model reads in one pass."""

    def __init__(
        self,
        model: Model,
        labelled: Labelled,
        settings: ExtractConfig,
        layers: Sequence[Layer] | None,
        poolings: Sequence[str] | None,
    ) -> None:
        self.name, self.title, self.level = labelled.name, model.title, labelled.level
        self.pairs = combinations(
            model, model.layers(layers), poolings or POOLINGS[self.level], self.level
        )
        self.width = model.checkpoint.config.hidden_size
        checkpoint = model.checkpoint
        if checkpoint.kind != "safetensors":  # whose weights TensorFlow reads
            import_tensorflow(settings.runtime, settings.device)
        recipe = Recipe.of_run(
            settings,
            checkpoint=describe_checkpoint(checkpoint, ()),
            vocabulary=describe_vocabulary(checkpoint),
            versions=find_versions(settings.runtime),
        )
        self.facts = {RECIPE: recipe.to_json()}
        self.field = settings.label_field or settings.span_field
        self._model, self._labelled = model, labelled

    def counts(self) -> list[int]:
        """See `Origin`."""
        return [sum(map(bool, labels)) for labels in self._labelled.labels_of_units()]

    def read(self, chosen: Sequence[int], report: Report) -> Iterator[_Text]:
        """See `Origin`."""
        examples = [self._labelled.examples[i] for i in chosen]
        records = self._model.vectors(examples, self.level, self.pairs, report)
        for example, (record, vectors) in zip(examples, records, strict=True):
            key = example.text_a, example.text_b
            if self.level == "sequence":
                stacked = {pair: values[None] for pair, values in vectors.items()}
                yield _Text(key, [key], example.labels or (), stacked)
            else:
                labels = example.labels if self.level == "word" else None
                yield _Text(key, *_units(record, self.level, labels), vectors)


class Stored(Origin):
    """The labelled words or spans of a features file, and the layers that it has of them."""

    def __init__(
        self, file: FeatureFile, layers: Sequence[Layer] | None, poolings: Sequence[str] | None
    ) -> None:
        recipe = file.recipe
        count = recipe.checkpoint["bert_config"]["num_hidden_layers"]
        self.name, self.title = str(file.path), title_of(recipe.checkpoint["name"], count)
        self._file = file
        levels: tuple[Level, ...] = ("word", "span")
        with_labels = [level for level in levels if self._has_labels(level)]
        if not with_labels:
            raise InputError(
                f"{self.name} has no labels of words or spans; extract it from a file that has "
                "some, with --label-field (words) or --span-field (spans), or pass that file here"
            )
        self.level = with_labels[0]
        stored = self._stored(count)
        states = resolve_layers(layers, count) if layers else {state for state, _ in stored}
        names = poolings or tuple(dict.fromkeys(pooling for _, pooling in stored))
        pairs = [(state, pooling) for state in sorted(states) for pooling in names]
        features = {pair: self._only(stored, *pair) for pair in pairs or [(count, "mean")]}
        self._features = {(_layer(s), pooling): f.name for (s, pooling), f in features.items()}
        self.pairs, self.width = list(self._features), next(iter(features.values())).width
        self.field = recipe.settings.get("label_field" if self.level == "word" else "span_field")
        self.facts = {RECIPE: replace(recipe, canaries={}).to_json()}

    def _stored(self, count: int) -> _ByLayer:
        """The features of its level, of one of `count` layers each."""
        by_layer: _ByLayer = {}
        for feature in self._file.features:
            if (feature.level, feature.kind, len(feature.layers)) == (self.level, "layers", 1):
                (state,) = resolve_layers(feature.layers, count)
                by_layer.setdefault((state, feature.pooling), []).append(feature)
        return by_layer

    def _only(self, stored: _ByLayer, state: int, pooling: str) -> Feature:
        """The feature of a layer and a pooling; raises InputError if there is none, or several."""
        features = stored.get((state, pooling), [])
        if len(features) == 1:
            return features[0]
        has = ", ".join(f"{_layer(state)} {pooling}" for state, pooling in stored) or "none"
        raise InputError(
            f"{self.name} has {len(features)} {self.level} features of layer {_layer(state)} with "
            f"pooling {pooling}; expected one. It has: {has}. Pass these, or extract each layer "
            "once, by --layers and without --combine"
        )

    def _has_labels(self, level: str) -> bool:
        if not any(feature.level == level for feature in self._file.features):
            return False
        return any(any(_units(record, level)[1]) for record in self._file)

    def counts(self) -> list[int]:
        """See `Origin`."""
        return [sum(map(bool, _units(record, self.level)[1])) for record in self._file]

    def read(self, chosen: Sequence[int], report: Report) -> Iterator[_Text]:
        """See `Origin`."""
        numbers = set(chosen)
        for i, record in enumerate(self._file):
            if i in numbers:
                key = record.words if self.level == "word" else record.unique_id
                vectors = {pair: record.features[name] for pair, name in self._features.items()}
                yield _Text(key, *_units(record, self.level), vectors)
            report("texts", i + 1, len(self._file))


def _layer(state: int) -> Layer:
    return EMBEDDINGS if state == 0 else state - 1


def _units(
    record: FeatureRecord, level: str, labels: Sequence[str] | None = None
) -> tuple[Sequence[str], Sequence[str]]:
    """The words or spans of a record, and their labels; "" without one, or without a vector."""
    if level == "word":
        labels = labels or record.word_labels or ()
        pieces = [] if record.word_spans is None else record.word_spans.num_pieces.tolist()
    else:
        units = (record.units or {})["span"]
        labels, pieces = units["span_labels"], units["span_num_pieces"]
    return record.unit_names(level), [
        label if count else "" for label, count in zip(labels, pieces, strict=bool(labels))
    ]


def find_origin(
    path: str,
    settings: ExtractConfig,
    layers: Sequence[Layer] | None = None,
    poolings: Sequence[str] | None = None,
) -> Origin:
    """The labelled examples of a file: of a features file, or of texts that a model reads.

    Raises:
      CheckpointError: the checkpoint is not usable.
      ConfigError: a setting does not fit the file, or a layer or a pooling is not allowed.
      InputError: the file cannot be read, or has no labels.
    """
    file = _features_file(path)
    if file is not None:
        for name in ("label_field", "span_field"):
            if (field := getattr(settings, name)) is not None:
                raise ConfigError(
                    f"{name} is {field!r}, but {path} is a features file, which has its labels in "
                    "it; leave it out"
                )
        return Stored(file, layers, poolings)
    if settings.label_field is None and settings.span_field is None:
        raise ConfigError(
            f"{path} is read as a file of texts, whose labels no setting names; pass label_field, "
            "or span_field for labels of spans"
        )
    labelled = read_labelled(path, settings, units=True)
    return Texts(Model.find(settings), labelled, settings, layers, poolings)


def _features_file(path: str) -> FeatureFile | None:
    """The features file at a path; None for another file, which then is one of texts."""
    if path == "-":
        return None
    suffix = Path(path).suffix.lower()
    try:
        return read_features(path, floats=True)
    except OutputError:
        if suffix in SUFFIXES and suffix not in INPUT_SUFFIXES:
            raise
        return None


def gather(
    origin: Origin, test: Origin | None, *, most: int, folds: int, report: Report
) -> Examples:
    """The labelled examples of a file, and of a file of test examples, with their vectors.

    At most `most` of each file; of larger ones whole texts are drawn, always the same.

    Raises:
      InputError: there is one class only, there are fewer texts than folds, the vectors would take
        too much memory, or the two files have other levels, layers, poolings or models.
    """
    if test is not None:
        _check_alike(origin, test)
    origins = [each for each in (origin, test) if each is not None]
    texts: list[_Text] = []
    is_test: list[bool] = []
    about = []
    for number, each in enumerate(origins):
        counts = np.array(each.counts())
        if not counts.any():
            raise InputError(
                f"{each.name}: none of the {_NOUNS[each.level]} has a label (field "
                f"{each.field!r}); name a field with labels, or pass another file"
            )
        chosen = _draw(counts, most)
        check_memory(each.name, int(counts[chosen].sum()) * len(origins), each.pairs, each.width)
        drawn = list(each.read(chosen.tolist(), report))
        texts += drawn
        is_test += [number == 1] * len(drawn)
        kept = sum(bool(label) for text in drawn for label in text.labels)
        about.append(_about(each.level, (kept, counts.sum()), (len(chosen), len(counts))))
    examples = _join(texts, is_test, origin, " train, ".join(about) + " test" * (len(origins) - 1))
    _check(origin.name, examples, folds)
    return examples


def _check_alike(origin: Origin, test: Origin) -> None:
    """Refuses test examples that a classifier of the others cannot take."""
    for name, kind in _KINDS_OF.items():
        one, other = getattr(origin, name), getattr(test, name)
        if one != other:
            raise InputError(
                f"{origin.name} and {test.name}, the test, differ: {kind} {shown(one)} "
                f"and {shown(other)}; pass files of the same kind and model"
            )


def _draw(counts: np.ndarray, most: int) -> np.ndarray:
    """The numbers of the texts to take, ascending: whole texts at random, while there is room."""
    order = np.random.default_rng(SEED).permutation(np.flatnonzero(counts))
    room = np.cumsum(counts[order]) <= most
    return np.sort(order[room] if room.any() else order[:1])


def _about(level: str, examples: tuple[int, int], texts: tuple[int, int]) -> str:
    kept, within = (
        f"{some:,}" + (f" of {every:,}" if some < every else "")
        for some, every in (examples, texts)
    )
    return f"{kept} {_NOUNS[level]}" + ("" if level == "sequence" else f" in {within} texts")


def _join(texts: Sequence[_Text], is_test: Sequence[bool], origin: Origin, about: str) -> Examples:
    rows = [[bool(label) for label in text.labels] for text in texts]
    labels = [label for text in texts for label in text.labels if label]
    types = [t for text, row in zip(texts, rows, strict=True) for t in compress(text.types, row)]
    sizes = [sum(row) for row in rows]
    classes = sorted(set(labels))
    return Examples(
        origin.level,
        tuple(classes),
        _numbers(labels, classes),
        _numbers(types),
        np.repeat(_numbers([text.key for text in texts]), sizes),
        np.repeat(np.array(is_test, bool), sizes),
        {
            pair: without_noise(
                np.concatenate([t.vectors[pair][row] for t, row in zip(texts, rows, strict=True)])
            )
            for pair in origin.pairs
        },
        about,
    )


def _numbers(values: Sequence[object], names: Iterable[object] | None = None) -> np.ndarray:
    """int64 [N], the place of each value among the names, by default in the order of the values."""
    places = {name: i for i, name in enumerate(dict.fromkeys(values if names is None else names))}
    return np.array([places[value] for value in values], np.int64)


def _check(name: str, examples: Examples, folds: int) -> None:
    """Refuses labels that cannot be told apart on folds; warns of those that are rare."""
    counts = Counter(examples.classes[i] for i in examples.labels.tolist())
    scored = examples.texts[examples.is_test] if examples.is_test.any() else examples.texts
    noun, texts = _NOUNS[examples.level], len(np.unique(scored))
    if len(counts) < 2:
        label = next(iter(counts), "")
        raise InputError(
            f"{name}: all {len(examples.labels)} {noun} have the label {label!r}; a classifier "
            "needs at least two labels"
        )
    if min(texts, max(counts.values())) < folds:
        raise InputError(
            f"{name}: {texts} different texts, and at most {max(counts.values())} {noun} with the "
            f"same label; {folds} folds need as many of both: add texts, or pass fewer folds"
        )
    rare = [label for label, count in sorted(counts.items()) if count < folds]
    if rare:
        logger.warning(
            "%s: these labels have fewer than %d %s, one for each fold: %s; macro F1 gives them as "
            "much weight as others",
            *(name, folds, noun, ", ".join(rare[:5]) + (" …" if len(rare) > 5 else "")),
        )

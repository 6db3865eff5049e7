"""Canaries: the vectors of fixed texts by the outputs of a run, which a file keeps in its metadata.

Whoever resumes the run, searches the file or joins it with another makes them again, and so
notices a library, a device or a file of weights that gives other numbers.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bert_features.config.output_specs import as_floats, has_spans
from bert_features.config.recipe import Canaries
from bert_features.extraction.counts import Counts
from bert_features.formats.canaries import choose_canaries
from bert_features.formats.records import Feature, FeatureBatch, Rows, splits_of
from bert_features.readers.input_example import InputExample, Span

# One is short, one longer than most, one in other scripts, one with accents, one repeats a word,
# one is empty, one is a pair. They never change: the vectors in old files are of these.
_TEXTS: tuple[tuple[str, str | None], ...] = (
    ("The cat sat on the mat.", None),
    ("Yes", None),
    (
        "In the spring of 1847 the ship left the harbour with forty-two sailors, a cargo of tea "
        "and a letter that nobody was to open before the Cape; when it came back, years later, "
        "the letter was still sealed, the tea was gone, and of the sailors only the youngest could "
        "say (though he would not) what had happened at 34°S.",
        None,
    ),
    ("Größe 東京 Москва हिन्दी عربي Ελλάδα 🙂", None),
    ("L'École NORMALE supérieure, naïve façade", None),
    ("buffalo " * 12, None),
    ("", None),
    ("Who wrote it?", "A sailor wrote it, in 1850."),
)


def compute_canaries(extractor: Any, *, few: bool = False) -> Canaries:
    """The canaries of the outputs of a `Pipeline`; `few` as in its `compute`."""
    maker, preparation = copy.copy(extractor), copy.copy(extractor.preparation)
    if preparation.long_text.policy == "error":  # the same for texts that fit
        preparation.long_text = replace(preparation.long_text, policy="truncate")
    maker.preparation = preparation
    # Spans of whole texts, whatever the rule: the vector of a span does not depend on it.
    with_spans = has_spans(extractor.outputs)
    examples = [_example(i, texts, with_spans) for i, texts in enumerate(_TEXTS)]
    batch = maker.compute(examples, Counts(), few=few)
    return choose_canaries(batch, as_floats(extractor.outputs))


def canaries_of_export(
    compute: Callable[[list[str]], Any], features: tuple[Feature, ...]
) -> Canaries:
    """The canaries of an export of texts, which takes no pairs: of the single texts.

    `compute` gives the outputs of texts by name, [N, D] or [N, S, D], and `input_mask` [N, S].
    """
    singles = [text for text, second in _TEXTS if second is None]
    columns = compute(singles)
    mask = columns["input_mask"] > 0
    whole = {f.name: columns[f.name] for f in features if f.is_sequence}
    tokens = {f.name: columns[f.name][mask] for f in features if not f.is_sequence}
    rows = Rows(splits_of(mask.sum(axis=1)), {}, tokens)
    return choose_canaries(FeatureBatch(np.arange(len(mask)), whole, {"token": rows}), features)


def _example(number: int, texts: tuple[str, str | None], with_spans: bool) -> InputExample:
    example = InputExample(number, *texts)
    return replace(example, spans=(Span(0, len(texts[0])),)) if with_spans else example

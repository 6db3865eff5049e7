"""Bounds of the size of an answer, from the texts of its request."""

from collections.abc import Mapping, Sequence

from bert_features.batches.words import WordSplit
from bert_features.config.output_specs import OutputSpec
from bert_features.config.outputs import ITEM_SIZES
from bert_features.readers.input_example import InputExample


def max_words(examples: Sequence[InputExample], tokens: Sequence[int], split: WordSplit) -> int:
    """Upper bound of the words of some texts.

    Words have vectors even if they have no tokens, or if their tokens were cut off.

    Args:
      examples: the texts.
      tokens: the tokens of each, before anything is cut off.
      split: how texts are split into words.
    """
    return sum(
        max(count, _known_words(example, split))
        for example, count in zip(examples, tokens, strict=True)
    )


def _known_words(example: InputExample, split: WordSplit) -> int:
    """The words that are known before tokens are."""
    if example.words_a is not None:
        return len(example.words_a)
    if split == "bert":
        return 0
    return len(example.text_a.split()) + len((example.text_b or "").split())


def answer_bytes(features: Sequence[OutputSpec], vectors: Mapping[str, int]) -> int:
    """Upper bound of the bytes of the vectors of an answer.

    Args:
      features: the features that were asked for.
      vectors: the number of vectors of a feature of each level.
    """
    return sum(
        feature.width * ITEM_SIZES[feature.dtype] * vectors[feature.level] for feature in features
    )

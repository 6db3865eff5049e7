"""Online code length: how few bits the labels take for who has the vectors.

Voita and Titov, "Information-Theoretic Probing with Minimum Description Length" (2020). The first
examples train a classifier whose probabilities are a code for those that follow, and so on.

Dimensions: `N` examples, `D` width of a vector, `K` classes, `P` portions.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bert_features.probe.classifier import SEED, probabilities, with_one_of_each

# Where portions end, in percent of the examples, as in the paper.
PORTIONS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.25, 12.5, 25, 50, 100)


@dataclass(frozen=True)
class Code:
    """The labels in bits, portion by portion.

    Attributes:
      ends: int64 [P], how many examples are coded after each portion.
      bits: float64 [P], the bits of each portion. The first has log2(K) for each example.
      frequencies: float64 [P], the same if only the labels that came before are known.
      converged: whether each classifier did.
    """

    ends: np.ndarray
    bits: np.ndarray
    frequencies: np.ndarray
    classes: int
    converged: bool = True

    @property
    def compression(self) -> float:
        """How many times shorter the code is than log2(K) bits an example."""
        return float(self._uniform / self.bits.sum())

    @property
    def compression_by_frequencies(self) -> float:
        """The same for the code that only knows labels."""
        return float(self._uniform / self.frequencies.sum())

    @property
    def _uniform(self) -> float:
        return float(self.ends[-1] * np.log2(self.classes))


def portions_of(texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An order of examples in which texts come at random, and where portions end, at ends of texts.

    Args:
      texts: int64 [N], the number of the text of each example.

    Returns:
      int64 [N], the places of the examples in this order; and int64 [P], each end once.
    """
    _, texts = np.unique(texts, return_inverse=True)
    ranks = np.random.default_rng(SEED).permutation(texts.max() + 1)[texts]
    order = np.argsort(ranks, kind="stable")
    text_ends = np.append(np.flatnonzero(np.diff(ranks[order])) + 1, len(order))
    least = np.ceil(np.array(PORTIONS) / 100 * len(order))
    return order, np.unique(text_ends[np.searchsorted(text_ends, least)])


def online_code(
    vectors: np.ndarray, labels: np.ndarray, classes: int, order: np.ndarray, ends: np.ndarray
) -> Code:
    """The code of labels, int64 [N], for who has their vectors, float32 [N, D].

    `order` and `ends` are those of `portions_of`.
    """
    first = ends[0] * np.log2(classes)
    bits, frequencies, converged = [first], [first], True
    for begin, end in pairwise(ends.tolist()):
        known, coming = order[:begin], order[begin:end]
        chances, ok = probabilities(vectors, labels, classes, known, coming)
        shares = np.bincount(labels[known], minlength=classes) / begin
        alone = np.tile(with_one_of_each(shares[None], begin), (end - begin, 1))
        for code, probability in ((bits, chances), (frequencies, alone)):
            code.append(-np.log2(probability[np.arange(end - begin), labels[coming]]).sum())
        converged &= ok
    return Code(ends, np.array(bits), np.array(frequencies), classes, converged)

"""How the rows of each kind of output are put together, where it is not as its level says.

Shape legend: `N` examples of a pool, `R` their rows, `T` tokens that the rows own, `W` words.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bert_features.batches.input_fn import Pool
from bert_features.config.features import OutputSpec
from bert_features.config.packing import TARGET_IDS


class Assembly(NamedTuple):
    """How the rows of a kind are put together.

    Attributes:
      level: the level whose rows the device computes, if it is not the level of the output.
      finish: makes the values of the output from values of that level: called with the pool,
        the tokens that its rows own, int64 [T], and the values [T, D].
      counted: which values of the output there must be, bool [W]; None for all. Others are NaN.
    """

    level: str = ""
    finish: Callable[[Pool, np.ndarray, np.ndarray], np.ndarray] | None = None
    counted: Callable[[Pool], np.ndarray | None] = lambda pool: None


def assembly_of(output: OutputSpec) -> Assembly:
    """How an output is put together."""
    return _KINDS.get((output.kind, output.level), _AS_ITS_LEVEL)


def _surprisals(pool: Pool, tokens: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """float32 [W, 1] from the scores of tokens, [T, 1]: the negated sum over a word's pieces.

    A word that truncation cut, or that has no pieces, has no surprisal: NaN.
    """
    table = pool.words
    assert table is not None  # the input_fn finds words for such outputs
    words = np.repeat(np.arange(len(table.num_pieces)), table.num_pieces)
    is_piece = pool.columns[TARGET_IDS][tokens] >= 0
    sums = np.bincount(words, -scores[is_piece, 0], minlength=len(table.num_pieces))
    sums[~table.whole] = np.nan
    return sums.astype(np.float32)[:, None]


_AS_ITS_LEVEL = Assembly()
_KINDS = {
    ("score", "word"): Assembly(
        "token", _surprisals, lambda pool: None if pool.words is None else pool.words.whole
    ),
}

"""Layout: which pieces of each example stand in which row. NumPy; no loop but over windows.

Shape legend: `N` examples, `P` pieces of all their texts, `R` rows (one for each example, or
several where long texts are windowed), `T` tokens of all rows. Texts are numbered as in `segments`.
"""

from collections.abc import Callable

import numpy as np

from bert_features.batches.long_text import LongText, kept_lengths
from bert_features.batches.segments import (
    CLS,
    SEP_A,
    SEP_B,
    A,
    B,
    RowPlan,
    Rows,
    Texts,
    expand_ranges,
)
from bert_features.batches.windows import replace_with_windows
from bert_features.batches.word_tables import WordTable, place_words
from bert_features.batches.words import WordPieces
from bert_features.errors import InputError

# Of a text cut in the middle, the share of the kept pieces that are its first: 128 of 510, the best
# of Sun et al. 2019 (arXiv:1905.05583, table 2).
_HEAD_SHARE = 128 / 510


class Layout:
    """Lays the pieces of examples out in rows.

    Args:
      long_text: what happens to examples that do not fit a row.
      cls_id: id of [CLS].
      sep_id: id of [SEP].
      separators: number of [SEP]s between the texts of a pair.
    """

    def __init__(
        self, long_text: LongText, *, cls_id: int, sep_id: int, separators: int = 1
    ) -> None:
        self._long_text = long_text
        self._separators = separators
        self._special = np.array([cls_id] + [sep_id] * separators, np.int32)

    def rows(
        self,
        values: np.ndarray,
        text_lengths: np.ndarray,
        words: WordPieces | None,
        name: Callable[[int], str],
    ) -> tuple[Rows, WordTable | None]:
        """Lays some examples out.

        Args:
          values: int32 [P], the pieces of all texts.
          text_lengths: int64 [2 * N], number of pieces of each text.
          words: the words whose vectors are wanted, if any.
          name: names the i-th example to the user.

        Returns:
          The rows, those of an example one after the other; and the words of the examples (None
          without `words`).

        Raises:
          InputError: policy `error` and an example that does not fit; or windows, and a word whose
            vector is wanted has more pieces than a window holds.
        """
        plan = self._plan(Texts(text_lengths, words, name))
        pieces = np.concatenate([values, self._special])
        indices = expand_ranges(plan.starts.ravel(), plan.lengths.ravel())
        windows = np.arange(len(plan.examples)) - np.searchsorted(plan.examples, plan.examples)
        rows = Rows(
            values=pieces[indices],
            word_indices=np.full(len(indices), -1, np.int32),
            lengths=plan.lengths.sum(axis=1),
            examples=plan.examples,
            window=windows.astype(np.int32),
            num_windows=np.bincount(plan.examples)[plan.examples].astype(np.int32),
            type_starts=plan.lengths[:, : SEP_A + 1].sum(axis=1).astype(np.int32),
            own_starts=plan.own[:, 0].astype(np.int32),
            own_ends=plan.own[:, 1].astype(np.int32),
            tokens_lost=_tokens_lost(plan, text_lengths, windows),
        )
        if words is None:
            return rows, None
        word_of_token = _word_of_piece(words, len(pieces))[indices]
        table = place_words(rows, word_of_token, words, num_examples=len(text_lengths) // 2)
        return rows, table

    def _plan(self, texts: Texts) -> RowPlan:
        length_a, length_b = texts.lengths[0::2], texts.lengths[1::2]
        kept_a, kept_b = kept_lengths(
            length_a, length_b, self._long_text.seq_length, self._separators
        )
        cut = (kept_a < length_a) | (kept_b < length_b)
        if self._long_text.policy == "error" and cut.any():
            self._refuse(int(np.flatnonzero(cut)[0]), texts)
        plan = self._single_rows(kept_a, kept_b, texts)
        if self._long_text.policy != "window" or not cut.any():
            return plan
        return replace_with_windows(
            plan, np.flatnonzero(cut), texts, self._long_text, self._separators
        )

    def _single_rows(self, kept_a: np.ndarray, kept_b: np.ndarray, texts: Texts) -> RowPlan:
        """One row for each example, of the pieces kept of each text, int64 [N]."""
        total = int(texts.lengths.sum())
        starts = np.zeros((len(kept_a), 7), np.int64)
        lengths = np.zeros((len(kept_a), 7), np.int64)
        starts[:, CLS], lengths[:, CLS] = total, 1
        starts[:, SEP_A] = total + 1
        lengths[:, SEP_A] = np.where(kept_b > 0, self._separators, 1)
        starts[:, SEP_B], lengths[:, SEP_B] = total + 1, kept_b > 0
        for head, kept, text in ((A, kept_a, 0), (B, kept_b, 1)):
            text_starts, text_lengths = texts.starts[text::2], texts.lengths[text::2]
            first = head_lengths(self._long_text, kept, text_lengths)
            rest = kept - first
            starts[:, head], lengths[:, head] = text_starts, first
            starts[:, head + 1], lengths[:, head + 1] = text_starts + text_lengths - rest, rest
        own = np.stack([np.zeros(len(kept_a), np.int64), lengths.sum(axis=1)], axis=1)
        return RowPlan(np.arange(len(kept_a)), starts, lengths, own)

    def _refuse(self, example: int, texts: Texts) -> None:
        count = int(texts.lengths[2 * example : 2 * example + 2].sum())
        raise InputError.naming(
            "{example} has {count} pieces and does not fit {max_seq_length} {length}; raise it, or "
            "choose another {long_text}: truncate, tail, head_tail, window",
            example=texts.name(example),
            count=count,
            length=self._long_text.seq_length,
        )


def head_lengths(long_text: LongText, kept: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Number of the kept pieces that are the text's first, not its last; int64 [N] each."""
    heads = {
        "tail": np.zeros_like(kept),
        "head_tail": (kept * _HEAD_SHARE).astype(np.int64),
    }
    return np.where(kept < length, heads.get(long_text.policy, kept), kept)


def _tokens_lost(plan: RowPlan, text_lengths: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """int32 [R]: pieces of an example in no row, at the example's first row; else 0."""
    own = np.bincount(plan.examples, plan.own[:, 1] - plan.own[:, 0]).astype(np.int64)
    pieces = text_lengths[0::2] + text_lengths[1::2]
    # The own tokens of an example hold [CLS] and each [SEP] once.
    first = windows == 0  # every row of an example has the same special tokens
    special = plan.lengths[first][:, [CLS, SEP_A, SEP_B]].sum(axis=1)
    lost = pieces - (own - special)
    return np.where(windows == 0, lost[plan.examples], 0).astype(np.int32)


def _word_of_piece(words: WordPieces, count: int) -> np.ndarray:
    """int64 [count]: the number of each piece's word, or -1."""
    word_of_piece = np.full(count, -1)
    word_of_piece[expand_ranges(words.first_pieces, words.num_pieces)] = np.repeat(
        np.arange(len(words.texts)), words.num_pieces
    )
    return word_of_piece

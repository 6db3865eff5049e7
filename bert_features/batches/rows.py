"""Layout: which pieces of each example stand in which row. NumPy; no loop but over windows.

Windows are several overlapping rows for a text that is too long for one.

Shape legend: `N` examples, `P` pieces of all their texts, `R` rows (one for each example, or
several where long texts are windowed), `T` tokens of all rows. Texts are numbered as in `row_plan`.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from bert_features.batches.long_text import LongText, kept_lengths
from bert_features.batches.row_plan import (
    A_TAIL,
    B_TAIL,
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
from bert_features.batches.unit_tables import UnitTable, place_words
from bert_features.batches.words import PieceRuns
from bert_features.errors import InputError

# The share of head pieces where a text is cut in the middle: 128 of 510, the best
# of Sun et al. 2019 (arXiv:1905.05583, table 2).
_HEAD_SHARE = 128 / 510
_SHORTEST_PAIR = 4  # [CLS], a piece of each text, and the last [SEP]


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
        words: PieceRuns | None,
        name: Callable[[int], str],
        cuts: np.ndarray | None = None,
    ) -> tuple[Rows, UnitTable | None]:
        """Lays some examples out.

        Args:
          values: int32 [P], the pieces of all texts.
          text_lengths: int64 [2 * N], number of pieces of each text.
          words: the words whose vectors are wanted, if any.
          name: names the i-th example to the user.
          cuts: int64 [N], the tokens at which an example is cut, whatever its length; 0 for the
            policy. None for the policy in all.

        Returns:
          The rows, by example; and the words of the examples (None
          without `words`).

        Raises:
          InputError: policy `error` and an example that does not fit; or windows, and a word whose
            vector is wanted has more pieces than a window holds.
        """
        plan = self._plan(Texts(text_lengths, words, name), 0 if cuts is None else cuts)
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
            pieces=indices,
        )
        if words is None:
            return rows, None
        return rows, place_words(rows, _word_of_piece(words, len(pieces))[indices], words)

    def _plan(self, texts: Texts, cuts: np.ndarray | int) -> RowPlan:
        length_a, length_b = texts.lengths[0::2], texts.lengths[1::2]
        limits = np.where(cuts, cuts, self._long_text.seq_length)
        kept_a, kept_b = kept_lengths(length_a, length_b, limits, self._separators)
        cut = ((kept_a < length_a) | (kept_b < length_b)) & (cuts == 0)
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
        raise InputError(
            f"{texts.name(example)} has {count} pieces and does not fit max_seq_length "
            f"{self._long_text.seq_length}; raise it, or choose another long_text: truncate, tail, "
            "head_tail, window"
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


def _word_of_piece(words: PieceRuns, count: int) -> np.ndarray:
    """int64 [count]: the number of each piece's word, or -1."""
    word_of_piece = np.full(count, -1)
    word_of_piece[expand_ranges(words.first_pieces, words.num_pieces)] = np.repeat(
        np.arange(len(words.texts)), words.num_pieces
    )
    return word_of_piece


def replace_with_windows(
    plan: RowPlan, long: np.ndarray, texts: Texts, long_text: LongText, separators: int = 1
) -> RowPlan:
    """The plan, a row for each example, with the rows of `long` examples replaced by their windows.

    Raises:
      InputError: a pair and rows too short for pairs, or a word longer than a window.
    """
    others = plan.take(np.setdiff1d(plan.examples, long))
    windows = [
        _windows(plan.take(row), int(row[0]), texts, long_text, separators) for row in long[:, None]
    ]
    joined = RowPlan.join([others, *windows])
    return joined.take(np.argsort(joined.examples, kind="stable"))


def _windows(
    row: RowPlan, example: int, texts: Texts, long_text: LongText, separators: int
) -> RowPlan:
    """The windows of one example: they slide over its longer text, beside the shorter one.

    The shorter text stands in every window. It may take half the room, and is cut to that.
    """
    length_a, length_b = texts.lengths[2 * example : 2 * example + 2].tolist()
    if length_b and long_text.seq_length < _SHORTEST_PAIR + separators:
        raise InputError(
            f"{texts.name(example)} is a pair that does not fit max_seq_length "
            f"{long_text.seq_length}; windows of pairs need at least {_SHORTEST_PAIR + separators}"
        )
    b_slides = length_b > length_a
    length, other_length = (length_b, length_a) if b_slides else (length_a, length_b)
    room = long_text.seq_length - 2 - (separators if length_b else 0)
    fixed = min(other_length, room // 2)
    room -= fixed
    text = 2 * example + b_slides
    word_starts = _word_starts(texts, text, room)
    stride = long_text.stride_in(room)
    begins = np.array(list(_window_starts(length, room, stride, word_starts)))
    slides, stays = (B, A) if b_slides else (A, B)
    starts = np.repeat(row.starts, len(begins), axis=0)
    lengths = np.repeat(row.lengths, len(begins), axis=0)
    lengths[:, [A, A_TAIL, B, B_TAIL]] = 0
    starts[:, slides] = texts.starts[text] + begins
    lengths[:, slides] = np.minimum(room, length)
    starts[:, stays] = texts.starts[2 * example + (not b_slides)]
    lengths[:, stays] = fixed
    own = _own_tokens(begins, room, lengths, slides)
    return RowPlan(np.full(len(begins), example), starts, lengths, own)


def _own_tokens(begins: np.ndarray, room: int, lengths: np.ndarray, slides: int) -> np.ndarray:
    """int64 [windows, 2]: each token belongs to the window where it has the most context.

    As in google-research/bert's run_squad.py (_check_is_max_context), the context of a token is the
    smaller of those to its left and right in the window. So two overlapping windows part in the
    middle of what they share. The first window also has the tokens before the run `slides`, of
    whose pieces `room` are in a window, the last window those behind it.
    """
    # The middle of [begin of the later window, end of the earlier one).
    middles = (begins[1:] + begins[:-1] + room + 1) // 2
    before = lengths[:, :slides].sum(axis=1)  # tokens before the sliding text
    own = np.zeros((len(begins), 2), np.int64)
    own[1:, 0] = before[1:] + middles - begins[1:]
    own[:-1, 1] = before[:-1] + middles - begins[:-1]
    own[-1, 1] = lengths[-1].sum()
    return own


def _window_starts(
    length: int, room: int, stride: int, word_starts: np.ndarray | None
) -> Iterator[int]:
    """Where windows of `room` pieces begin, so that every piece and every whole word is in one.

    Every window but the last begins `stride` behind the one before, or at the first word that was
    not whole in that one, whichever comes first. The last one ends with the text.
    """
    begin = 0
    yield begin
    while begin + room < length:
        following = begin + stride
        if word_starts is not None:
            first_cut = np.searchsorted(word_starts, begin + room, side="right") - 1
            following = min(following, int(word_starts[first_cut]))
        begin = min(following, length - room)
        yield begin


def _word_starts(texts: Texts, text: int, room: int) -> np.ndarray | None:
    """int64, ascending: where the words of a text begin among its pieces; None without words.

    Raises InputError if a word has more pieces than a window has room for.
    """
    words = texts.words
    if words is None:
        return None
    words_of_text = slice(*np.searchsorted(words.texts, [text, text + 1]).tolist())
    counts = words.num_pieces[words_of_text]
    if counts.max(initial=0) > room:
        raise InputError(
            f"{texts.name(text // 2)} has a word of {counts.max()} pieces, the word number "
            f"{int(counts.argmax())} of its text; a window has room for {room}; raise "
            "max_seq_length, or choose another long_text: truncate, tail, head_tail"
        )
    starts: np.ndarray = np.unique(
        (words.first_pieces[words_of_text] - texts.starts[text])[counts > 0]
    )
    return starts


def rows_to_score(rows: Rows, mask_id: int, special_ids: list[int], *, by_word: bool) -> Rows:
    """Masks each piece of some examples in a row of its own.

    Salazar et al. 2020 (arXiv:1910.14659) mask the piece alone. Kauf and Ivanova 2023
    (arXiv:2305.10588) also mask the rest of its word to the right, so that the pieces of a rare
    word do not give each other away.

    Args:
      rows: one row for each example, or its windows: a piece is masked in the window that owns it.
      mask_id: the id of [MASK].
      special_ids: the ids of [CLS] and [SEP], which have no score.
      by_word: whether the rest of the piece's word is masked too.

    Returns:
      The rows with `target_ids`. A row owns its piece and what stands before the next one; the
      first also has what stands before. An example or window without pieces keeps its row.
    """
    pieces = np.flatnonzero(rows.is_own & ~np.isin(rows.values, special_ids))
    counts = np.bincount(rows.row_of_token[pieces], minlength=len(rows.lengths))
    copies = np.maximum(counts, 1)
    source = np.repeat(np.arange(len(rows.lengths)), copies)
    number = np.arange(len(source)) - np.repeat(np.cumsum(copies) - copies, copies)
    targets = np.full(len(source), -1)  # the place of the masked piece in its row
    has_piece = counts[source] > 0
    targets[has_piece] = rows.place[pieces]

    lengths = rows.lengths[source]
    tokens = expand_ranges(rows.starts[source], lengths)
    begins = np.cumsum(lengths) - lengths
    at = (begins + targets)[has_piece]
    values = rows.values[tokens]
    target_ids = np.full(len(values), -1, np.int32)
    target_ids[at] = values[at]
    values[at] = mask_id
    words = rows.word_indices[tokens]
    if by_word:
        word, place = (np.full(len(source), -2), np.full(len(source), len(values)))
        word[has_piece], place[has_piece] = words[at], at
        later = np.arange(len(values)) > np.repeat(place, lengths)
        values[later & (words == np.repeat(word, lengths))] = mask_id

    last = np.append(number[1:] == 0, True)
    following = np.append(targets[1:], 0)
    examples = rows.examples[source]
    window = np.arange(len(source)) - np.searchsorted(examples, examples)
    return replace(
        rows,
        values=values,
        word_indices=words,
        lengths=lengths,
        examples=examples,
        type_starts=rows.type_starts[source],
        window=window.astype(np.int32),
        num_windows=np.bincount(examples)[examples].astype(np.int32),
        own_starts=np.where(number == 0, rows.own_starts[source], targets).astype(np.int32),
        own_ends=np.where(last, rows.own_ends[source], following).astype(np.int32),
        tokens_lost=np.where(number == 0, rows.tokens_lost[source], 0).astype(np.int32),
        pieces=rows.pieces[tokens],
        target_ids=target_ids,
    )

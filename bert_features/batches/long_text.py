"""Which pieces of each example stand in which row: truncation, windows, words. NumPy, no loops but
over the windows of texts that are too long.

Shape legend: `N` examples, `P` pieces of all their texts, `W` words of all of them, `R` rows, of
which an example has one or, in windows, several. Texts are numbered 2 * i for text_a and 2 * i + 1
for text_b of example i; a text that is not there has no pieces.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from bert_features.errors import ConfigError, InputError
from bert_features.official.features import MIN_SEQ_LENGTH, kept_lengths

Policy = Literal["truncate", "tail", "head_tail", "window", "error"]

# Of a text cut in the middle, the share of the kept pieces that are its first: 128 of 510, the best
# of Sun et al. 2019 (arXiv:1905.05583, table 2).
_HEAD_SHARE = 128 / 510


@dataclass(frozen=True)
class LongText:
    """What becomes of examples that do not fit a row.

    Attributes:
      policy: `truncate` keeps the head of each text, `tail` its end, `head_tail` both; `window`
        makes several overlapping rows; `error` refuses the example.
      seq_length: the tokens of the longest row.
      stride: pieces between the beginnings of two windows; by default half of a window's.

    Raises:
      ConfigError: the stride is given for another policy, or does not leave windows an overlap.
    """

    policy: Policy = "truncate"
    seq_length: int = 128
    stride: int | None = None

    def __post_init__(self) -> None:
        if self.stride is None:
            return
        if self.policy != "window":
            raise ConfigError(
                f"stride is {self.stride} and long_text '{self.policy}'; stride is for 'window'"
            )
        if not 1 <= self.stride < self.room:
            raise ConfigError(
                f"stride is {self.stride}; a window of max_seq_length {self.seq_length} holds "
                f"{self.room} pieces between [CLS] and [SEP], and stride must be from 1 to "
                f"{self.room - 1}, so that windows overlap"
            )

    @property
    def room(self) -> int:
        """The pieces that a row holds between [CLS] and [SEP]."""
        return self.seq_length - (MIN_SEQ_LENGTH - 1)

    @property
    def most_copies(self) -> int:
        """In how many rows a piece of a single text may stand."""
        return -(-self.room // self.stride_in(self.room)) if self.policy == "window" else 1

    def stride_in(self, room: int) -> int:
        """The stride where a second text leaves only this room: smaller in proportion."""
        stride = self.room // 2 if self.stride is None else self.stride
        return max(1, stride * room // self.room)


@dataclass(frozen=True)
class WordPieces:
    """The words of several examples and their pieces; text_a's before text_b's.

    Attributes:
      texts: int64 [W], the number of the text of each, ascending.
      first_pieces: int64 [W], where its pieces begin among all P.
      num_pieces: int64 [W]; 0 for a word that vanished in cleaning.
      starts: int32 [W], its first character in the text, or -1.
      ends: int32 [W], one past its last character, or -1.
    """

    texts: np.ndarray
    first_pieces: np.ndarray
    num_pieces: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


@dataclass(frozen=True)
class WordTable:
    """The words of one example, and where their vectors are found.

    Attributes:
      starts: int32 [words], the first character in the text, or -1.
      ends: int32 [words], one past the last character, or -1.
      type_ids: int32 [words]: 1 for words of text_b.
      num_pieces: int32 [words], pieces that the vector is made of; 0 for a zero vector.
      all_pieces: int32 [words], pieces that the word has; 0 if it vanished in cleaning.
      windows: int32 [words], the row of the example that the vector is taken from; -1 for none.
      indices: int32 [words], its number among the words of that row.
    """

    starts: np.ndarray
    ends: np.ndarray
    type_ids: np.ndarray
    num_pieces: np.ndarray
    all_pieces: np.ndarray
    windows: np.ndarray
    indices: np.ndarray


@dataclass(frozen=True)
class Rows:
    """The rows of several examples.

    Attributes:
      values: int32 [T], the ids of all rows, one after the other.
      word_indices: int32 [T], the number of each token's word in its row, or -1.
      lengths: int64 [R].
      examples: int64 [R], the number of each row's example among the N.
      windows: int32 [R], the number of each row among its example's.
      num_windows: int32 [R], how many rows its example has.
      type_starts: int32 [R], where text_b begins.
      own_starts: int32 [R], the first token that is taken from this row, and not from another
        window that holds it too.
      own_ends: int32 [R], one past the last such token.
      tokens_lost: int32 [R], pieces of the example that are in no row; told by its first row.
    """

    values: np.ndarray
    word_indices: np.ndarray
    lengths: np.ndarray
    examples: np.ndarray
    windows: np.ndarray
    num_windows: np.ndarray
    type_starts: np.ndarray
    own_starts: np.ndarray
    own_ends: np.ndarray
    tokens_lost: np.ndarray


# [CLS], a piece of each text, and their [SEP]s.
_SHORTEST_PAIR = 5

# The segments of a row: [CLS], the head and the tail of text_a, [SEP], those of text_b, [SEP].
_CLS, _A, _A_TAIL, _SEP_A, _B, _B_TAIL, _SEP_B = range(7)


@dataclass
class _Plan:
    """Rows as segments of pieces.

    Attributes:
      examples: int64 [R].
      starts: int64 [R, 7], where each segment begins among the P pieces, [CLS] and [SEP].
      lengths: int64 [R, 7].
      own: int64 [R, 2], the own tokens of each row.
    """

    examples: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    own: np.ndarray


class Layout:
    """Lays the pieces of examples out in rows.

    Args:
      long_text: what becomes of examples that do not fit a row.
      cls_id: of [CLS].
      sep_id: of [SEP].
    """

    def __init__(self, long_text: LongText, *, cls_id: int, sep_id: int) -> None:
        self._long_text = long_text
        self._special = np.array([cls_id, sep_id], np.int32)

    def rows(
        self,
        values: np.ndarray,
        text_lengths: np.ndarray,
        words: WordPieces | None,
        name: Callable[[int], str],
    ) -> tuple[Rows, list[WordTable]]:
        """The rows of some examples.

        Args:
          values: int32 [P], the pieces of all texts.
          text_lengths: int64 [2 * N], how many each text has.
          words: whose vectors are wanted, if any are.
          name: names the i-th example to the user.

        Returns:
          The rows, those of an example one after the other; and the words of each example (an empty
          list without `words`).

        Raises:
          InputError: policy `error` and an example that does not fit; or windows, and a word whose
            vector is wanted has more pieces than a window holds.
        """
        plan = self._plan(text_lengths, words, name)
        pieces = np.concatenate([values, self._special])
        indices = _ranges(plan.starts.ravel(), plan.lengths.ravel())
        lengths = plan.lengths.sum(axis=1)
        windows = np.arange(len(lengths)) - np.searchsorted(plan.examples, plan.examples)
        num_windows = np.bincount(plan.examples)[plan.examples]
        rows = Rows(
            values=pieces[indices],
            word_indices=np.full(len(indices), -1, np.int32),
            lengths=lengths,
            examples=plan.examples,
            windows=windows.astype(np.int32),
            num_windows=num_windows.astype(np.int32),
            type_starts=plan.lengths[:, : _SEP_A + 1].sum(axis=1).astype(np.int32),
            own_starts=plan.own[:, 0].astype(np.int32),
            own_ends=plan.own[:, 1].astype(np.int32),
            tokens_lost=_tokens_lost(plan, text_lengths, windows),
        )
        if words is None:
            return rows, []
        count = len(text_lengths) // 2
        return rows, _place_words(rows, indices, words, num_pieces=len(pieces), num_examples=count)

    def _plan(
        self, text_lengths: np.ndarray, words: WordPieces | None, name: Callable[[int], str]
    ) -> _Plan:
        length_a, length_b = text_lengths[0::2], text_lengths[1::2]
        kept_a, kept_b = kept_lengths(length_a, length_b, self._long_text.seq_length)
        cut = (kept_a < length_a) | (kept_b < length_b)
        if self._long_text.policy == "error" and cut.any():
            self._refuse(int(np.flatnonzero(cut)[0]), text_lengths, name)
        starts_of_texts = np.cumsum(text_lengths) - text_lengths
        total = int(text_lengths.sum())
        starts = np.zeros((len(cut), 7), np.int64)
        lengths = np.zeros((len(cut), 7), np.int64)
        starts[:, _CLS], lengths[:, _CLS] = total, 1
        starts[:, _SEP_A], lengths[:, _SEP_A] = total + 1, 1
        starts[:, _SEP_B], lengths[:, _SEP_B] = total + 1, kept_b > 0
        for head, kept, text in ((_A, kept_a, 0), (_B, kept_b, 1)):
            first = self._heads(kept, text_lengths[text::2])
            rest = kept - first
            ends = starts_of_texts[text::2] + text_lengths[text::2]
            starts[:, head], lengths[:, head] = starts_of_texts[text::2], first
            starts[:, head + 1], lengths[:, head + 1] = ends - rest, rest
        own = np.stack([np.zeros(len(cut), np.int64), lengths.sum(axis=1)], axis=1)
        plan = _Plan(np.arange(len(cut)), starts, lengths, own)
        if self._long_text.policy != "window" or not cut.any():
            return plan
        return self._with_windows(plan, np.flatnonzero(cut), text_lengths, words, name)

    def _heads(self, kept: np.ndarray, length: np.ndarray) -> np.ndarray:
        """Of the pieces kept, how many are the text's first; the others are its last."""
        cut = kept < length
        heads = {
            "tail": np.zeros_like(kept),
            "head_tail": (kept * _HEAD_SHARE).astype(np.int64),
        }
        return np.where(cut, heads.get(self._long_text.policy, kept), kept)

    def _refuse(self, example: int, text_lengths: np.ndarray, name: Callable[[int], str]) -> None:
        count = int(text_lengths[2 * example : 2 * example + 2].sum())
        raise InputError(
            f"{name(example)} has {count} pieces and does not fit max_seq_length "
            f"{self._long_text.seq_length}; raise it, or choose another policy for long text: "
            "truncate, tail, head_tail, window"
        )

    def _with_windows(
        self,
        plan: _Plan,
        long: np.ndarray,
        text_lengths: np.ndarray,
        words: WordPieces | None,
        name: Callable[[int], str],
    ) -> _Plan:
        """The plan with the row of each long example replaced by its windows."""
        starts_of_texts = np.cumsum(text_lengths) - text_lengths
        parts: list[_Plan] = []
        done = 0
        for example in long.tolist():
            parts.append(_part(plan, done, example))
            parts.append(
                self._windows_of(plan, example, text_lengths, starts_of_texts, words, name)
            )
            done = example + 1
        parts.append(_part(plan, done, len(plan.examples)))
        return _Plan(
            *(
                np.concatenate([getattr(part, field) for part in parts])
                for field in ("examples", "starts", "lengths", "own")
            )
        )

    def _windows_of(
        self,
        plan: _Plan,
        example: int,
        text_lengths: np.ndarray,
        starts_of_texts: np.ndarray,
        words: WordPieces | None,
        name: Callable[[int], str],
    ) -> _Plan:
        """The windows of one example: they slide over its longer text, beside the shorter one.

        The shorter text stands in each of them; it may take half of the room, and is cut to that.
        """
        length_a, length_b = text_lengths[2 * example : 2 * example + 2].tolist()
        b_slides = length_b > length_a
        length, other = (length_b, length_a) if b_slides else (length_a, length_b)
        room = self._long_text.seq_length - (3 if length_b else 2)
        fixed = min(other, room // 2)
        room -= fixed
        if length_b and self._long_text.seq_length < _SHORTEST_PAIR:
            raise InputError(
                f"{name(example)} is a pair that does not fit max_seq_length "
                f"{self._long_text.seq_length}; windows of pairs need at least {_SHORTEST_PAIR}"
            )
        text = 2 * example + b_slides
        word_starts = _word_starts(words, text, starts_of_texts[text], room, name, example)
        begins = np.array(
            list(_window_starts(length, room, self._long_text.stride_in(room), word_starts))
        )
        count = len(begins)
        slides, stays = (_B, _A) if b_slides else (_A, _B)
        starts = np.repeat(plan.starts[example : example + 1], count, axis=0)
        lengths = np.repeat(plan.lengths[example : example + 1], count, axis=0)
        lengths[:, [_A, _A_TAIL, _B, _B_TAIL]] = 0
        starts[:, slides] = starts_of_texts[text] + begins
        lengths[:, slides] = np.minimum(room, length)
        starts[:, stays] = starts_of_texts[2 * example + (not b_slides)]
        lengths[:, stays] = fixed
        own = _own_tokens(begins, room, lengths, slides)
        return _Plan(np.full(count, example), starts, lengths, own)


def _own_tokens(begins: np.ndarray, room: int, lengths: np.ndarray, slides: int) -> np.ndarray:
    """int64 [windows, 2]: each token is its windows' in which it has the most context.

    As in google-research/bert's run_squad.py (_check_is_max_context), the context of a token is the
    smaller of those to its left and right in the window. So two windows that overlap part in the
    middle of what they share. The first window also has the tokens before the sliding text, the
    last those behind it.
    """
    middles = (
        begins[1:] + begins[:-1] + room + 1
    ) // 2  # of [begin of the later, end of the other)
    before = lengths[:, :slides].sum(axis=1)  # tokens before the sliding text
    own = np.zeros((len(begins), 2), np.int64)
    own[1:, 0] = before[1:] + middles - begins[1:]
    own[:-1, 1] = before[:-1] + middles - begins[:-1]
    own[-1, 1] = lengths[-1].sum()
    return own


def _window_starts(
    length: int, room: int, stride: int, word_starts: np.ndarray | None
) -> Iterator[int]:
    """Where windows of `room` begin, so that all pieces and every word whole are in one.

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


def _word_starts(
    words: WordPieces | None,
    text: int,
    start_of_text: int,
    room: int,
    name: Callable[[int], str],
    example: int,
) -> np.ndarray | None:
    """int64, ascending: where the words of a text begin among its pieces.

    Raises:
      InputError: a word has more pieces than a window has room for.
    """
    if words is None:
        return None
    of_text = slice(*np.searchsorted(words.texts, [text, text + 1]).tolist())
    counts = words.num_pieces[of_text]
    if counts.max(initial=0) > room:
        raise InputError(
            f"{name(example)} has a word of {counts.max()} pieces, the word number "
            f"{int(counts.argmax())} of its text; a window has room for {room}; raise "
            "max_seq_length, or choose another policy for long text: truncate, tail, head_tail"
        )
    starts: np.ndarray = np.unique((words.first_pieces[of_text] - start_of_text)[counts > 0])
    return starts


def _part(plan: _Plan, start: int, stop: int) -> _Plan:
    return _Plan(
        plan.examples[start:stop],
        plan.starts[start:stop],
        plan.lengths[start:stop],
        plan.own[start:stop],
    )


def _ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """start, start + 1, …, start + length - 1 of each, joined."""
    begins = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) + np.repeat(starts - begins, lengths)


def _tokens_lost(plan: _Plan, text_lengths: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """int32 [R]: pieces of an example in no row, told by its first row."""
    own = np.bincount(plan.examples, plan.own[:, 1] - plan.own[:, 0]).astype(np.int64)
    of_example = text_lengths[0::2] + text_lengths[1::2]
    # An example's own tokens hold [CLS] and each [SEP] once.
    has_b = np.bincount(plan.examples, plan.lengths[:, _SEP_B]) > 0
    lost = of_example - (own - 2 - has_b)
    return np.where(windows == 0, lost[plan.examples], 0).astype(np.int32)


def _place_words(
    rows: Rows, indices: np.ndarray, words: WordPieces, *, num_pieces: int, num_examples: int
) -> list[WordTable]:
    """Numbers the words of each row, in `rows.word_indices`, and finds each word's best row."""
    word_of_piece = np.full(num_pieces, -1)
    word_of_piece[_ranges(words.first_pieces, words.num_pieces)] = np.repeat(
        np.arange(len(words.texts)), words.num_pieces
    )
    word_of_token = word_of_piece[indices]

    # An occurrence is a run of tokens of one word in one row.
    row_of_token = np.repeat(np.arange(len(rows.lengths)), rows.lengths)
    changes = np.ones(len(indices), bool)
    changes[1:] = (np.diff(word_of_token) != 0) | (np.diff(row_of_token) != 0)
    begins = np.flatnonzero(changes & (word_of_token >= 0))
    word, row = word_of_token[begins], row_of_token[begins]
    number = np.arange(len(begins)) - np.searchsorted(row, row)
    run = np.cumsum(changes & (word_of_token >= 0)) - 1
    inside = word_of_token >= 0
    rows.word_indices[inside] = number[run[inside]]
    size = np.bincount(run[inside], minlength=len(begins))

    # The best of a word's occurrences has the most of its pieces, then the most of them as its own
    # tokens, then is the first.
    place = np.arange(len(indices)) - (np.cumsum(rows.lengths) - rows.lengths)[row_of_token]
    is_own = (place >= rows.own_starts[row_of_token]) & (place < rows.own_ends[row_of_token])
    own = np.bincount(run[inside], is_own[inside], minlength=len(begins))
    order = np.lexsort((-row, own, size, word))
    best = order[np.flatnonzero(np.diff(word[order], append=-1))]

    window, index = np.full(len(words.texts), -1, np.int32), np.zeros(len(words.texts), np.int32)
    pooled = np.zeros(len(words.texts), np.int32)
    window[word[best]] = rows.windows[row[best]]
    index[word[best]] = number[best]
    pooled[word[best]] = size[best]
    bounds = np.searchsorted(words.texts, 2 * np.arange(num_examples + 1)).tolist()
    columns = (
        words.starts.astype(np.int32),
        words.ends.astype(np.int32),
        (words.texts % 2).astype(np.int32),
        pooled,
        words.num_pieces.astype(np.int32),
        window,
        index,
    )
    return [
        WordTable(*(column[start:stop] for column in columns)) for start, stop in pairwise(bounds)
    ]

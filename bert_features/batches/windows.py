"""Windows: several overlapping rows for a text that is too long for one.

Shape legend: see `segments`.
"""

from collections.abc import Iterator

import numpy as np

from bert_features.batches.long_text import LongText
from bert_features.batches.segments import A_TAIL, B_TAIL, A, B, RowPlan, Texts
from bert_features.errors import InputError

_SHORTEST_PAIR = 4  # [CLS], a piece of each text, and the last [SEP]


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
        raise InputError.naming(
            "{example} is a pair that does not fit {max_seq_length} {length}; windows of pairs "
            "need at least {least}",
            example=texts.name(example),
            length=long_text.seq_length,
            least=_SHORTEST_PAIR + separators,
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
    middle of what they share. The first window also has the tokens before the segment `slides`, of
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
    in_text = slice(*np.searchsorted(words.texts, [text, text + 1]).tolist())
    counts = words.num_pieces[in_text]
    if counts.max(initial=0) > room:
        raise InputError.naming(
            "{example} has a word of {count} pieces, the word number {number} of its text; a "
            "window has room for {room}; raise {max_seq_length}, or choose another {long_text}: "
            "truncate, tail, head_tail",
            example=texts.name(text // 2),
            count=counts.max(),
            number=int(counts.argmax()),
            room=room,
        )
    starts: np.ndarray = np.unique((words.first_pieces[in_text] - texts.starts[text])[counts > 0])
    return starts

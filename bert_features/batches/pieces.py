"""The tokens of examples: how many there are, and where each stands in its text.

Shape legend: `N` examples, `P` pieces of all their texts. Texts are numbered 2 * i for text_a and
2 * i + 1 for text_b of example i; a missing text has no pieces.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import tensorflow as tf

from bert_features.batches.long_text import LongText
from bert_features.batches.rows import head_lengths
from bert_features.batches.words import Units, text_lengths
from bert_features.readers.input_example import InputExample
from bert_features.readers.text import notice_separator
from bert_features.text.tokenizer import Tokenizer, utf8

Offset = tuple[int, int] | None


@dataclass(frozen=True)
class Pieces:
    """The pieces of examples, before anything is cut off.

    Attributes:
      ids: int32 [P], vocabulary ids.
      lengths: int64 [2 * N], number of pieces of each text.
      places: int32 [P, 2], start and end of each piece in its text, in characters; None if they
        were not wanted.
      separators: number of [SEP]s between the texts of a pair.
    """

    ids: np.ndarray
    lengths: np.ndarray
    places: np.ndarray | None = None
    separators: int = 1

    @property
    def tokens(self) -> list[int]:
        """The tokens of each example, [CLS] and [SEP] included."""
        first, second = self.lengths[0::2], self.lengths[1::2]
        tokens: list[int] = (first + second + 2 + self.separators * (second > 0)).tolist()
        return tokens


def find_pieces(
    tokenizer: Tokenizer,
    examples: Sequence[InputExample],
    *,
    with_places: bool,
    mask_id: int | None = None,
) -> Pieces:
    """Tokenises examples; to find the places of the pieces takes longer.

    `mask_id` is the id of [MASK], if [MASK] in a text is that token; None if it is characters.
    """
    units = Units.of(examples, None) if tokenizer.splits_words else Units.whole_texts(examples)
    ids, lengths, starts, ends = tokenize_units(tokenizer, units, mask_id, with_places=with_places)
    places = None
    if with_places:
        places = np.stack([starts, ends], axis=1)
        places += np.repeat(units.begins, lengths)[:, None]
    text_sizes = text_lengths(lengths, np.array(units.per_text, np.int64))
    frame = tokenizer.known_frame  # a vocabulary of WordPiece alone may lack [SEP]
    return Pieces(ids, text_sizes, places, 1 if frame is None else frame.separators)


def offsets_of(
    pieces: Pieces, example: int, kept: Sequence[int], long_text: LongText, *, skip: int = 0
) -> list[Offset]:
    """The place of each kept token in its text.

    Args:
      pieces: the pieces of all examples, with their places.
      example: the number of the example.
      kept: how many pieces of text_a and of text_b were kept.
      long_text: says which of the pieces of a text that was cut are kept.
      skip: characters at the beginning of text_a that are not of the user's text: a prompt.

    Returns:
      (start, end) for each token; None for [CLS], [SEP] and tokens of a prompt.
    """
    assert pieces.places is not None
    first = int(pieces.lengths[: 2 * example].sum())
    offsets: list[Offset] = [None]
    for text, count in enumerate(kept):
        length = int(pieces.lengths[2 * example + text])
        (head,) = head_lengths(long_text, np.array([count]), np.array([length])).tolist()
        places = pieces.places[first : first + length]
        places = np.concatenate([places[:head], places[length - (count - head) :]])
        before = skip if text == 0 else 0
        offsets += [
            (start - before, end - before) if start >= before else None
            for start, end in places.tolist()
        ]
        if text == 0 or count:
            offsets += [None] * (pieces.separators if text == 0 and kept[1] else 1)
        first += length
    return offsets


def tokenize_units(
    tokenizer: Tokenizer, units: Units, mask_id: int | None = None, *, with_places: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The ids of all pieces of units, int32 [P], and the number of pieces of each unit, int64 [U].

    `mask_id` is the id for each [MASK], or a tokenizer's `<mask>`, in a unit. Without an output of
    the masked-LM head it is None: [MASK] is characters, as in google-research/bert's tokenizer.
    The tokenizer's markers are single tokens in any case.

    Then the first character of each piece in its unit, and one past its last, int32 [P], or zeros
    if they are not wanted, as they take longer.
    """
    notice_separator(units.strings)
    whole_ids = tokenizer.markers + (() if mask_id is None else (mask_id,))
    if not whole_ids:
        return _tokenize(tokenizer, units, with_places=with_places)
    # Each unit as the strings before, between and after these tokens: the odd ones are empty.
    ids_by_token = {tokenizer.tokens[each]: each for each in whole_ids}
    pattern = re.compile("|".join(map(re.escape, sorted(ids_by_token, key=len, reverse=True))))
    takes_blanks = tokenizer.frame.mask_takes_blanks
    parts: list[str] = []
    begins: list[int] = []  # of each part in its unit
    inserted: list[tuple[int, int]] = []  # id and characters of each token
    counts = []
    for unit in units.strings:
        begin = 0
        matches = [*pattern.finditer(unit)]
        for match in matches:
            text, number = unit[begin : match.start()], ids_by_token[match[0]]
            parts += [text.rstrip() if takes_blanks and number == mask_id else text, ""]
            begins += [begin, match.start()]
            inserted.append((number, len(match[0])))
            begin = match.end()
        parts.append(unit[begin:])
        begins.append(begin)
        counts.append(len(matches))
    if not inserted:
        return _tokenize(tokenizer, units, with_places=with_places)
    numbers, sizes = np.array(inserted, np.int32).T
    whole = replace(units, strings=parts)
    ids, lengths, starts, ends = _tokenize(tokenizer, whole, with_places=with_places)
    part_counts = 2 * np.array(counts) + 1
    firsts = np.cumsum(part_counts) - part_counts
    is_mask = (np.arange(len(parts)) - np.repeat(firsts, part_counts)) % 2 == 1
    at = np.cumsum(lengths)[is_mask]
    lengths = lengths + is_mask
    ids = np.insert(ids, at, numbers)
    starts, ends = np.insert(starts, at, 0), np.insert(ends, at, sizes * with_places)
    if with_places:
        moved = np.repeat(np.array(begins, np.int32), lengths)
        starts, ends = starts + moved, ends + moved
    return ids, np.add.reduceat(lengths, firsts), starts, ends


def _tokenize(
    tokenizer: Tokenizer, units: Units, *, with_places: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """As `tokenize_units`, with [MASK] as characters."""
    texts = tf.constant([utf8(unit) for unit in units.strings], tf.string)
    if not with_places:
        ids, lengths = tokenizer.ids_of(texts)
        nowhere = np.zeros_like(ids)
        return ids, lengths, nowhere, nowhere
    pieces = tokenizer.tokenize_with_offsets(texts)
    starts, ends = pieces.starts.values.numpy(), pieces.ends.values.numpy()
    return pieces.ids.values.numpy(), pieces.ids.row_lengths().numpy(), starts, ends

"""Places of pieces in texts, as NumPy arrays: from bytes to characters, without white space.

Shape legend: `B` texts, `P` pieces, `C` characters of all texts, one text after the other.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_features.text import unicode_tables
from bert_features.text.tokenizer import Pieces


def make_pieces(
    ids: np.ndarray,
    lengths: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    *,
    codes: np.ndarray,
    text_lengths: np.ndarray,
    empty: np.ndarray | bool = True,
) -> Pieces:
    """Pieces whose places leave out white space around them; one of white space alone is empty.

    Args:
      ids: int32 [P].
      lengths: int64 [B], number of pieces of each text.
      starts: int64 [P], the first character of each piece in its text.
      ends: int64 [P], one past its last character.
      codes: int32 [C], the code points of the texts.
      text_lengths: int64 [B], number of characters of each text.
      empty: bool [P], whether the place of each piece may be empty; else it has a character.
    """
    text_ends = np.cumsum(text_lengths)
    before = np.repeat(text_ends - text_lengths, lengths)
    blank = unicode_tables.table("white_space").of(codes) != 0
    index, count = np.arange(len(codes)), len(codes)
    following = np.minimum.accumulate(np.append(np.where(blank, count, index), count)[::-1])[::-1]
    preceding = np.maximum.accumulate(np.append(0, np.where(blank, 0, index + 1)))
    starts = np.minimum(following[before + starts], before + ends)
    ends = np.maximum(preceding[before + ends], starts)
    full = np.minimum(starts + 1, np.repeat(text_ends, lengths))
    ends = np.where(empty, ends, np.maximum(ends, full))
    columns = (ids, starts - before, ends - before)
    return Pieces(
        *(
            tf.RaggedTensor.from_row_lengths(column.astype(np.int32), lengths, validate=False)
            for column in columns
        )
    )


def characters_at(texts: Sequence[bytes], rows: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The character of each byte of texts, UTF-8 [B]: numbers among all C, int64 [P].

    `rows` is the text of each place, `places` its byte, int64 [P] each; one past the last is
    allowed, and gives C for the last text.
    """
    sizes = np.array([len(text) for text in texts], np.int64)
    data = np.frombuffer(b"".join(texts), np.uint8)
    character = np.cumsum((data & 0xC0) != 0x80) - 1
    count = int(character[-1]) + 1 if len(character) else 0
    characters: np.ndarray = np.append(character, count)[(np.cumsum(sizes) - sizes)[rows] + places]
    return characters

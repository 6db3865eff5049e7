"""[MASK], or a tokenizer's `<mask>`, in a text as the special token, for the masked-LM head.

Without an output of that head it is ordinary characters, as in google-research/bert's tokenizer.
"""

from dataclasses import replace

import numpy as np
import tensorflow as tf

from bert_features.batches.words import Units
from bert_features.text.tokenizer import Tokenizer, utf8


def tokenize_units(
    tokenizer: Tokenizer, units: Units, mask_id: int | None = None, *, with_places: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The ids of all pieces of units, int32 [P], and the number of pieces of each unit, int64 [U].

    Then the first character of each piece in its unit, and one past its last, int32 [P], or zeros
    if they are not wanted, as they take longer. `mask_id` is the id for each [MASK] in a unit; None
    if it is characters.
    """
    if mask_id is None:
        return _tokenize(tokenizer, units, with_places=with_places)
    mask, takes_blanks = tokenizer.tokens[mask_id], tokenizer.frame.mask_takes_blanks
    counts = [unit.count(mask) for unit in units.strings]
    if not any(counts):
        return _tokenize(tokenizer, units, with_places=with_places)
    # Each unit as the strings before, between and after its masks; these are the odd ones, empty.
    parts: list[str] = []
    begins: list[int] = []  # of each part in its unit
    for unit in units.strings:
        texts, begin = unit.split(mask), 0
        for number, text in enumerate(texts):
            last = number == len(texts) - 1
            parts += [text.rstrip() if takes_blanks and not last else text, *[""] * (not last)]
            begins += [begin, *[begin + len(text)] * (not last)]
            begin += len(text) + len(mask)
    whole = replace(units, strings=parts)
    ids, lengths, starts, ends = _tokenize(tokenizer, whole, with_places=with_places)
    parts_of = 2 * np.array(counts) + 1
    firsts = np.cumsum(parts_of) - parts_of
    is_mask = (np.arange(len(parts)) - np.repeat(firsts, parts_of)) % 2 == 1
    at = np.cumsum(lengths)[is_mask]
    lengths = lengths + is_mask
    ids = np.insert(ids, at, np.int32(mask_id))
    starts, ends = np.insert(starts, at, 0), np.insert(ends, at, len(mask) * with_places)
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

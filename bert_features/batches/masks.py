"""[MASK] in a text as the special token, for outputs of the masked-LM head.

Without such an output it is ordinary characters, as in google-research/bert's tokenizer.
"""

from dataclasses import replace

import numpy as np

from bert_features.batches.pieces import tokenize_units
from bert_features.batches.words import Units
from bert_features.text.tokenizer import Tokenizer
from bert_features.text.vocabulary import MASK

_PLACEHOLDER = "."  # any single character is one piece, or [UNK]


def tokenize_with_masks(
    tokenizer: Tokenizer, units: Units, mask_id: int, *, with_places: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """As `tokenize_units`, with the id of [MASK] for each [MASK] in a unit."""
    counts = [unit.count(MASK) for unit in units.strings]
    if not any(counts):
        return tokenize_units(tokenizer, units, with_places=with_places)
    # Each unit as the strings before, between and after its masks, which take the odd places.
    parts: list[str] = []
    begins: list[int] = []  # of each part in its unit
    for unit in units.strings:
        begin = 0
        for number, text in enumerate(unit.split(MASK)):
            if number:
                parts.append(_PLACEHOLDER)
                begins.append(begin)
                begin += len(MASK)
            parts.append(text)
            begins.append(begin)
            begin += len(text)
    whole = replace(units, strings=parts)
    ids, lengths, starts, ends = tokenize_units(tokenizer, whole, with_places=with_places)
    parts_of = 2 * np.array(counts) + 1
    firsts = np.cumsum(parts_of) - parts_of
    is_mask = (np.arange(len(parts)) - np.repeat(firsts, parts_of)) % 2 == 1
    in_mask = np.repeat(is_mask, lengths)
    ids = np.where(in_mask, np.int32(mask_id), ids)
    if with_places:
        moved = np.repeat(np.array(begins, np.int32), lengths)
        ends = np.where(in_mask, np.int32(len(MASK)), ends) + moved
        starts = starts + moved
    return ids, np.add.reduceat(lengths, firsts), starts, ends

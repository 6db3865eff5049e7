"""Rows for scores: a row for each piece of a text, in which that piece is masked.

Salazar et al. 2020 (arXiv:1910.14659) mask the piece alone. Kauf and Ivanova 2023
(arXiv:2305.10588) also mask the rest of its word to the right, so that the pieces of a rare word do
not give each other away.

Shape legend: see `segments`.
"""

from dataclasses import replace

import numpy as np

from bert_features.batches.segments import Rows, expand_ranges


def rows_to_score(rows: Rows, mask_id: int, special_ids: list[int], *, by_word: bool) -> Rows:
    """Masks each piece of some examples in a row of its own.

    Args:
      rows: one row for each example, or its windows: a piece is masked in the window that owns it.
      mask_id: the id of [MASK].
      special_ids: the ids of [CLS] and [SEP], which have no score.
      by_word: whether the rest of the piece's word is masked too.

    Returns:
      The rows with `target_ids`. A row owns its piece and what stands before the next one; the
      first also has what stands before. An example or window without pieces keeps its row.
    """
    starts = np.cumsum(rows.lengths) - rows.lengths
    row_of_token = np.repeat(np.arange(len(starts)), rows.lengths)
    place = np.arange(len(rows.values)) - starts[row_of_token]
    own = (place >= rows.own_starts[row_of_token]) & (place < rows.own_ends[row_of_token])
    pieces = np.flatnonzero(own & ~np.isin(rows.values, special_ids))
    counts = np.bincount(row_of_token[pieces], minlength=len(starts))
    copies = np.maximum(counts, 1)
    source = np.repeat(np.arange(len(starts)), copies)
    number = np.arange(len(source)) - np.repeat(np.cumsum(copies) - copies, copies)
    targets = np.full(len(source), -1)  # the place of the masked piece in its row
    has_piece = counts[source] > 0
    targets[has_piece] = pieces - starts[row_of_token[pieces]]

    lengths = rows.lengths[source]
    tokens = expand_ranges(starts[source], lengths)
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
        target_ids=target_ids,
    )

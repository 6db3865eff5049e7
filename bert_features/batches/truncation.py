"""How many pieces of each text stay in a row: the official rule of truncation."""

from typing import TypeVar

import numpy as np

MIN_SEQ_LENGTH = 3  # [CLS], a token, [SEP]

_Lengths = TypeVar("_Lengths", int, np.ndarray)


def kept_lengths(
    length_a: _Lengths, length_b: _Lengths, seq_length: int
) -> tuple[_Lengths, _Lengths]:
    """Numbers of pieces that stay in a row of `seq_length` with [CLS] and its [SEP]s.

    The official rule removes one piece at a time from the end of the longer text, or of text_b
    where both are equally long. This is where that ends.

    Args:
      length_a: number of pieces of text_a, or an array of such numbers.
      length_b: number of pieces of text_b, in the same form.
      seq_length: length of the row.

    Returns:
      The numbers of pieces kept of text_a and of text_b, in the form of the arguments.
    """
    limit = seq_length - 2 - np.minimum(length_b, 1)
    kept_b = np.minimum(length_b, np.maximum(limit // 2, limit - length_a))
    return np.minimum(length_a, limit - kept_b), kept_b

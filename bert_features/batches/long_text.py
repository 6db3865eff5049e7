"""LongText: what happens to examples that do not fit a row."""

from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from bert_features.errors import ConfigError

MIN_SEQ_LENGTH = 3  # [CLS], a token, [SEP]

_Lengths = TypeVar("_Lengths", int, np.ndarray)

Policy = Literal["truncate", "tail", "head_tail", "window", "error"]


@dataclass(frozen=True)
class LongText:
    """What happens to examples that do not fit a row.

    Attributes:
      policy: `truncate` keeps the head of each text, `tail` its end, `head_tail` both; `window`
        makes several overlapping rows; `error` refuses the example.
      seq_length: tokens of the longest row.
      stride: pieces from the beginning of a window to the beginning of the next; by default half
        of the pieces that a window holds.

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
        """Number of pieces that a row holds between [CLS] and [SEP]."""
        return self.seq_length - (MIN_SEQ_LENGTH - 1)

    @property
    def max_copies(self) -> int:
        """Largest number of rows that one piece of a single text may stand in."""
        return -(-self.room // self.stride_in(self.room)) if self.policy == "window" else 1

    def stride_in(self, room: int) -> int:
        """The stride where a second text leaves only `room` pieces: smaller in proportion."""
        stride = self.room // 2 if self.stride is None else self.stride
        return max(1, stride * room // self.room)


def kept_lengths(
    length_a: _Lengths, length_b: _Lengths, seq_length: _Lengths | int, separators: int = 1
) -> tuple[_Lengths, _Lengths]:
    """Numbers of pieces that stay in a row of `seq_length` with [CLS] and its [SEP]s.

    The official rule removes one piece at a time from the end of the longer text, or of text_b
    where both are equally long. This is where that ends.

    Args:
      length_a: number of pieces of text_a, or an array of such numbers.
      length_b: number of pieces of text_b, in the same form.
      seq_length: length of the row, or of each row.
      separators: number of [SEP]s between the texts.

    Returns:
      The numbers of pieces kept of text_a and of text_b, in the form of the arguments.
    """
    limit = np.maximum(seq_length - 2 - separators * np.minimum(length_b, 1), 0)
    kept_b = np.minimum(length_b, np.maximum(limit // 2, limit - length_a))
    return np.minimum(length_a, limit - kept_b), kept_b

"""Whether a batch fits into a chip's memory, and the search for the largest one that does."""

import re
from collections.abc import Callable

_SIZE = r"([\d.]+)([KMGT]?)"
# "… required for HLO temporaries (230.32G) exceeds available HBM (15.75G)", where arguments and
# results are included; or, if it nearly fits, "Used 15.75G of 15.75G hbm".
_OUT_OF_MEMORY = re.compile(
    rf"\({_SIZE}\) exceeds available HBM \({_SIZE}\)|Used {_SIZE} of {_SIZE} hbm"
)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# The search ends when the largest batch is known to this share, or after this many compilations.
_CLOSE_ENOUGH = 0.02
_MAX_TRIES = 5


class DoesNotFitError(Exception):
    """A program that needs more HBM than a chip has; both in bytes."""

    def __init__(self, needed: float, available: float) -> None:
        super().__init__(needed, available)
        self.needed, self.available = needed, available


def out_of_memory(message: str) -> tuple[float, float] | None:
    """The bytes needed and available, from a compiler's error; None if it is another error."""
    found = _OUT_OF_MEMORY.search(message)
    if found is None:
        return None
    needed, needed_unit, available, available_unit = (x for x in found.groups() if x is not None)
    return float(needed) * _UNITS[needed_unit], float(available) * _UNITS[available_unit]


def largest_rows(
    memory_of: Callable[[int], tuple[float, float]],
    *,
    share: float,
    step: int,
    max_rows: int,
    fits: int = 0,
    too_many: int | None = None,
) -> int:
    """Finds the largest number of rows that fits, to within 2 %, in at most five tries.

    Args:
      memory_of: gives the bytes that a number of rows needs, and the bytes available; raises
        DoesNotFitError.
      share: part of the memory that `fits` or, if that is 0, `too_many` rows need.
      step: the result is a multiple of this.
      max_rows: largest number to try, a multiple of `step`.
      fits: a number of rows that fits; 0 if none is known.
      too_many: a number of rows that does not fit; None if none is known.

    Returns:
      The largest number that was tried and fits; `fits` if there was none.
    """
    guess = (fits or too_many or step) / share
    for _ in range(_MAX_TRIES):
        limit = max_rows if too_many is None else min(max_rows, too_many - step)
        rows = max(int(min(guess, limit)) // step * step, fits + step)
        if rows > limit:
            break
        try:
            needed, available = memory_of(rows)
            fits = rows
        except DoesNotFitError as error:
            needed, available = error.needed, error.available
            too_many = rows
        if too_many is not None and too_many - fits <= max(step, fits * _CLOSE_ENOUGH):
            break
        if available * (1 - _CLOSE_ENOUGH) < needed <= available:
            break
        guess = rows * available / needed
        if too_many is not None and not fits < guess < too_many:
            guess = (fits + too_many) / 2
    return fits

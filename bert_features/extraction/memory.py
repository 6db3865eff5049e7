"""Large arrays in memory that is used again and again.

Fresh memory costs a page fault for every 4 KiB, half a second for a million tokens of BERT-base. A
megabatch needs as much as the one before it, whose features have been written by then.
"""

import math
import weakref

import numpy as np
from numpy.typing import DTypeLike

# Smaller arrays come from the heap, which reuses its memory by itself.
_MIN_BYTES = 1 << 20
# Megabatches are nearly of one size; rounding up lets the next one fit.
_ROUND_BYTES = 16 << 20
# Free blocks of other sizes that are kept: the arrays of an output or two, and of its batches.
_MAX_PASSED = 4


class Memory:
    """Blocks of memory for arrays; a block is used again once its array is gone.

    That includes its views: the results of a megabatch may be in the hands of a writer, or of a
    user who keeps them, while the next megabatch is computed. Any thread may take or drop an array.
    """

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """An array whose values are whatever the memory holds; contiguous, in C order."""
        dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        if size < _MIN_BYTES:
            return np.empty(shape, dtype)
        block = self._block(size)
        # The base of a view is the lowest array below it. A memoryview (`data`) ends the search, so
        # that this array is found and not the block.
        base = np.frombuffer(block.data, dtype, math.prod(shape))
        weakref.finalize(base, _give_back, weakref.ref(self), block).atexit = False
        return base.reshape(shape)

    def _block(self, size: int) -> np.ndarray:
        """A block of at least this many bytes; of free ones that do not fit a few are kept.

        One of more than twice the size does not fit: small arrays would hold the memory of large
        ones, which would have to take more.
        """
        rounded = -(-size // _ROUND_BYTES) * _ROUND_BYTES
        passed: list[np.ndarray] = []
        while self._free:
            block = self._free.pop()
            if size <= len(block) <= 2 * rounded:
                self._free += passed[-_MAX_PASSED:]
                return block
            passed.append(block)
        self._free += passed[-_MAX_PASSED:]
        return np.empty(rounded, np.uint8)


def _give_back(memory: "weakref.ref[Memory]", block: np.ndarray) -> None:
    """Keeps a block, unless the `Memory` is gone: then the block goes with its array."""
    if (owner := memory()) is not None:
        owner._free.append(block)

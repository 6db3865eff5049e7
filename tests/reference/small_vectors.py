"""Small vectors as sentence-transformers documents `quantize_embeddings`, in plain NumPy.

"Scalar quantization (int8)": the range of each dimension of the calibration vectors is split into
255 steps. "Binary quantization": 1 for values above zero, packed by `numpy.packbits`. That package
cuts the fraction of a step off, and lets values outside the range wrap around. Here they are
rounded, and end at the range.
"""

import numpy as np


def to_int8(vectors, calibration, *, clip=True):
    """int8 [N, D], by loops over the dimensions in float64; unless `clip`, more bits and values."""
    codes = np.empty(vectors.shape, np.int8 if clip else np.int64)
    low, high = (-128, 127) if clip else (-(10**9), 10**9)
    for d, column in enumerate(np.asarray(vectors, np.float64).T):
        least, largest = float(calibration[:, d].min()), float(calibration[:, d].max())
        steps = (column - least) / ((largest - least) / 255)
        codes[:, d] = [min(max(round(s) - 128, low), high) for s in steps]
    return codes


def to_bits(vectors):
    """uint8 [N, D / 8 rounded up], the first dimension in the highest bit."""
    rows = [[int(value > 0) for value in row] for row in vectors]
    padded = [row + [0] * (-len(row) % 8) for row in rows]
    return np.array(
        [
            [int("".join(map(str, row[at : at + 8])), 2) for at in range(0, len(row), 8)]
            for row in padded
        ],
        np.uint8,
    )

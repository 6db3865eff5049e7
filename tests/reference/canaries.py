"""Canaries by their definition: which vector of a text stands for it, and its values' order."""

import numpy as np


def third(values, output):
    """The third vector of a text, or the last of fewer; zeros without any. Of pairs row by row."""
    if output.is_sequence:
        return values
    if output.is_paired:  # [D, S, S]
        values = np.moveaxis(values, 0, -1).reshape(-1, output.width)
    return values[min(2, len(values) - 1)] if len(values) else np.zeros(output.width, np.float32)


def order(width):
    """The dimensions in the order of a canary: by the fraction of i times the golden ratio."""
    return sorted(range(width), key=lambda i: (i * (5**0.5 - 1) / 2) % 1)

"""Numbers as `json.dumps` writes them, rounded to 6 decimals, many at a time.

Python formats about 3 million floats a second. Looking the digits up does 14 to 18 million: pieces
of four bytes, whose NUL bytes are then dropped.
"""

import numpy as np


def _pieces(texts: list[str]) -> np.ndarray:
    return np.frombuffer(b"".join(text.encode().ljust(4, b"\0") for text in texts), np.uint32)


def _bare(n: int) -> str:
    """Three decimals without trailing zeros."""
    return f"{n:03d}".rstrip("0")


_WHOLE = _pieces([f" {n}" for n in range(100)] + [f" -{n}" for n in range(100)])
# Decimals 1-3; the second half is for numbers whose other decimals are zeros.
_UPPER = _pieces([f".{n:03d}" for n in range(1000)] + [f".{_bare(n) or '0'}" for n in range(1000)])
_LOWER = _pieces([f"{_bare(n)}," for n in range(1000)])
# Below 100 millionths Python writes an exponent: 1e-06, 1.2e-05.
_TINY_SIGN = _pieces([" ", " -"])
_TINY_DIGITS = _pieces([f"{n / 10**6!r}".partition("-")[0] for n in range(100)])
_TINY_EXPONENT = _pieces(["-06,"] * 10 + ["-05,"] * 90)
_END_OF_ROW = _pieces(["\n"])


def convert_to_text(values: np.ndarray) -> list[str]:
    """Each row as `json.dumps([round(float(x), 6) for x in row])` writes it.

    float16, bfloat16 or float32 [rows, D], D > 0; NaN becomes null. Integers stay so.
    """
    if values.dtype.kind in "iu":
        return list(map(str, values.tolist()))
    exact = values.astype(np.float64)
    # A float32 (24 bits) times 10**6 (15625, 14 bits, times a power of two) is exact in float64's
    # 53 bits, so rint sees what round() sees and breaks the same ties to even.
    millionths = np.rint(np.abs(exact) * 1e6)
    large = ~(millionths < 100 * 10**6).all(axis=1)  # not in the tables, or NaN
    millionths[large] = 0
    pieces = _digits(millionths.astype(np.uint32), np.signbit(exact).astype(np.uint32))
    texts = pieces.tobytes().translate(None, b"\0").decode("ascii").splitlines()
    rows = [f"[{text[1:-1]}]" for text in texts]
    for i in np.flatnonzero(large).tolist():
        rows[i] = str([round(x, 6) for x in exact[i].tolist()]).replace("nan", "null")
    return rows


def _digits(millionths: np.ndarray, negative: np.ndarray) -> np.ndarray:
    """Numbers [rows, D], below 10**8, as pieces [rows, 3 * D + 1]: ` -12` `.345` `678,` … newline.

    `negative` is 0 or 1 for each.
    """
    whole, decimals = np.divmod(millionths, np.uint32(10**6))
    upper, lower = np.divmod(decimals, np.uint32(1000))
    pieces = np.empty((len(millionths), 3 * millionths.shape[1] + 1), np.uint32)
    first, second, third = (pieces[:, i:-1:3] for i in range(3))
    first[...] = _WHOLE[whole + 100 * negative]
    second[...] = _UPPER[upper + np.uint32(1000) * (lower == 0)]
    third[...] = _LOWER[lower]
    pieces[:, -1] = _END_OF_ROW

    tiny = np.nonzero((millionths > 0) & (millionths < 100))
    first[tiny] = _TINY_SIGN[negative[tiny]]
    second[tiny] = _TINY_DIGITS[millionths[tiny]]
    third[tiny] = _TINY_EXPONENT[millionths[tiny]]
    return pieces

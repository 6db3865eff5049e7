"""Unicode properties as small lookup tables for TensorFlow graphs.

The official tokenizer asks Python's `unicodedata` about one character at a time. The graph needs
the same answers for whole batches, so they are stored as two-stage tables, the layout that ICU and
CPython use: pages of 256 code points, and equal pages are stored once.
"""

import functools
import io
import sys
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from bert_features.files import from_cache

PAGE_BITS = 8
CODE_POINTS = 0x110000

# One bit per question; the names are the official tokenizer's function names where it has one.
DROPPED = 1  # NUL, U+FFFD and control characters (Cc, Cf) other than tab and line breaks
SPACE = 2  # what splits words
CHINESE = 4  # CJK ideographs; each is a word of its own
PUNCTUATION = 8  # each is a word of its own
MARK = 16  # non-spacing marks (Mn), stripped with the accents
REORDERED = 32  # spacing, yet of non-zero combining class: canonical ordering can move it
CASE_IGNORABLE = 64  # the final-sigma rule looks through it
CASED = 128  # the final-sigma rule counts it as a letter

# The only ideographs that decompose.
COMPATIBILITY_IDEOGRAPHS = ((0xF900, 0xFAFF), (0x2F800, 0x2FA1F))
CHINESE_RANGES = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    *COMPATIBILITY_IDEOGRAPHS,
)
FINAL_SIGMA = 0x3C2
CAPITAL_SIGMA = 0x3A3


@dataclass(frozen=True)
class TwoStageTable:
    """`values[pages[c >> 8] + (c & 255)]` is the property of code point `c`.

    Attributes:
      pages: int32 [4352], where the page of each 256 code points starts in `values`.
      values: [pages stored * 256].
    """

    pages: np.ndarray
    values: np.ndarray

    @classmethod
    def compress(cls, values: np.ndarray) -> "TwoStageTable":
        """Stores each distinct page of `values` [0x110000] once."""
        stored: dict[bytes, int] = {}
        pages = [
            stored.setdefault(page.tobytes(), len(stored) << PAGE_BITS)
            for page in values.reshape(-1, 1 << PAGE_BITS)
        ]
        return cls(
            pages=np.array(pages, np.int32),
            values=np.frombuffer(b"".join(stored), values.dtype),
        )

    def of(self, codes: np.ndarray) -> np.ndarray:
        """The property of each code point, int32 [C] -> [C]."""
        values: np.ndarray = self.values[self.pages[codes >> PAGE_BITS] + (codes & 255)]
        return values


@dataclass(frozen=True)
class Decompositions:
    """What a change of texts makes of each single code point.

    Attributes:
      lengths: how many code points come out.
      deltas: the first one minus the code point itself (so that most pages are zeros).
      tail_starts: where the others begin in `tails`.
      tails: int32, the others, one code point after the other.
    """

    lengths: TwoStageTable
    deltas: TwoStageTable
    tail_starts: TwoStageTable
    tails: np.ndarray


def is_punctuation(char: str, category: str) -> bool:
    """Whether it is punctuation in Unicode, or printable ASCII but no letter, digit or blank."""
    ascii_symbol = char.isascii() and char.isprintable() and not char.isalnum() and char != " "
    return ascii_symbol or category.startswith("P")


def _case_bits(char: str) -> int:
    # unicodedata lacks these two properties, but str.lower() shows them by what it does with a
    # capital sigma after the character: final only after a cased letter, looking through ignorable
    # ones.
    if (char + "Σ").lower().endswith("ς"):
        return CASED
    return CASE_IGNORABLE if ("a" + char + "Σ").lower().endswith("ς") else 0


def _bits(char: str, category: str) -> int:
    # The official code turns Zs into blanks and then calls str.split(), which also splits at the
    # line and paragraph separators.
    if char in " \t\n\r\u2028\u2029" or category == "Zs":
        return SPACE
    if category in ("Cc", "Cf") or char in "\0\ufffd":
        return DROPPED
    bits = _case_bits(char)
    if is_punctuation(char, category):
        bits |= PUNCTUATION
    if category == "Mn":
        bits |= MARK
    elif unicodedata.combining(char):
        bits |= REORDERED
    return bits


@functools.cache
def _characters() -> list[tuple[int, str, str]]:
    """(code point, character, category) of every assigned character but the CJK ideographs.

    Planes 4 to 13 are empty, planes 15 and 16 are private, and the ideographs are all alike:
    leaving them out saves nine tenths of the time.
    """
    ideographs = np.zeros(CODE_POINTS, bool)
    for first, last in CHINESE_RANGES:
        ideographs[first : last + 1] = True
    planes = [*range(4 << 16), *range(14 << 16, 15 << 16)]
    return [
        (code, char, category)
        for code in planes
        if not ideographs[code]
        and (category := unicodedata.category(char := chr(code))) not in ("Cn", "Co", "Cs")
    ]


@functools.cache
def table(
    name: Literal["properties", "combining_classes", "white_space"],
) -> TwoStageTable:
    """A property of every code point, by this Python's Unicode data.

    `properties` has the bits above and `combining_classes` the canonical combining class, uint8.
    `white_space` is whether str.split() splits there, uint8.
    """
    return _table(name)


@functools.cache
def decompositions(change: Literal["lower", "cased", "accented", "plain"]) -> Decompositions:
    """What a change makes of every code point.

    `lower` is lower-casing, then canonical decomposition (NFD); `cased` is NFD and `accented` is
    lower-casing, each alone; none vanishes. `plain` is compatibility decomposition (NFKD);
    combining marks vanish.
    """
    tables = {name: _table(f"{change}.{name}") for name in ("lengths", "deltas", "tail_starts")}
    return Decompositions(**tables, tails=_arrays()[f"{change}.tails"])


def _table(name: str) -> TwoStageTable:
    return TwoStageTable(_arrays()[f"{name}.pages"], _arrays()[f"{name}.values"])


@functools.cache
def _arrays() -> Mapping[str, np.ndarray]:
    """The arrays of all tables, by name: from the cache, else made in some 0.3 s."""
    sources = (
        sys.version.encode(),  # its unicodedata, and its str.lower()
        Path(__file__).read_bytes(),
    )
    with np.load(io.BytesIO(from_cache("unicode", sources, _make_arrays))) as arrays:
        return dict(arrays)


def _make_arrays() -> bytes:
    """The arrays of all tables, as an npz archive."""
    tables = {
        "properties": _make_properties(),
        "combining_classes": _make_table(unicodedata.combining, np.uint8),
        "white_space": _make_table(str.isspace, np.uint8),
    }
    arrays = {}
    for change, function in _CHANGES.items():
        made, arrays[f"{change}.tails"] = _make_decompositions(function)
        tables |= {f"{change}.{name}": table for name, table in made.items()}
    for name, table in tables.items():
        arrays |= {f"{name}.pages": table.pages, f"{name}.values": table.values}
    archive = io.BytesIO()
    np.savez(archive, **arrays)  # type: ignore[arg-type]
    return archive.getvalue()


def _make_properties() -> TwoStageTable:
    bits = np.zeros(CODE_POINTS, np.uint8)
    for code, char, category in _characters():
        bits[code] = _bits(char, category)
    for first, last in CHINESE_RANGES:
        bits[first : last + 1] = CHINESE
    return TwoStageTable.compress(bits)


def _make_table(value: Callable[[str], int], dtype: type[np.generic]) -> TwoStageTable:
    values = np.zeros(CODE_POINTS, dtype)
    for code, char, _ in _characters():
        values[code] = value(char)
    return TwoStageTable.compress(values)


_CHANGES: dict[str, Callable[[str], str]] = {
    "lower": lambda char: unicodedata.normalize("NFD", char.lower()),
    "cased": lambda char: unicodedata.normalize("NFD", char),
    "accented": str.lower,
    "plain": lambda char: "".join(
        c for c in unicodedata.normalize("NFKD", char) if not unicodedata.combining(c)
    ),
}


def _make_decompositions(
    change: Callable[[str], str],
) -> tuple[dict[str, TwoStageTable], np.ndarray]:
    """The tables of `Decompositions`, and its tails."""
    lengths = np.ones(CODE_POINTS, np.int32)
    deltas = np.zeros(CODE_POINTS, np.int32)
    tail_starts = np.zeros(CODE_POINTS, np.int32)
    tails: list[int] = []
    compatibility = [
        (code, chr(code), "Lo")
        for first, last in COMPATIBILITY_IDEOGRAPHS
        for code in range(first, last + 1)
    ]
    for code, char, _ in [*_characters(), *compatibility]:
        result = change(char)
        if result == char:
            continue
        lengths[code] = len(result)
        deltas[code] = ord(result[0]) - code if result else 0
        tail_starts[code] = len(tails)
        tails += map(ord, result[1:])
    columns = {"lengths": lengths, "deltas": deltas, "tail_starts": tail_starts}
    tables = {name: TwoStageTable.compress(column) for name, column in columns.items()}
    return tables, np.array(tails, np.int32)

"""Pages by hand: levels of a few vectors, from Parquet's specification of nested encoding."""

import zlib

import numpy as np
import pytest

from bert_features.formats.parquet_pages.pages import add_header, vector_pages
from bert_features.formats.parquet_pages.thrift import I32, STRUCT, decode_struct


def test_the_levels_of_lists() -> None:
    """Three examples with two vectors, none and one; a run is (count << 1, level)."""
    values: np.ndarray = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], np.float16)
    (page,) = vector_pages(values, np.array([0, 2, 2, 3]))
    header, levels, data = add_header(page).parts
    repetition = bytes.fromhex(
        "02 00 04 02"  # the first value begins an example, two continue the vector
        "02 01 04 02"  # the first value begins a vector of the same example
        "02 00"  # an example without vectors
        "02 00 04 02"
    )
    definition = bytes.fromhex("0c 05 02 01 06 05")  # 6 values, nothing, 3 values
    expected = [len(part).to_bytes(4, "little") + part for part in (repetition, definition)]
    assert levels == b"".join(expected)
    assert bytes(data) == values.tobytes()
    assert page.num_values == 10
    fields = decode_struct(header)
    assert fields[1] == (I32, 0)  # a data page
    assert fields[2] == fields[3] == (I32, len(levels) + len(data))
    crc = zlib.crc32(levels + values.tobytes())
    assert fields[4] == (I32, int.from_bytes(crc.to_bytes(4, "little"), "little", signed=True))
    assert fields[5] == (STRUCT, {1: (I32, 10), 2: (I32, 0), 3: (I32, 3), 4: (I32, 3)})


def test_the_levels_of_sequences() -> None:
    (page,) = vector_pages(np.ones((2, 2), np.float32), None)
    repetition = bytes.fromhex("02 00 02 01 02 00 02 01")
    definition = bytes.fromhex("08 03")
    expected = [len(part).to_bytes(4, "little") + part for part in (repetition, definition)]
    assert page.parts[1] == b"".join(expected)
    assert page.num_values == 4


@pytest.mark.parametrize(("page_bytes", "counts"), [(16, [4, 4, 2]), (32, [4, 6]), (40, [10])])
def test_a_page_ends_between_examples(
    monkeypatch: pytest.MonkeyPatch, page_bytes: int, counts: list[int]
) -> None:
    """Examples of two vectors and of three, 8 bytes each; 16 bytes are less than the second."""
    monkeypatch.setattr("bert_features.formats.parquet_pages.pages.PAGE_BYTES", page_bytes)
    pages = list(vector_pages(np.ones((5, 2), np.float32), np.array([0, 2, 5])))
    assert [page.num_values for page in pages] == counts

"""Compressed files of one stream or many: read whole, or refused."""

import io
import zlib

import pytest

from bert_features.readers.decompression import decompress
from tests.readers.inputs import COMPRESS

FIRST, SECOND = b"one\n" * 300, b"".join(b"line %d\n" % i for i in range(100))

compressions = pytest.mark.parametrize("suffix", COMPRESS)


def unpack(content, suffix):
    return decompress(io.BufferedReader(io.BytesIO(content)), suffix).read()


def unpack_or_none(content, suffix):
    """The decompressed bytes; None for content that is refused."""
    try:
        return unpack(content, suffix)
    except (OSError, EOFError, zlib.error):
        return None


@compressions
@pytest.mark.parametrize(
    "parts",
    [[b""], [FIRST], [FIRST, SECOND], [b"", FIRST, b"", b"", SECOND, b""], [FIRST] * 500],
    ids=["empty", "one", "two", "with empty ones", "many"],
)
def test_streams_that_are_joined(suffix, parts):
    content = b"".join(COMPRESS[suffix](part) for part in parts)
    assert unpack(content, suffix) == b"".join(parts)


@compressions
def test_a_stream_that_is_larger_than_every_buffer(suffix):
    whole = bytes(range(256)) * 2000 + b"\0" * 1_000_000
    assert unpack(COMPRESS[suffix](whole) + COMPRESS[suffix](whole), suffix) == whole + whole


@compressions
def test_a_damaged_second_stream_never_ends_the_file_silently(suffix):
    """Each byte of the second stream in turn; some, as the time in gz, may hold any value."""
    first, second = COMPRESS[suffix](FIRST), COMPRESS[suffix](SECOND)
    refused = 0
    for position in range(len(second)):
        damaged = bytearray(second)
        damaged[position] ^= 0xFF
        content = unpack_or_none(first + damaged, suffix)
        refused += content is None
        # A zst file as pyarrow writes it has no checksum: other values, but not fewer.
        assert content is None or len(content) == len(FIRST + SECOND), position
        assert content is None or content == FIRST + SECOND or suffix == ".zst", position
    assert refused > len(second) // 10
    assert unpack_or_none(first + b"\xff" + second[1:], suffix) is None


@compressions
def test_a_file_that_is_cut_off(suffix):
    first, second = COMPRESS[suffix](FIRST), COMPRESS[suffix](SECOND)
    for length in range(1, len(second)):
        assert unpack_or_none(first + second[:length], suffix) is None, length
    assert unpack(first, suffix) == FIRST


@compressions
@pytest.mark.parametrize("rest", [b"rest", b"\0\0\0\0rest", b"\0" * 70_000 + b"x", b"x"])
def test_something_after_the_last_stream(suffix, rest):
    assert unpack_or_none(COMPRESS[suffix](FIRST) + rest, suffix) is None


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
@pytest.mark.parametrize("count", [4, 512, 1 << 17])
def test_zeros_after_a_stream_are_padding(suffix, count):
    first, second = COMPRESS[suffix](FIRST), COMPRESS[suffix](SECOND)
    assert unpack(first + b"\0" * count, suffix) == FIRST
    assert unpack(first + b"\0" * count + second, suffix) == FIRST + SECOND


@pytest.mark.parametrize(("suffix", "count"), [(".xz", 3), (".xz", 5), (".zst", 4)])
def test_zeros_that_the_format_does_not_allow(suffix, count):
    assert unpack_or_none(COMPRESS[suffix](FIRST) + b"\0" * count, suffix) is None

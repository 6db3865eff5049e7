"""CRC-32C of bytes and of files, against published values."""

import pytest

from bert_features.files import checksums
from bert_features.files.checksums import checksum, checksum_of_ends, masked_checksum

NUMBERS = b"123456789"


def test_the_published_check_value():
    """CRC-32/ISCSI of Greg Cook's catalogue; RFC 3720 has that of 32 zeros."""
    assert checksum(NUMBERS) == checksum(NUMBERS[4:], checksum(NUMBERS[:4])) == 0xE3069283
    assert checksum(b"\0" * 32) == 0x8A9136AA
    assert checksum(memoryview(bytearray(NUMBERS)), checksum(memoryview(b""))) == 0xE3069283


def test_the_masked_checksum_of_a_length_is_that_of_tensorflow():
    """The first 12 bytes of a TFRecord with 3 bytes, as TensorFlow 2.20 writes them."""
    assert masked_checksum((3).to_bytes(8, "little")).to_bytes(4, "little").hex() == "b099490e"


@pytest.mark.parametrize("size", [0, 7, 8, 9, 15, 16, 17, 40])
def test_the_checksum_of_both_ends(tmp_path, monkeypatch, size):
    monkeypatch.setattr(checksums, "END_BYTES", 8)
    content = bytes(range(size))
    (tmp_path / "f").write_bytes(content)
    ends = content if size <= 16 else content[:8] + content[-8:]
    assert checksum_of_ends(tmp_path / "f") == (size, f"{checksum(ends):08x}")


def test_the_ends_have_64_kib(tmp_path):
    content = bytes(range(251)) * 1000
    (tmp_path / "f").write_bytes(content)
    ends = content[:65536] + content[-65536:]
    assert checksum_of_ends(tmp_path / "f") == (251_000, f"{checksum(ends):08x}")

"""CRC-32C of bytes and of files.

It finds every change of up to 32 bits in a row, and all but one in 4 billion of any others.
"""

import os
from pathlib import Path
from typing import Any

BLOCK_BYTES = 1 << 20
END_BYTES = 64 << 10


def checksum(data: bytes | memoryview, so_far: int = 0) -> int:
    """The CRC-32C of some bytes, which may continue others."""
    import google_crc32c

    readable: Any = data
    if isinstance(data, memoryview):  # the library refuses it, but takes an array of its bytes
        import numpy as np

        readable = np.asarray(data)
    crc: int = google_crc32c.extend(so_far, readable)
    return crc


def masked_checksum(data: bytes) -> int:
    """The CRC-32C of some bytes as TFRecord holds it."""
    # Rotated and a constant added, so that it differs from the CRC of bytes that hold a CRC.
    crc = checksum(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def as_hex(crc: int) -> str:
    """A checksum as files hold it: eight hexadecimal digits."""
    return f"{crc:08x}"


def checksum_of_file(path: Path) -> str:
    """The checksum of all bytes of a file."""
    crc = 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(BLOCK_BYTES):
            crc = checksum(block, crc)
    return as_hex(crc)


def checksum_of_ends(path: Path) -> tuple[int, str]:
    """The size of a file, and the checksum of its first and last 64 KiB.

    It is the checksum of the whole file, if that is not larger than both.
    """
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        crc = checksum(file.read(END_BYTES))
        if size > END_BYTES:
            file.seek(max(size - END_BYTES, END_BYTES))
            crc = checksum(file.read(END_BYTES), crc)
    return size, as_hex(crc)

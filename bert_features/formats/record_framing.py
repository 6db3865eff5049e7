"""TFRecords without TensorFlow: where records and fields begin, and whether their bytes are right.

Around each record there is its length, uint64, the checksum of these 8 bytes, the record and the
checksum of that; both are masked CRC-32C, uint32, and all is little-endian. A record is a
`tf.train.Example`: Example {1: Features {1: map entry {1: name, 2: Feature}, ...}},
Feature {1: BytesList {1: bytes, ...}} or Feature {3: Int64List {1: packed varints}}.
"""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

LENGTH = struct.Struct("<QI")
CHECKSUM = struct.Struct("<I")

# A field's tag is its number and how it is written: 2 is a length and as many bytes.
_LENGTH_DELIMITED = 2


def find_example_feature(data: Any, start: int, stop: int, name: bytes) -> range:
    """Where in `data` the `Feature` of a name lies, of the Example at start:stop.

    Raises:
      ValueError: it is not there, or this is not an Example.
    """
    for _, features in _fields(data, start, stop):
        for _, entry in _fields(data, features.start, features.stop):
            parts = dict(_fields(data, entry.start, entry.stop))
            if 1 in parts and 2 in parts and data[parts[1].start : parts[1].stop] == name:
                return parts[2]
    raise ValueError(f"an example has no {name.decode()}")


def parse_feature(data: bytes) -> list[int] | list[bytes]:
    """The values of a serialized `tf.train.Feature` of integers or bytes.

    Raises:
      ValueError: it is something else.
    """
    ((kind, values),) = _fields(data, 0, len(data))
    fields = _fields(data, values.start, values.stop)
    if kind == 1:
        return [data[where.start : where.stop] for _, where in fields]
    if kind == 3:
        return [
            number for _, where in fields for number in _integers(data, where.start, where.stop)
        ]
    raise ValueError(f"a feature has values of kind {kind}")


def _fields(data: Any, start: int, stop: int) -> Iterator[tuple[int, range]]:
    """The number of each field of the message at start:stop, and where its bytes lie."""
    while start < stop:
        tag, start = _varint(data, start)
        if tag & 7 != _LENGTH_DELIMITED:
            raise ValueError(f"a field is written in way {tag & 7}")
        length, start = _varint(data, start)
        if start + length > stop:
            raise ValueError("a field is longer than what holds it")
        yield tag >> 3, range(start, start + length)
        start += length


def _integers(data: bytes, start: int, stop: int) -> Iterator[int]:
    while start < stop:
        value, start = _varint(data, start)
        yield value - (1 << 64) if value >> 63 else value


def _varint(data: Any, start: int) -> tuple[int, int]:
    """A number of seven bits a byte, least first, the top bit of all but the last set; its end."""
    value = shift = 0
    while True:
        byte = data[start]
        start += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, start
        shift += 7


def check_frame(framed: bytes) -> bytes:
    """The record inside its frame, after its checksums were looked at.

    Raises:
      ValueError: one is wrong.
    """
    length, of_length = LENGTH.unpack_from(framed)
    data = framed[LENGTH.size : LENGTH.size + length]
    (of_data,) = CHECKSUM.unpack_from(framed, LENGTH.size + length)
    received = [mask_crc(compute_crc32c(part)) for part in (framed[:8], data)]
    if received != [of_length, of_data]:
        raise ValueError("the checksum of a record is not that of its bytes")
    return data


def mask_crc(crc: int) -> int:
    """A CRC as TFRecords have it: rotated, and a constant added, so that it is not a CRC's CRC."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _make_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1)
    return table


_TABLE = _make_table()
_BITS = np.arange(32, dtype=np.uint32)


def compute_crc32c(data: bytes) -> int:
    """The CRC-32C (Castagnoli) of `data`, of which many parts are processed side by side.

    A CRC without its first and last inversion is linear: zeros in front change nothing, and that of
    a whole is that of its right half XOR that of its left half moved on by the right one's length.
    """
    if len(data) < 4:
        return _compute_short_crc(data)
    # 2**lanes parts of `steps` bytes: more parts than steps, as a step costs little more for them.
    lanes = len(data).bit_length() // 2 + 2
    steps = -(-len(data) >> lanes)  # rounded up
    padded = np.zeros(steps << lanes, np.uint8)
    begin = len(padded) - len(data)
    padded[begin:] = np.frombuffer(data, np.uint8)
    padded[begin : begin + 4] ^= 0xFF  # the first inversion
    # Below the parts each single bit with no data: where `steps` bytes move it to.
    columns = np.zeros((steps, (1 << lanes) + 32), np.uint8)
    columns[:, : 1 << lanes] = padded.reshape(1 << lanes, steps).T
    state = np.zeros((1 << lanes) + 32, np.uint32)
    state[1 << lanes :] = np.uint32(1) << _BITS
    for column in columns:
        state = _TABLE[(state ^ column) & 0xFF] ^ (state >> 8)
    crcs, moved = state[: 1 << lanes], state[1 << lanes :]
    while len(crcs) > 1:
        crcs = _move(crcs[0::2], moved) ^ crcs[1::2]
        moved = _move(moved, moved)
    return int(crcs[0]) ^ 0xFFFFFFFF


def _move(crcs: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """CRCs [n] moved on by as many bytes as those of the single bits, `moved` [32], have been."""
    bits = (crcs[:, None] >> _BITS) & np.uint32(1)
    result: np.ndarray = np.bitwise_xor.reduce(bits * moved, axis=1)
    return result


def _compute_short_crc(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = int(_TABLE[(crc ^ byte) & 0xFF]) ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF

"""Thrift's compact protocol, the part that headers and footers of Parquet use.

A struct is a dict from a field's number to its `(type, value)`. A list is `(type, values)` of its
elements. https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

import io
from collections.abc import Callable
from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST = range(1, 10)
STRUCT = 12

Struct = dict[int, tuple[int, Any]]

_SHORT = 15  # a list up to this length has its length in the first byte
_DOUBLE_BYTES = 8


def encode_struct(fields: Struct) -> bytes:
    """The bytes of a struct. A struct inside it may be bytes already."""
    out = bytearray()
    last = 0
    for number, (kind, value) in sorted(fields.items()):
        step = number - last
        if 0 < step <= _SHORT:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            out += _signed(number)
        if kind not in (TRUE, FALSE):  # the type is the value
            out += _encode(kind, value)
        last = number
    out.append(0)
    return bytes(out)


def encode_unsigned(value: int) -> bytes:
    """A number of at least 0 in groups of 7 bits, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_struct(data: bytes, start: int = 0) -> Struct:
    """The struct at `start`; raises KeyError or IndexError if there is none that Parquet uses."""
    file = io.BytesIO(data)
    file.seek(start)
    return _read_struct(file)


def _signed(value: int) -> bytes:
    return encode_unsigned(value << 1 if value >= 0 else (-value << 1) - 1)


def _list(value: tuple[int, list[Any]]) -> bytes:
    kind, items = value
    length = len(items)
    head = bytes([length << 4 | kind]) if length < _SHORT else bytes([0xF0 | kind])
    head += b"" if length < _SHORT else encode_unsigned(length)
    return head + b"".join([_encode(kind, item) for item in items])


def _encode(kind: int, value: Any) -> bytes:
    if kind == STRUCT and isinstance(value, bytes):
        return value
    return _ENCODERS[kind](value)


_ENCODERS: dict[int, Callable[[Any], bytes]] = {
    **dict.fromkeys((TRUE, FALSE), lambda value: bytes([TRUE if value else FALSE])),
    BYTE: lambda value: bytes([value]),
    **dict.fromkeys((I16, I32, I64), _signed),
    DOUBLE: bytes,
    BINARY: lambda value: encode_unsigned(len(value)) + value,
    LIST: _list,
    STRUCT: encode_struct,
}


def _read_struct(file: io.BytesIO) -> Struct:
    fields: Struct = {}
    number = 0
    while head := _read_byte(file):
        step, kind = head >> 4, head & 0xF
        number = number + step if step else _read_signed(file)
        value = kind == TRUE if kind in (TRUE, FALSE) else _DECODERS[kind](file)
        fields[number] = (kind, value)
    return fields


def _read_list(file: io.BytesIO) -> tuple[int, list[Any]]:
    head = _read_byte(file)
    length, kind = head >> 4, head & 0xF
    length = _read_unsigned(file) if length == _SHORT else length
    return kind, [_DECODERS[kind](file) for _ in range(length)]


def _read_byte(file: io.BytesIO) -> int:
    return file.read(1)[0]


def _read_unsigned(file: io.BytesIO) -> int:
    value = shift = 0
    while (byte := _read_byte(file)) & 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
    return value | byte << shift


def _read_signed(file: io.BytesIO) -> int:
    value = _read_unsigned(file)
    return value >> 1 if value & 1 == 0 else -(value + 1 >> 1)


_DECODERS: dict[int, Callable[[io.BytesIO], Any]] = {
    **dict.fromkeys((TRUE, FALSE), lambda file: _read_byte(file) == TRUE),
    BYTE: _read_byte,
    **dict.fromkeys((I16, I32, I64), _read_signed),
    DOUBLE: lambda file: file.read(_DOUBLE_BYTES),
    BINARY: lambda file: file.read(_read_unsigned(file)),
    LIST: _read_list,
    STRUCT: _read_struct,
}

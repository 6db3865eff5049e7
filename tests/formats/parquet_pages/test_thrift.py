"""Thrift's compact protocol, against bytes made by hand from its specification."""

import pytest

from bert_features.formats.parquet_pages.thrift import (
    BINARY,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    Struct,
    decode_struct,
    encode_struct,
)

CASES: list[tuple[Struct, str]] = [
    ({}, "00"),
    ({1: (I32, 0), 2: (I32, -1)}, "15 00 15 01 00"),
    ({1: (I64, 150)}, "16 ac02 00"),  # zigzag: 300
    ({3: (I16, -300)}, "34 d704 00"),  # zigzag: 599
    ({16: (TRUE, True), 17: (FALSE, False)}, "01 20 12 00"),  # a step of 16 is too long for 4 bits
    ({1: (BINARY, b"ab")}, "18 02 6162 00"),
    ({1: (LIST, (I32, [1, 2]))}, "19 25 02 04 00"),
    ({1: (LIST, (I32, [0] * 15))}, "19 f5 0f" + "00" * 15 + "00"),
    ({1: (STRUCT, {2: (I32, 1)})}, "1c 25 02 00 00"),
]


@pytest.mark.parametrize(("fields", "encoded"), CASES)
def test_structs(fields: Struct, encoded: str) -> None:
    assert encode_struct(fields) == bytes.fromhex(encoded)
    assert decode_struct(b"xx" + bytes.fromhex(encoded) + b"xx", 2) == fields


def test_a_struct_that_is_encoded_already() -> None:
    inner: Struct = {2: (I32, 1)}
    again = encode_struct({1: (LIST, (STRUCT, [encode_struct(inner)]))})
    assert again == encode_struct({1: (LIST, (STRUCT, [inner]))})


def test_a_struct_that_breaks_off() -> None:
    with pytest.raises(IndexError):
        decode_struct(bytes.fromhex("15 00"))

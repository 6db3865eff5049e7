"""An input cut into parts; each can be read without the lines before it."""

import codecs
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

from bert_features.config.input_format import INPUT_FORMATS
from bert_features.errors import InputError
from bert_features.files.checksums import as_hex, checksum
from bert_features.readers import registry
from bert_features.readers.ids import Ids
from bert_features.readers.lines import InputPart, Place
from bert_features.readers.opening import is_compressed
from bert_features.readers.source import Source

_LINES = 64  # held at a time
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True)
class CutPart:
    """A part of an input, as it was when the input was cut.

    Attributes:
      part: the part; the number of its examples is known.
      crc32c: the CRC-32C of its lines; in Parquet of what is read of its rows.
      id_type: whether its ids are `int` or `str`.
    """

    part: InputPart
    crc32c: str
    id_type: Literal["int", "str"]


def can_be_cut(source: Source) -> bool:
    """Whether an input can be read from the middle."""
    return INPUT_FORMATS[source.input_format.format].can_be_cut and not is_compressed(source.path)


def cut(source: Source, size: int, *, first: int = 0, ids: Ids | None = None) -> Iterator[CutPart]:
    """Cuts an input; reads it whole, so that every fault is found.

    Each part has `size` examples, the last one fewer. An input that cannot be read from the middle
    stays in one part. The next number of `ids`, see `registry.read`, is `first`.

    Raises:
      InputError: the input cannot be read, is not of its format, or has wrong ids.
    """
    if source.input_format.format == "text" and can_be_cut(source):
        parts = _cut_lines(source, size, first)
        if parts:
            if ids is not None:
                ids.go_on(source)
                for part in parts:
                    ids.of_lines(part.part.line + 1, part.part.records or 0)
            yield from parts
            return
    yield from _cut_by_examples(source, size, first=first, ids=ids)


def _cut_lines(source: Source, size: int, first: int) -> list[CutPart] | None:
    """The parts of a text file, each of whose lines is an example without an id of its own.

    Some ten times as fast as making the examples, see `_cut_by_examples`. None if a line may have
    to be refused: making the examples then says which, and why.
    """
    lines = source.raw_lines()
    parts: list[CutPart] = []
    offset = number = 0
    try:
        while True:
            start, crc, count = offset, 0, 0
            part = islice(lines, size)
            while some := list(islice(part, _LINES)):
                content = b"".join(some)
                content.decode()
                if 0 in content or (not offset and content.startswith(_UTF16)):
                    return None
                crc = checksum(content, crc)
                offset += len(content)
                count += len(some)
            if not count:
                return parts
            cut_out = InputPart(first + number, count, start, offset, number)
            parts.append(CutPart(cut_out, as_hex(crc), "int"))
            number += count
    except (InputError, UnicodeDecodeError):
        return None


def _cut_by_examples(
    source: Source, size: int, *, first: int, ids: Ids | None
) -> Iterator[CutPart]:
    whole, place = not can_be_cut(source), Place()
    examples = registry.read(replace(source, part=InputPart(first), place=place), ids)
    with contextlib.closing(examples):  # type: ignore[type-var]  # it is a generator
        number = first
        while True:
            start, line, place.crc = place.offset, place.line, 0
            part = islice(examples, None if whole else size)
            id_type: Literal["int", "str"] = "int"
            count = 0
            for count, example in enumerate(part, start=1):  # noqa: B007 - it is used below
                id_type = "str" if isinstance(example.unique_id, str) else "int"
            if count == 0 and number > first:
                return
            input_part = InputPart(number, count, start, place.offset, line)
            if whole or source.unit == "row":
                input_part = InputPart(number, count, line=0 if whole else line)
            yield CutPart(input_part, as_hex(place.crc), id_type)
            number += count
            if count == 0:
                return

"""The lines of input files: of bounded length, decoded, refused where they are not UTF-8."""

import codecs
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bert_features.errors import InputError
from bert_features.files.checksums import checksum
from bert_features.readers.contents import check_no_features
from bert_features.readers.opening import is_cheap_to_count, name_of, open_bytes, reading

EncodingErrors = Literal["strict", "replace"]

# UTF-32 first: its mark for little-endian begins with the mark of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
_SAMPLE_BYTES = 1 << 16  # searched for NULs, and the rest of the line that they end in
# Shares of NULs among all bytes. In UTF-16 each blank and line end has one, whatever the script;
# text in UTF-8 has none. ASCII has one half NULs in UTF-16 and three quarters in UTF-32.
_UTF16_SHARE, _UTF32_SHARE = 0.02, 0.6
_MIN_NULS = 2


@dataclass(frozen=True)
class InputPart:
    """Examples of an input that follow each other, on whole lines.

    Attributes:
      first: the number of the first example, unless it has an id of its own.
      records: the number of examples; None for all that are left.
      start: where their first line begins, in bytes; 0 if the file can be read only from its
        beginning, and in Parquet, which has rows instead of lines.
      end: where their last line ends; None for the end of the file.
      line: number of lines or rows before them.
    """

    first: int = 0
    records: int | None = None
    start: int = 0
    end: int | None = None
    line: int = 0


WHOLE = InputPart()


@dataclass
class Place:
    """How far a file has been read.

    Attributes:
      offset: the number of bytes so far.
      crc: the CRC-32C of the lines since it was last set to 0.
    """

    offset: int = 0
    line: int = 0
    crc: int = 0

    def pass_line(self, line: bytes) -> None:
        """Moves to the end of the next line."""
        self.offset += len(line)
        self.line += 1
        self.crc = checksum(line, self.crc)


def read_lines(
    path: str | Path,
    *,
    encoding_errors: EncodingErrors,
    max_line_bytes: int,
    part: InputPart,
    place: Place | None,
) -> Iterator[str]:
    r"""Reads the lines of a file, one at a time, "\n" included.

    Args:
      path: a UTF-8 file or its address, which may be compressed, or `-` for standard input.
      encoding_errors: what to do with bytes that are not UTF-8: `strict` refuses the file,
        `replace` puts U+FFFD in their place (which the tokenizer drops).
      max_line_bytes: the longest line that is read, "\n" included.
      part: the lines to read.
      place: moved past each line before the line is given.

    Raises:
      InputError: the file cannot be read, has a longer line, holds bytes that are not UTF-8, or
        looks like UTF-16, UTF-32 or features.
    """
    name = name_of(path)
    sample, offset = b"", part.start
    lines = read_raw_lines(path, max_line_bytes, part)
    for number, line in enumerate(lines, start=part.line + 1):
        if place is not None:
            place.pass_line(line)
        if part.start == 0 and offset < _SAMPLE_BYTES:
            sample += line
            if number == 1 or 0 in line:
                check_no_features(name, sample)
                _check_encoding(name, number, sample)
        try:
            yield line.decode("utf-8", encoding_errors)
        except UnicodeDecodeError as error:
            raise InputError.naming(
                "{name}, line {line}: byte {byte:#04x} at file offset {offset} is not UTF-8; "
                "convert the file, or pass {encoding_errors:'replace'}",
                name=name,
                line=number,
                byte=line[error.start],
                offset=offset + error.start,
            ) from error
        offset += len(line)


def read_raw_lines(
    path: str | Path, max_line_bytes: int, part: InputPart = WHOLE
) -> Iterator[bytes]:
    """The same lines, not decoded; no more than `max_line_bytes` of a line are ever held.

    Raises InputError if the file cannot be read, or has a longer line.
    """
    with open_bytes(path) as file, reading(path):
        if part.start:
            file.seek(part.start)
        left = math.inf if part.end is None else part.end - part.start
        read_line = functools.partial(file.readline, max_line_bytes + 1)
        for number, line in enumerate(iter(read_line, b""), start=part.line + 1):
            if len(line) > max_line_bytes:
                problem = too_long("the line", max_line_bytes, missing="a line end")
                raise InputError.naming(
                    "{name}, line {line}: {problem}",
                    name=name_of(path),
                    line=number,
                    problem=problem,
                )
            left -= len(line)
            if left < 0:
                return
            yield line


def too_long(what: str, max_line_bytes: int, *, missing: str) -> InputError:
    """The error that refuses a line, or several that belong together, without its place."""
    return InputError.naming(
        "{what} is longer than {limit:,} bytes; is {missing} missing? If not, pass a larger "
        "{max_line_bytes}",
        what=what,
        limit=max_line_bytes,
        missing=missing,
    )


def size_of(line: str) -> int:
    """Number of bytes of a decoded line."""
    return len(line) if line.isascii() else len(line.encode("utf-8", "replace"))


def count_lines(path: str | Path) -> int | None:
    """Number of lines that `read_lines` will give; None where counting is not cheap.

    Raises InputError if the file cannot be read.
    """
    if not is_cheap_to_count(path):
        return None
    count, last = 0, b"\n"
    with open_bytes(path) as file, reading(path):
        while block := file.read(1 << 20):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")


def _check_encoding(name: str, number: int, sample: bytes) -> None:
    encoding = _encoding_of(sample)
    if encoding is not None:
        raise InputError(
            f"{name}, line {number}: this looks like {encoding}, not UTF-8: it begins with a byte "
            f"order mark or has many NULs; convert it: iconv -f {encoding} -t UTF-8 FILE > NEW"
        )


def _encoding_of(sample: bytes) -> str | None:
    """The likely encoding of a file, as iconv names it; None if nothing speaks against UTF-8."""
    mark = next((name for mark, name in _MARKS.items() if sample.startswith(mark)), None)
    nuls = [sample[i::4].count(0) for i in range(4)]
    if mark or sum(nuls) < max(_MIN_NULS, _UTF16_SHARE * len(sample)):
        return mark
    if sum(nuls) > _UTF32_SHARE * len(sample):
        return "UTF-32LE" if nuls[3] >= nuls[0] else "UTF-32BE"
    return "UTF-16LE" if nuls[1] + nuls[3] > nuls[0] + nuls[2] else "UTF-16BE"

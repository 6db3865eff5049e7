"""Lines of input files: parts of a file, places in it, and what they look like if not UTF-8."""

import codecs
from dataclasses import dataclass

from bert_features.errors import InputError
from bert_features.files.checksums import checksum

# UTF-32 first: its mark for little-endian begins with the mark of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
SAMPLE_BYTES = 1 << 16  # searched for NULs, and the rest of the line that they end in
RETURNS = (
    "it has \\r where no line ends, as a file whose lines end in \\r alone; convert it: "
    "tr '\\r' '\\n' < FILE > NEW"
)
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


def too_long(what: str, max_line_bytes: int, *, missing: str) -> InputError:
    """The error that refuses a line, or several that belong together, without its place."""
    return InputError(
        f"{what} is longer than {max_line_bytes:,} bytes; is {missing} missing? If not, pass a "
        "larger max_line_bytes"
    )


def size_of(line: str) -> int:
    """Number of bytes of a decoded line."""
    return len(line) if line.isascii() else len(line.encode("utf-8", "replace"))


def encoding_of(sample: bytes) -> str | None:
    """The likely encoding of a file, as iconv names it; None if nothing speaks against UTF-8."""
    mark = next((name for mark, name in _MARKS.items() if sample.startswith(mark)), None)
    nuls = [sample[i::4].count(0) for i in range(4)]
    if mark or sum(nuls) < max(_MIN_NULS, _UTF16_SHARE * len(sample)):
        return mark
    if sum(nuls) > _UTF32_SHARE * len(sample):
        return "UTF-32LE" if nuls[3] >= nuls[0] else "UTF-32BE"
    return "UTF-16LE" if nuls[1] + nuls[3] > nuls[0] + nuls[2] else "UTF-16BE"

"""Source: the input that a reader reads, with the settings that it needs."""

import abc
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bert_features.config.input_format import INPUT_FORMATS, InputFormat
from bert_features.errors import InputError
from bert_features.files import is_url
from bert_features.readers.contents import check_no_features
from bert_features.readers.lines import (
    SAMPLE_BYTES,
    WHOLE,
    InputPart,
    Place,
    encoding_of,
    too_long,
)
from bert_features.readers.opening import is_stream, name_of, open_bytes, reading


class Origin(abc.ABC):
    """What examples come from, a file or a table in memory: it names itself in errors.

    Attributes:
      first_row: the number of its first line or row.
      cure: what to do about an error, after its message.
    """

    input_format: InputFormat
    first_row = 1
    cure = ""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Its name in errors."""

    @property
    def unit(self) -> str:
        """The unit of its positions: `row` or `line`."""
        return "row"

    def error(self, problem: object, line: int | None = None) -> InputError:
        """An error that names it, and the line or row if there is one."""
        where = "" if line is None else f", {self.unit} {line}"
        if line is not None and self.first_row == 0:
            where += " (counted from 0)"
        return InputError(f"{self.name}{where}: {problem}{self.cure}")


@dataclass(frozen=True)
class Source(Origin):
    """An input to read examples from.

    Attributes:
      path: a file, an address such as `gs://bucket/file`, or `-` for standard input.
      input_format: its format, decided: not `auto`.
      part: the examples to read.
      place: moved past each line as it is read.
      by_suffix: whether its suffix decided its format.
    """

    path: str | Path
    input_format: InputFormat
    part: InputPart = WHOLE
    place: Place | None = None
    by_suffix: bool = False

    @property
    def can_reopen(self) -> bool:
        """Whether reading some lines ahead costs nothing: a file of this machine."""
        return not (is_url(self.path) or is_stream(self.path))

    @property
    def first_line(self) -> int:
        """The number of the first line, or row, that is read; from 1."""
        return self.part.line + 1

    def lines(self, *, with_mark: bool = False) -> Iterator[str]:
        """Its lines, decoded, with a byte order mark or without; moves its place past each.

        Raises InputError if the file cannot be read, has a line that is too long, holds bytes that
        are not UTF-8, or looks like UTF-16, UTF-32 or features.
        """
        sample, start, place = b"", self.part.start, self.place
        offset = start
        for number, line in enumerate(self.raw_lines(), start=self.first_line):
            if place is not None:
                place.pass_line(line)
            if start == 0 and offset < SAMPLE_BYTES:
                sample += line
                if number == 1 or 0 in line:
                    check_no_features(self.name, sample)
                    if encoding := encoding_of(sample):
                        raise self.error(
                            f"this looks like {encoding}, not UTF-8: it begins with a byte order "
                            "mark or has many NULs; convert it: "
                            f"iconv -f {encoding} -t UTF-8 FILE > NEW",
                            number,
                        )
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                raise self.error(
                    f"byte {line[error.start]:#04x} at file offset {offset + error.start} is not "
                    "UTF-8; if the file has another encoding: iconv -f latin1 -t UTF-8 FILE > NEW; "
                    "to drop such bytes: iconv -c -f UTF-8 -t UTF-8 FILE > NEW",
                    number,
                ) from error
            yield text if with_mark or offset else text.removeprefix("\ufeff")
            offset += len(line)

    def raw_lines(self) -> Iterator[bytes]:
        r"""Its lines, "\n" included; no more of a line is ever held than is allowed.

        Raises InputError if the file cannot be read, or has a longer line.
        """
        part, limit = self.part, self.input_format.max_line_bytes
        with open_bytes(self.path) as file, reading(self.path):
            if part.start:
                file.seek(part.start)
            left = math.inf if part.end is None else part.end - part.start
            read_line = functools.partial(file.readline, limit + 1)
            for number, line in enumerate(iter(read_line, b""), start=self.first_line):
                if len(line) > limit:
                    raise self.error(too_long("the line", limit, missing="a line end"), number)
                left -= len(line)
                if left < 0:
                    return
                yield line

    @property
    def name(self) -> str:
        """Its name in errors."""
        return name_of(self.path)

    @property
    def unit(self) -> str:
        """The unit of its positions: `row` or `line`."""
        return INPUT_FORMATS[self.input_format.format].unit

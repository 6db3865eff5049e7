"""Source: the input that a reader reads, with the settings that it needs."""

import abc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bert_features.config.input_format import InputFormat
from bert_features.errors import InputError
from bert_features.files import is_url
from bert_features.readers.lines import WHOLE, EncodingErrors, InputPart, Place, read_lines
from bert_features.readers.opening import is_stream, name_of


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

    def error(self, problem: str | InputError, line: int | None = None) -> InputError:
        """An error that names it, and the line or row if there is one."""
        where = "" if line is None else f", {self.unit} {line}"
        if line is not None and self.first_row == 0:
            where += " (counted from 0)"
        return InputError.naming(
            "{name}{where}: {problem}{cure}",
            name=self.name,
            where=where,
            problem=problem,
            cure=self.cure,
        )


@dataclass(frozen=True)
class Source(Origin):
    """An input to read examples from.

    Attributes:
      path: a file, an address such as `gs://bucket/file`, or `-` for standard input.
      input_format: its format, decided: not `auto`.
      encoding_errors: what to do with bytes that are not UTF-8.
      part: the examples to read.
      place: moved past each line as it is read.
      by_suffix: whether its suffix decided its format.
    """

    path: str | Path
    input_format: InputFormat
    encoding_errors: EncodingErrors = "strict"
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
        """Its lines, with a byte order mark or without; see `lines.read_lines`."""
        lines = read_lines(
            self.path,
            encoding_errors=self.encoding_errors,
            max_line_bytes=self.input_format.max_line_bytes,
            part=self.part,
            place=self.place,
        )
        if self.part.start == 0 and not with_mark:
            for line in lines:
                yield line.removeprefix("\ufeff")
                break
        yield from lines

    @property
    def name(self) -> str:
        """Its name in errors."""
        return name_of(self.path)

    @property
    def unit(self) -> str:
        """The unit of its positions: `row` or `line`."""
        return "row" if self.input_format.format == "parquet" else "line"

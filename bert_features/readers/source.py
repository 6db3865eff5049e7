"""Source: the input that a reader reads, with the settings that it needs."""

import abc
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bert_features.config.input_format import InputFormat
from bert_features.errors import InputError
from bert_features.readers.lines import EncodingErrors, Place, Span, read_lines
from bert_features.readers.opening import name_of


class Origin(abc.ABC):
    """What examples come from, a file or a table in memory: it names itself in errors.

    Attributes:
      input_format: its settings.
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
class Part:
    """Examples of an input that follow each other.

    Attributes:
      first: the number that the first of them gets, unless it has an id of its own.
      records: the number of examples; None for all that are left.
      span: their lines. In Parquet, which has rows instead of lines, only `span.line` counts.
    """

    first: int = 0
    records: int | None = None
    span: Span = field(default_factory=Span)


@dataclass(frozen=True)
class Source(Origin):
    """An input to read examples from.

    Attributes:
      path: a file, an address such as `gs://bucket/file`, or `-` for standard input.
      input_format: its format, decided: not `auto`.
      encoding_errors: what to do with bytes that are not UTF-8.
      part: the examples to read.
      place: told of each line as it is read.
    """

    path: str | Path
    input_format: InputFormat
    encoding_errors: EncodingErrors = "strict"
    part: Part = field(default_factory=Part)
    place: Place | None = None

    @property
    def first_line(self) -> int:
        """The number of the first line, or row, that is read; from 1."""
        return self.part.span.line + 1

    def lines(self) -> Iterator[str]:
        """Its lines without a byte order mark; see `lines.read_lines`."""
        lines = self.lines_with_mark()
        if self.part.span.start == 0:
            for line in lines:
                yield line.removeprefix("\ufeff")
                break
        yield from lines

    def lines_with_mark(self) -> Iterator[str]:
        """Its lines as they are, a byte order mark included."""
        return read_lines(
            self.path,
            encoding_errors=self.encoding_errors,
            max_line_bytes=self.input_format.max_line_bytes,
            span=self.part.span,
            place=self.place,
        )

    @property
    def name(self) -> str:
        """Its name in errors."""
        return name_of(self.path)

    @property
    def unit(self) -> str:
        """The unit of its positions: `row` or `line`."""
        return "row" if self.input_format.format == "parquet" else "line"

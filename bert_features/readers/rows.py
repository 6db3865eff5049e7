"""What the readers share: the source they read from and the rows they give."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from bert_features.config.input_format import InputFormat
from bert_features.errors import InputError
from bert_features.readers.files import EncodingErrors, name_of, read_lines

NO_ID = object()  # of a row that has no id; None would be an id that is null


class Row(NamedTuple):
    """One example as it stands in an input.

    Attributes:
      line: the line it begins on, from 1; in Parquet the number of the row, from 1.
      unique_id: its id, of whatever type, unchecked; `NO_ID` for none.
      text_a: as in `InputExample`, and so are the others.
      text_b: see there.
      words_a: see there.
      words_b: see there.
    """

    line: int
    unique_id: object
    text_a: str
    text_b: str | None = None
    words_a: tuple[str, ...] | None = None
    words_b: tuple[str, ...] | None = None

    @classmethod
    def of_words(
        cls,
        line: int,
        unique_id: object,
        words_a: Sequence[str],
        words_b: Sequence[str] | None = None,
    ) -> Self:
        """A row that came as words."""
        return cls(
            line,
            unique_id,
            " ".join(words_a),
            None if words_b is None else " ".join(words_b),
            tuple(words_a),
            None if words_b is None else tuple(words_b),
        )


@dataclass(frozen=True)
class Source:
    """An input to read rows from.

    Attributes:
      path: a file, or `-` for standard input.
      input_format: its format, decided: not `auto`.
      encoding_errors: what to do with bytes that are not UTF-8.
    """

    path: str | Path
    input_format: InputFormat
    encoding_errors: EncodingErrors = "strict"

    def lines(self) -> Iterator[str]:
        """Its lines; see `files.read_lines`. A byte order mark is no part of the first."""
        lines = read_lines(self.path, encoding_errors=self.encoding_errors)
        for line in lines:
            yield line.removeprefix("\ufeff")
            break
        yield from lines

    @property
    def unit(self) -> str:
        """What the numbers of its rows count."""
        return "row" if self.input_format.format == "parquet" else "line"

    def error(self, problem: str, line: int | None = None) -> InputError:
        """An error that names the source, and the line or row if there is one."""
        where = "" if line is None else f", {self.unit} {line}"
        return InputError(f"{name_of(self.path)}{where}: {problem}")

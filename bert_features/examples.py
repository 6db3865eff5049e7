"""Input texts: one per line, or two as `text a ||| text b`, as the official script reads them."""

import contextlib
import io
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from bert_features.errors import InputError

EncodingErrors = Literal["strict", "replace"]

# Greedy, as in google-research/bert's extract_features.py: the last separator splits.
_PAIR = re.compile(r"^(.*) \|\|\| (.*)$")


@dataclass(frozen=True)
class InputExample:
    """One input: a text, or a pair of texts, as they are or as words.

    Attributes:
      unique_id: its own id, or its number in the input, from 0.
      text_a: the text; of an input that came as words, these joined by single blanks.
      text_b: the second text of a pair, else None.
      words_a: the words, if the input came as words, else None.
      words_b: the words of the second text, likewise.
    """

    unique_id: int | str
    text_a: str
    text_b: str | None = None
    words_a: tuple[str, ...] | None = None
    words_b: tuple[str, ...] | None = None


def read_examples(
    path: str | Path, *, encoding_errors: EncodingErrors = "strict"
) -> Iterator[InputExample]:
    r"""Reads one example per line of a file, one line at a time.

    Lines end at "\n"; white space around a line is not part of its text. A line `a ||| b` is a
    pair. An empty line is an example with an empty text, so that line numbers and ids agree.

    Args:
      path: a UTF-8 text file, or `-` for standard input.
      encoding_errors: what to do with bytes that are not UTF-8: `strict` refuses the file,
        `replace` puts U+FFFD in their place (which the tokenizer drops).

    Raises:
      InputError: the file cannot be read, or holds bytes that are not UTF-8.
    """
    lines = read_lines(path, encoding_errors=encoding_errors)
    return (example_of_line(number, line) for number, line in enumerate(lines))


def read_lines(path: str | Path, *, encoding_errors: EncodingErrors = "strict") -> Iterator[str]:
    r"""Reads the lines of a file, "\n" included; arguments and errors are `read_examples`'s."""
    name = "standard input" if str(path) == "-" else str(path)
    with _open(path) as file:
        offset = 0
        for number, line in enumerate(_lines(file, name)):
            try:
                yield line.decode("utf-8", encoding_errors)
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{name}, line {number + 1}: byte {line[error.start]:#04x} at file offset "
                    f"{offset + error.start} is not UTF-8; convert the file, or pass "
                    "--encoding-errors replace"
                ) from error
            offset += len(line)


def example_of_line(unique_id: int, line: str) -> InputExample:
    """The example that one line stands for."""
    line = line.strip()
    pair = _PAIR.match(line)
    return InputExample(unique_id, *pair.groups()) if pair else InputExample(unique_id, line)


def examples_of_texts(texts: Iterable[str]) -> Iterator[InputExample]:
    """One example per text, taken as it is: neither stripped nor split into pairs.

    Raises:
      InputError: an entry is not a string.
    """
    if isinstance(texts, str):
        raise InputError("texts is one string; pass a list of texts, such as [text]")
    for unique_id, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"texts[{unique_id}] is {text!r}; every text must be a str")
        yield InputExample(unique_id, text)


def count_examples(path: str | Path) -> int | None:
    """How many examples `read_examples` will give; None where counting would use the input up.

    Reading ahead costs little: texts go through a BERT some ten thousand times slower.

    Raises:
      InputError: the file cannot be read.
    """
    if str(path) == "-" or Path(path).is_fifo():
        return None
    count, last = 0, b"\n"
    with _open(path) as file, _reading(str(path)):
        while block := file.read(1 << 20):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")


@contextlib.contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror or error}") from error


def _open(path: str | Path) -> contextlib.AbstractContextManager[BinaryIO]:
    if str(path) == "-":
        return _standard_input()
    if Path(path).is_dir():
        raise InputError(f"{path} is a directory; pass a text file, or - for standard input")
    with _reading(str(path)):
        return Path(path).open("rb")


def _standard_input() -> contextlib.AbstractContextManager[BinaryIO]:
    try:
        descriptor = sys.stdin.fileno()
    except io.UnsupportedOperation:  # something in memory stands for it
        return contextlib.nullcontext(sys.stdin.buffer)
    # Not sys.stdin.buffer: Python takes that one's lock as it exits, and dies if an interrupted run
    # left a thread waiting for input.
    return open(descriptor, "rb", closefd=False)


def _lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    lines = iter(file)
    while True:
        with _reading(name):
            line = next(lines, None)
        if line is None:
            return
        yield line

"""The examples of an input: a text each, or two, or the words of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bert_features import readers
from bert_features.config.input_format import InputFormat as InputFormat
from bert_features.errors import InputError
from bert_features.readers.files import EncodingErrors as EncodingErrors
from bert_features.readers.files import read_lines as read_lines
from bert_features.readers.ids import read_ids
from bert_features.readers.text import split_pair


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
    path: str | Path,
    input_format: InputFormat | None = None,
    *,
    encoding_errors: EncodingErrors = "strict",
) -> Iterator[InputExample]:
    r"""Reads the examples of a file, one at a time, in its order.

    A text file has one on each line. Its lines end at "\n"; white space around a line is not part
    of its text. A line `a ||| b` is a pair. An empty line is an example with an empty text, so that
    line numbers and ids agree. For the other formats see `InputFormat`.

    Args:
      path: a file, UTF-8 where it is text, or `-` for standard input. One whose name ends in .gz,
        .bz2, .xz or .zst is decompressed.
      input_format: what kind of file it is; by default its suffix tells.
      encoding_errors: what to do with bytes that are not UTF-8: `strict` refuses the file,
        `replace` puts U+FFFD in their place (which the tokenizer drops).

    Raises:
      ConfigError: the input format has a setting that says nothing about files such as this.
      InputError: the file cannot be read, is not of the format, holds bytes that are not UTF-8, or
        ids that do not tell its examples apart.
    """
    source = _source(path, input_format, encoding_errors)
    rows = read_ids(source, readers.read(source))
    return (InputExample(unique_id, *row[2:]) for unique_id, row in rows)


def count_examples(path: str | Path, input_format: InputFormat | None = None) -> int | None:
    """How many examples `read_examples` will give.

    None where counting would use the input up, or be dear: of a stream, a compressed file, a table
    in text, a CoNLL file.

    Raises:
      ConfigError: see `read_examples`.
      InputError: the file cannot be read.
    """
    return readers.count(_source(path, input_format, "strict"))


def example_of_line(unique_id: int, line: str) -> InputExample:
    """The example that one line of text stands for."""
    return InputExample(unique_id, *split_pair(line))


def examples_of_texts(
    texts: Iterable[str | list[str] | tuple[str, str] | InputExample],
) -> Iterator[InputExample]:
    """One example per text, taken as it is: neither stripped nor split into pairs.

    Args:
      texts: texts; tuples of two, for pairs; lists of words; or examples, which keep their own ids.

    Raises:
      InputError: an entry is none of these.
    """
    if isinstance(texts, str):
        raise InputError("texts is one string; pass a list of texts, such as [text]")
    for unique_id, text in enumerate(texts):
        if isinstance(text, InputExample):
            yield text
        elif isinstance(text, str):
            yield InputExample(unique_id, text)
        elif isinstance(text, list) and all(isinstance(word, str) for word in text):
            yield InputExample(unique_id, " ".join(text), words_a=tuple(text))
        elif isinstance(text, tuple) and [type(part) for part in text] == [str, str]:
            yield InputExample(unique_id, *text)
        else:
            raise InputError(
                f"texts[{unique_id}] is {text!r}; allowed: a str, a tuple of two for a "
                "pair, a list of words"
            )


def _source(
    path: str | Path, input_format: InputFormat | None, encoding_errors: EncodingErrors
) -> readers.Source:
    decided = (input_format or InputFormat()).of_file(path)
    return readers.Source(path, decided, encoding_errors)

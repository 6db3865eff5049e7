"""Words: one text on each line, its words separated by white space; `|||` separates two texts."""

from collections.abc import Iterator

from bert_features.readers.ids import Ids
from bert_features.readers.input_example import InputExample
from bert_features.readers.lines import count_lines
from bert_features.readers.source import Source

_SEPARATOR = "|||"


def read_rows(source: Source, ids: Ids) -> Iterator[InputExample]:
    """One example per line; empty lines too, so that line numbers and ids agree."""
    for number, line in enumerate(source.lines(), start=source.first_line):
        words_a, words_b = _split_pair(line.split())
        yield InputExample.from_words(ids.of(number), words_a, words_b)


def count_rows(source: Source) -> int | None:
    """Number of lines."""
    return count_lines(source.path)


def _split_pair(words: list[str]) -> tuple[list[str], list[str] | None]:
    """Splits at the last separator between words, as the format `text` does."""
    for i in range(len(words) - 2, 0, -1):
        if words[i] == _SEPARATOR:
            return words[:i], words[i + 1 :]
    return words, None

"""Words: those of one text on each line, separated by white space; `|||` separates two texts."""

from collections.abc import Iterator

from bert_features.readers.files import count_lines
from bert_features.readers.rows import NO_ID, Row, Source

_SEPARATOR = "|||"


def read_rows(source: Source) -> Iterator[Row]:
    """A row per line; empty ones too, so that line numbers and ids agree."""
    for number, line in enumerate(source.lines(), start=1):
        yield Row.of_words(number, NO_ID, *_split_pair(line.split()))


def count_rows(source: Source) -> int | None:
    """How many lines there are."""
    return count_lines(source.path)


def _split_pair(words: list[str]) -> tuple[list[str], list[str] | None]:
    """Splits at the last separator that stands between words, as the format `text` does."""
    for i in range(len(words) - 2, 0, -1):
        if words[i] == _SEPARATOR:
            return words[:i], words[i + 1 :]
    return words, None

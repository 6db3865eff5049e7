"""Text: one on each line, or two as `text a ||| text b`, as the official script reads them."""

import re
from collections.abc import Iterator

from bert_features.readers.ids import Ids
from bert_features.readers.input_example import InputExample
from bert_features.readers.lines import count_lines
from bert_features.readers.source import Source

_SEPARATOR = " ||| "
# Greedy, as in google-research/bert's extract_features.py: the last separator splits.
_PAIR = re.compile(r"^(.*) \|\|\| (.*)$")


def read_rows(source: Source, ids: Ids) -> Iterator[InputExample]:
    """One example per line; empty lines too, so that line numbers and ids agree."""
    # The official script keeps a byte order mark.
    for number, line in enumerate(source.lines_with_mark(), start=source.first_line):
        text_a, text_b = split_pair(line)
        yield InputExample(ids.of(number), text_a, text_b)


def count_rows(source: Source) -> int | None:
    """Number of lines."""
    return count_lines(source.path)


def split_pair(line: str) -> tuple[str, str | None]:
    """The text of a line, without white space around it, and the second text if it is a pair."""
    line = line.strip()
    pair = _PAIR.match(line) if _SEPARATOR in line else None  # most lines are no pairs
    return (pair[1], pair[2]) if pair else (line, None)

"""Lines of text or of words: one example on each, `|||` separates the two texts of a pair.

Text is `text a ||| text b`, as the official script reads it. Words are separated by white space.
"""

import logging
import re
from collections.abc import Iterable, Iterator

from bert_features.readers.contents import watch
from bert_features.readers.ids import Ids
from bert_features.readers.input_example import InputExample
from bert_features.readers.opening import is_cheap_to_count, open_bytes, reading
from bert_features.readers.source import Source

logger = logging.getLogger("bert_features")

_SEPARATOR = "|||"
_noticed = False  # in a text that is computed as it is
# Greedy, as in google-research/bert's extract_features.py: the last separator splits.
_PAIR = re.compile(r"^(.*) \|\|\| (.*)$")


def read_rows(source: Source, ids: Ids) -> Iterator[InputExample]:
    """One example per line; empty lines too, so that line numbers and ids agree."""
    if source.input_format.format == "words":
        for number, line in enumerate(source.lines(), start=source.first_line):
            yield InputExample.from_words(ids.of(number), *_split_words(line.split()))
        return
    # The official script keeps a byte order mark.
    lines = source.lines(with_mark=True)
    # Checks before a run look into the files of this machine; a shard is read once or more.
    if source.by_suffix and source.place is None and not (source.part.line or source.can_reopen):
        lines = watch(source.name, lines)
    for number, line in enumerate(lines, start=source.first_line):
        yield InputExample(ids.of(number), *_split_text(line))


def count_rows(source: Source) -> int | None:
    """Number of lines; None where counting is not cheap. InputError: the file cannot be read."""
    if not is_cheap_to_count(source.path):
        return None
    count, last = 0, b"\n"
    with open_bytes(source.path) as file, reading(source.path):
        while block := file.read(1 << 20):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")


def notice_separator(texts: Iterable[str]) -> None:
    """Logs once in a process that a text or word has the separator of pairs, and is no pair."""
    global _noticed
    if not _noticed and any("|||" in t and (" ||| " in t or t == "|||") for t in texts):
        _noticed = True
        logger.warning(
            "a text has ' ||| ' and is computed as one text: only lines of text files are split; "
            "pass a pair as a tuple of two texts, over HTTP in `pairs`, in a table in two columns"
        )


def _split_text(line: str) -> tuple[str, str | None]:
    """The text of a line, without white space around it, and the second text if it is a pair."""
    line = line.strip()
    pair = _PAIR.match(line) if _SEPARATOR in line else None  # most lines are no pairs
    return (pair[1], pair[2]) if pair else (line, None)


def _split_words(words: list[str]) -> tuple[list[str], list[str] | None]:
    """Splits at the last separator between words, as `_split_text` does."""
    for i in range(len(words) - 2, 0, -1):
        if words[i] == _SEPARATOR:
            return words[:i], words[i + 1 :]
    return words, None

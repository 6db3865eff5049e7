"""CoNLL files: a word on each line, in columns; an empty line after each sentence.

Columns are separated by tabs if a line has any, else by blanks.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bert_features.config.input_format import CONLL_COLUMNS
from bert_features.errors import InputError
from bert_features.readers.ids import NO_ID, Ids
from bert_features.readers.input_example import InputExample
from bert_features.readers.lines import size_of, too_long
from bert_features.readers.source import Source

_KEY_VALUE = re.compile(r"#\s*([^=]+?)\s+=\s+(.*)")
_DOCUMENT_START = "-DOCSTART-"
# First columns in CoNLL-U of lines without a syntactic word: 3-4 is a multiword token, whose words
# follow; 5.1 is an empty node.
_NO_WORD = re.compile(r"\d+[-.]\d+$")


@dataclass
class _Sentence:
    """The lines between two empty ones.

    Attributes:
      line: number of the first line, from 1.
      words: number and columns of each line that is not a comment.
      comments: the comments.
    """

    line: int
    words: list[tuple[int, list[str]]] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)


def read_rows(source: Source, ids: Ids) -> Iterator[InputExample]:
    """One example per sentence that has words."""
    column = source.input_format.conll_column or CONLL_COLUMNS[source.input_format.format]
    for sentence in _sentences(source):
        words = []
        for number, columns in sentence.words:
            if len(columns) < column:
                raise source.error(
                    InputError.naming(
                        "there are {count} columns, but the words are in column {column}; set "
                        "{conll_column} to another",
                        count=len(columns),
                        column=column,
                    ),
                    number,
                )
            words.append(columns[column - 1])
        if words:
            unique_id = ids.of(sentence.line, _own_id(source, sentence))
            yield InputExample.from_words(unique_id, words)


def count_rows(source: Source) -> int | None:
    """None: sentences cannot be counted without reading them."""
    return None


def _sentences(source: Source) -> Iterator[_Sentence]:
    sort: Callable[[_Sentence, list[str]], None]
    sort = _sort_conllu if source.input_format.format == "conllu" else _SortConll()
    for number, lines in _blocks(source):
        sentence = _Sentence(number)
        sort(sentence, lines)
        yield sentence


def _blocks(source: Source) -> Iterator[tuple[int, list[str]]]:
    """Number of the first line, and the lines, of each block between empty lines."""
    limit = source.input_format.max_line_bytes
    block: list[str] = []
    number = size = 0
    for number, line in enumerate(source.lines(), start=1):
        if line.strip(" \t\r\n"):
            block.append(line.rstrip("\r\n"))
            size += size_of(line)
            if size > limit:
                first = number - len(block) + 1
                raise source.error(too_long("the sentence", limit, missing="an empty line"), first)
        elif block:
            yield number - len(block), block
            block, size = [], 0
    if block:
        yield number - len(block) + 1, block


def _columns(line: str) -> list[str]:
    if "\t" in line:
        return line.split("\t")
    # Not str.split(): some words hold a no-break space.
    return [column for column in line.split(" ") if column]


def _sort_conllu(sentence: _Sentence, lines: list[str]) -> None:
    for number, line in enumerate(lines, start=sentence.line):
        if line.startswith("#"):
            sentence.comments.append(line)
            continue
        columns = _columns(line)
        if not _NO_WORD.match(columns[0]):
            sentence.words.append((number, columns))


class _SortConll:
    """Sorts the lines of a sentence in which a word, such as `#tag`, may look like a comment."""

    def __init__(self) -> None:
        self._shape: tuple[bool, int] | None = None  # shape of a line that is surely a word

    def __call__(self, sentence: _Sentence, lines: list[str]) -> None:
        for line in lines:
            if not line.startswith(("#", _DOCUMENT_START)):
                self._shape = _shape(line)
                break
        for number, line in enumerate(lines, start=sentence.line):
            if line.startswith(_DOCUMENT_START):
                continue
            if line.startswith("#") and self._is_comment(line):
                sentence.comments.append(line)
            else:
                sentence.words.append((number, _columns(line)))

    def _is_comment(self, line: str) -> bool:
        """Whether a line with `#` has other columns than a line that is surely a word."""
        if self._shape is None:  # nothing to compare it with yet
            return "\t" not in line
        return _shape(line) != self._shape or _KEY_VALUE.match(line) is not None


def _shape(line: str) -> tuple[bool, int]:
    """Whether columns are separated by tabs, and the number of columns."""
    return "\t" in line, len(_columns(line))


def _own_id(source: Source, sentence: _Sentence) -> object:
    key = source.input_format.id_field
    if not key:
        return NO_ID
    for comment in sentence.comments:
        pair = _KEY_VALUE.match(comment)
        if pair and pair[1] == key:
            return pair[2].strip()
    raise source.error(f"the sentence has no comment '# {key} = …' with its id", sentence.line)

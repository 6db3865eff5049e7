"""CoNLL files: a word on each line, in columns; an empty line after each sentence.

Columns are separated by tabs if a line has any, else by blanks.
"""

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bert_features.config.input_format import INPUT_FORMATS
from bert_features.readers.fields import FieldError
from bert_features.readers.ids import NO_ID, Ids
from bert_features.readers.input_example import InputExample
from bert_features.readers.labels import with_labels
from bert_features.readers.lines import RETURNS, size_of, too_long
from bert_features.readers.source import Source
from bert_features.readers.spans import spans_of_tags

_KEY_VALUE = re.compile(r"#\s*([^=]+?)\s+=\s+(.*)")
_DOCUMENT_START = "-DOCSTART-"
# First columns in CoNLL-U of lines without a syntactic word: 3-4 is a multiword token, whose words
# follow; 5.1 is an empty node.
_NO_WORD = re.compile(r"\d+[-.]\d+$")


def read_rows(source: Source, ids: Ids) -> Iterator[InputExample]:
    """One example per sentence that has words."""
    settings = source.input_format
    names: Sequence[str] = INPUT_FORMATS[settings.format].columns
    for first, lines, comments in _sentences(source):
        names = next(filter(None, map(_column_names, comments)), names)
        if not lines:
            continue
        column = functools.partial(_column, source, lines, names)
        field = "form" if settings.tokens_field is None else settings.tokens_field
        words = column("tokens_field", field)
        example = InputExample.from_words(ids.of(first, _own_id(source, first, comments)), words)
        if settings.span_field is not None:
            tags = column("span_field", settings.span_field)
            try:
                example = replace(example, spans=spans_of_tags(words, tags))
            except FieldError as error:
                raise source.error(error, first) from error
        if settings.label_field is not None:
            labels = column("label_field", settings.label_field)
            example = with_labels(example, settings.label_field, labels)
        yield example


# What is in the column that a setting names.
_WHAT = {"tokens_field": "words", "span_field": "tags", "label_field": "labels"}


def _column(
    source: Source,
    lines: list[tuple[int, list[str]]],
    names: Sequence[str],
    setting: str,
    field: str,
) -> list[str]:
    """The column of each line that a setting numbers, from 1, or names."""
    if field.isascii() and field.isdecimal() and int(field):
        column = int(field)
    elif field.lower() in names:
        is_last = (field.lower(), names) == ("ner", INPUT_FORMATS["conll"].columns)
        column = 0 if is_last else names.index(field.lower()) + 1
    else:
        usual = " by default" * (getattr(source.input_format, setting) is None)
        raise source.error(
            f"{setting} is {field!r}{usual}; allowed: the number of a column, from 1, or one of "
            f"{', '.join(names)}",
            lines[0][0],
        )
    for number, columns in lines:
        if len(columns) < max(column, 1):
            raise source.error(
                f"there are {len(columns)} columns, but the {_WHAT[setting]} are in column "
                f"{column}; set {setting} to another",
                number,
            )
    return [columns[column - 1] for _, columns in lines]


def _column_names(comment: str) -> list[str]:
    """The names of all columns, if a comment has them, as in CoNLL-U Plus."""
    pair = _KEY_VALUE.match(comment)
    return pair[2].lower().split() if pair and pair[1] == "global.columns" else []


def _sentences(source: Source) -> Iterator[tuple[int, list[tuple[int, list[str]]], list[str]]]:
    """The number of the first line, from 1, the words and the comments of each sentence.

    A word comes as the number and the columns of its line.
    """
    is_conllu = source.input_format.format == "conllu"
    shape: tuple[bool, int] | None = None  # shape of a line that is surely a word
    for first, lines in _blocks(source):
        sure = (line for line in lines if not line.startswith(("#", _DOCUMENT_START)))
        shape = next(map(_shape, sure), shape)
        words, comments = [], []
        for number, line in enumerate(lines, start=first):
            columns = _columns(line)
            no_word = _NO_WORD.match(columns[0]) if is_conllu else line.startswith(_DOCUMENT_START)
            if line.startswith("#") and (is_conllu or _is_comment(line, shape)):
                comments.append(line)
            elif not no_word:
                words.append((number, columns))
        yield first, words, comments


def _is_comment(line: str, shape: tuple[bool, int] | None) -> bool:
    """Whether a line with `#` is no word, such as `#tag`: it has other columns than words have."""
    if shape is None:  # nothing to compare it with yet
        return "\t" not in line
    return _shape(line) != shape or _KEY_VALUE.match(line) is not None


def _blocks(source: Source) -> Iterator[tuple[int, list[str]]]:
    """Number of the first line, and the lines, of each block between empty lines."""
    limit = source.input_format.max_line_bytes
    block: list[str] = []
    number = size = 0
    for number, line in enumerate(source.lines(), start=1):
        if line.strip(" \t\r\n"):
            block.append(line.rstrip("\r\n"))
            if number == 1 and "\r" in block[0]:
                raise source.error(RETURNS, number)
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


def _shape(line: str) -> tuple[bool, int]:
    """Whether columns are separated by tabs, and the number of columns."""
    return "\t" in line, len(_columns(line))


def _own_id(source: Source, first: int, comments: list[str]) -> object:
    key = source.input_format.id_field
    if not key:
        return NO_ID
    for comment in comments:
        pair = _KEY_VALUE.match(comment)
        if pair and pair[1] == key:
            return pair[2].strip()
    raise source.error(f"the sentence has no comment '# {key} = …' with its id", first)

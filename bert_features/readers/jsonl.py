"""JSON lines: an object on each line, with a text or a list of words. Blank lines are skipped.

A file of the format `json` may instead have an array of such objects, as exports do.
"""

import functools
import json
import re
import reprlib
from collections.abc import Iterator
from itertools import chain
from typing import Any

from bert_features.readers.fields import FieldError, Fields, choose_fields
from bert_features.readers.ids import NO_ID, Ids
from bert_features.readers.input_example import InputExample
from bert_features.readers.labels import annotated
from bert_features.readers.lines import too_long
from bert_features.readers.opening import is_cheap_to_count
from bert_features.readers.source import Source

_BETWEEN = re.compile(r"[\s,]*")  # what stands between the elements of an array
_decode = json.JSONDecoder().raw_decode
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_rows(source: Source, ids: Ids) -> Iterator[InputExample]:
    """One example per line that is not blank, or per element of an array."""
    # Nearly all lines have the same keys.
    fields_of = functools.lru_cache(maxsize=64)(
        lambda names: choose_fields(source.input_format, names, "field")
    )
    for number, line in _records(source):
        record = _object(source, number, line)
        try:
            yield _example(ids, number, record, fields_of(tuple(record)))
        except FieldError as error:
            raise source.error(error, number) from error


def count_rows(source: Source) -> int | None:
    """Number of lines that are not blank; None where there may be an array."""
    if source.input_format.format == "json" or not is_cheap_to_count(source.path):
        return None
    return sum(not line.isspace() for line in source.raw_lines())


def _records(source: Source) -> Iterator[tuple[int, str]]:
    """The JSON of each record, with the number of the line on which it begins."""
    lines = enumerate(source.lines(), start=source.first_line)
    may_be_array = source.input_format.format == "json"
    for number, line in lines:
        if line.isspace():
            continue
        if may_be_array and line.lstrip().startswith("["):
            yield from _elements(source, number, line.lstrip()[1:], lines)
            return
        may_be_array = False
        yield number, line


def _elements(
    source: Source, first: int, rest: str, lines: Iterator[tuple[int, str]]
) -> Iterator[tuple[int, str]]:
    """The JSON of each element of an array; no more than one is held.

    `rest` is the end of its first line, whose number is `first`; `lines` are the others.
    """
    pending, begin, limit = "", first, source.input_format.max_line_bytes
    for number, line in chain([(first, rest)], lines):
        text, begin = pending + line, begin if pending else number
        place = _BETWEEN.match(text).end()  # type: ignore[union-attr]  # it matches nothing too
        while line.rstrip(" \t\r\n,").endswith(("}", "]")):  # else an element continues
            if text.startswith("]", place):
                if text[place + 1 :].strip() or any(line.strip() for _, line in lines):
                    raise source.error("something follows the array", number)
                return
            try:
                end = _decode(text, place)[1]
            except (ValueError, RecursionError):  # most likely more follows
                break
            yield begin, text[place:end]
            begin, place = number, _BETWEEN.match(text, end).end()  # type: ignore[union-attr]
        pending = text[place:]
        if len(pending) > limit:
            raise source.error(too_long("the object", limit, missing="a bracket"), begin)
    _object(source, begin, pending)  # raises what is wrong with it


def _object(source: Source, number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line.rstrip())
    except json.JSONDecodeError as error:
        expected = "an array of objects, or " if source.input_format.format == "json" else ""
        raise source.error(
            f"not JSON: {error.msg} (column {error.colno}); expected {expected}one object on each "
            "line",
            number,
        ) from error
    except RecursionError as error:
        raise source.error("the JSON is nested too deeply to be read", number) from error
    except ValueError as error:  # Python's limit of 4,300 digits
        raise source.error("the JSON holds an integer with too many digits", number) from error
    if not isinstance(record, dict):
        raise source.error(f"not a JSON object: {reprlib.repr(record)}", number)
    if "\\u" in line and _SURROGATE.search(json.dumps(record, ensure_ascii=False)):
        raise source.error(
            "an escape \\ud800 … \\udfff without its other half is not text; write \\ufffd in its "
            "place",
            number,
        )
    return record


def _example(ids: Ids, number: int, record: dict[str, Any], fields: Fields) -> InputExample:
    convert = _words if fields.are_words else _text
    first = convert(fields.first, record[fields.first])
    second = None
    if fields.second is not None and record[fields.second] is not None:
        second = convert(fields.second, record[fields.second])
    unique_id = ids.of(number, NO_ID if fields.unique_id is None else record[fields.unique_id])
    make = InputExample.from_words if fields.are_words else InputExample
    return annotated(make(unique_id, first, second), fields, record.__getitem__)


def _text(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return value
    raise FieldError(f"{name!r} is {reprlib.repr(value)}; expected a string, '' for a missing one")


def _words(name: str, value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return value
    raise FieldError(f"{name!r} is {reprlib.repr(value)}; expected a list of strings")

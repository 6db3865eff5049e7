"""Spans as inputs have them: lists, tables of Arrow, and columns of B-I-O tags."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bert_features.config.settings import shown
from bert_features.readers.fields import FieldError
from bert_features.readers.input_example import InputExample, Span

_ALLOWED = "[begin, end], [begin, end, label], [begin, end, label, type_id] or an object of these"
_STARTS, _CONTINUES, _OUTSIDE = "BSU", "IEL", ("O", "_", "-", "")


def with_spans(example: InputExample, name: str, values: Any) -> InputExample:
    """An example with spans, null for none; `name` names them in errors.

    Each is a list, or an object with these keys. Raises FieldError if one is no span, or lies
    outside of its text.
    """
    values = () if values is None else values
    if isinstance(values, str | Mapping) or not isinstance(values, Sequence):
        raise FieldError(f"{name!r} is {shown(values)}; expected a list of spans, each {_ALLOWED}")
    spans = (_parse(f"{name}[{i}]", value, example) for i, value in enumerate(values))
    return replace(example, spans=tuple(spans))


def _parse(where: str, value: Any, example: InputExample) -> Span:
    parts = value
    if isinstance(value, Mapping) and value.keys() <= set(Span._fields):
        parts = [value.get(name, default) for name, default in _DEFAULTS.items()]
    if not isinstance(parts, list | tuple) or not 2 <= len(parts) <= len(_DEFAULTS):
        raise FieldError(f"{where} is {shown(value)}; expected {_ALLOWED}")
    begin, end, label, type_id = list(parts) + list(_DEFAULTS.values())[len(parts) :]
    label, type_id = "" if label is None else label, type_id or 0
    kinds = [type(each) for each in (begin, end, label, type_id)]
    if kinds != [int, int, str, int] or type_id not in (0, 1):
        raise FieldError(f"{where} is {shown(value)}; expected {_ALLOWED}, with type_id 0 or 1")
    text = example.text_b if type_id else example.text_a
    if text is None or not 0 <= begin <= end <= len(text):
        reason = (
            "there is no second text" if text is None else f"its text has {len(text)} characters"
        )
        raise FieldError(f"{where} is {shown(value)}, outside of its text: {reason}")
    return Span(begin, end, label, type_id)


_DEFAULTS = {"begin": None, "end": None, **Span._field_defaults}


def spans_of_tags(words: Sequence[str], tags: Sequence[str]) -> tuple[Span, ...]:
    """The runs of words that tags name, as spans of the words joined by single blanks.

    Tags are B-LABEL and I-LABEL, and O outside of any; an I- that continues nothing begins one
    (IOB1), and S-, E-, U- and L- are as in BIOES and BILOU. Raises FieldError for any other tag.
    """
    spans: list[Span] = []
    begin = 0
    is_open = False
    for word, tag in zip(words, tags, strict=True):
        kind, _, label = tag.partition("-")
        end = begin + len(word)
        if tag in _OUTSIDE:
            is_open = False
        elif kind not in (*_STARTS, *_CONTINUES):
            raise FieldError(f"the tag is {tag!r}; allowed: B-LABEL, I-LABEL and O")
        elif kind in _CONTINUES and is_open and spans[-1].label == label:
            spans[-1] = spans[-1]._replace(end=end)
            is_open = kind == "I"
        else:
            spans.append(Span(begin, end, label))
            is_open = kind in "BI"
        begin = end + 1
    return tuple(spans)

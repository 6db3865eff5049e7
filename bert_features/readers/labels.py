"""Labels as inputs have them: one of a text, or one of each of its words; and spans."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from bert_features.config.settings import shown
from bert_features.errors import InputError
from bert_features.readers.fields import FieldError, Fields
from bert_features.readers.input_example import InputExample
from bert_features.readers.spans import with_spans

MISSING = "_"  # as in CoNLL


def annotated(
    example: InputExample, fields: Fields, value_of: Callable[[str], Any]
) -> InputExample:
    """An example with the spans and the labels of its fields; raises FieldError for wrong ones."""
    if fields.spans is not None:
        example = with_spans(example, fields.spans, value_of(fields.spans))
    if fields.labels is not None:
        second = None if fields.second_labels is None else value_of(fields.second_labels)
        example = with_labels(example, fields.labels, value_of(fields.labels), second)
    return example


def with_labels(example: InputExample, name: str, values: Any, second: Any = None) -> InputExample:
    """An example with labels; `name` names them in errors.

    Of a text `values` is its label: a string, a number, true or false. Of words it is a list with a
    label for each, where null, an empty string and `_` are none; `second` is that of words_b.

    Raises FieldError if they are something else, or not as many as there are words.
    """
    if example.words_a is None:
        if not isinstance(values, str | bool | int | float) or not str(values).strip():
            raise FieldError(
                f"the label is {shown(values)}; expected a text, a number, true or false"
            )
        return replace(example, labels=(str(values),))
    labels = _of_words(name, values, example.words_a)
    if example.words_b is not None:
        labels += _of_words(f"{name}_b", second, example.words_b)
    return replace(example, labels=labels)


def _of_words(name: str, values: Any, words: Sequence[str]) -> tuple[str, ...]:
    allowed = str | bool | int | float | None
    if not isinstance(values, list | tuple) or not all(isinstance(v, allowed) for v in values):
        raise FieldError(f"{name!r} is {shown(values)}; expected a list with a label for each word")
    if len(values) != len(words):
        raise FieldError(
            f"{name!r} has {len(values)} labels for {len(words)} words; expected one for each, "
            "with null for none"
        )
    return tuple("" if value in (None, MISSING) else str(value) for value in values)


def check_labels(example: InputExample) -> None:
    """Refuses the label of a text for outputs of words; raises InputError."""
    if example.labels is not None and example.words_a is None:
        raise InputError(
            f"example {example.unique_id!r} is a text with a label, and label_field gives the "
            "labels of words; pass words, as by tokens_field. Only plots take labels of texts"
        )

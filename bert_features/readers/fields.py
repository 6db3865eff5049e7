"""The fields of a table or of a JSON object that make up an example."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bert_features.config.input_format import InputFormat
from bert_features.errors import InputError

_ID, _TEXT, _TEXT_B, _TOKENS = "id", "text", "text_b", "tokens"


@dataclass(frozen=True)
class Fields:
    """The names of the fields that make up an example.

    Attributes:
      unique_id: field of its id; None if there is none.
      first: field of its text or words.
      second: field of its second text or words; None if there is none.
      are_words: whether `first` and `second` hold lists of words.
      spans: field of its spans; None if they are not wanted.
      labels: field of its labels; None if they are not wanted.
      second_labels: field of the labels of its second words, if there is one.
    """

    unique_id: str | None
    first: str
    second: str | None
    are_words: bool
    spans: str | None = None
    labels: str | None = None
    second_labels: str | None = None

    def names(self) -> list[str]:
        """The names of all fields that are there."""
        names = [self.unique_id, self.first, self.second, self.spans]
        names += [self.labels, self.second_labels]
        return [name for name in names if name is not None]


class FieldError(InputError):
    """A field that is missing or ambiguous; the reader adds the file and the line."""


def choose_fields(input_format: InputFormat, names: Sequence[str], kind: str) -> Fields:
    """Finds the fields of an example: the ones that the settings name, else the usual names.

    FieldError, where one is missing or occurs twice, calls a field by its `kind`: `column` or
    `field`.
    """
    fields = _choose(input_format, names, kind)
    fields = replace(fields, spans=input_format.span_field, labels=input_format.label_field)
    if fields.labels is not None and fields.are_words and fields.second is not None:
        fields = replace(fields, second_labels=f"{fields.labels}_b")
    for name in fields.names():
        if name not in names:
            raise FieldError(f"no {kind} {name!r}; {_available(names, kind)}")
        if list(names).count(name) > 1:
            raise FieldError(f"{names.count(name)} {kind}s are called {name!r}; rename one")
    return fields


def _choose(input_format: InputFormat, names: Sequence[str], kind: str) -> Fields:
    unique_id = _named_or_usual(input_format.id_field, _ID, names) or None
    names_texts = input_format.text_field is not None or input_format.text_b_field is not None
    if input_format.tokens_field is None and (names_texts or _TEXT in names):
        first = input_format.text_field if input_format.text_field is not None else _TEXT
        second = _named_or_usual(input_format.text_b_field, _TEXT_B, names)
        return Fields(unique_id, first, second, are_words=False)
    if input_format.tokens_field is None and _TOKENS not in names:
        raise FieldError(
            f"no {kind} '{_TEXT}' and no {kind} '{_TOKENS}'; {_available(names, kind)}; set "
            "text_field or tokens_field to one of them"
        )
    first = input_format.tokens_field if input_format.tokens_field is not None else _TOKENS
    return Fields(unique_id, first, _named_or_usual(None, f"{first}_b", names), are_words=True)


def _named_or_usual(named: str | None, usual: str, names: Sequence[str]) -> str | None:
    if named is not None:
        return named
    return usual if usual in names else None


def _available(names: Sequence[str], kind: str) -> str:
    return f"the {kind}s are {', '.join(names)}" if names else f"there are no {kind}s"

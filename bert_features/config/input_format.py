"""InputFormat: the kind of input file, and where its texts, words and ids are."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from bert_features.config.settings import INPUT, Positive, Settings, setting
from bert_features.errors import ConfigError

FormatName = Literal["auto", "text", "words", "jsonl", "csv", "tsv", "parquet", "conll", "conllu"]

# The default of `conll_column`; in CoNLL-U the column is called FORM.
CONLL_COLUMNS: dict[FormatName, int] = {"conll": 1, "conllu": 2}

# The default of `quoting`. Tab-separated files quote nothing, and texts in them begin with quotes.
QUOTING: dict[FormatName, bool] = {"csv": True, "tsv": False}
# The default of `max_line_bytes`: five times War and Peace. The tokenizer takes 30 bytes of memory
# for each byte of a text, so half a gigabyte for such a line.
MAX_LINE_BYTES = 1 << 24
LARGEST_LINE_BYTES = (1 << 31) - 1  # what Python's csv module takes everywhere
LineBytes = Annotated[int, Field(ge=1, le=LARGEST_LINE_BYTES)]

# The settings that name a field of a table.
FIELD_NAMES = ("id_field", "text_field", "text_b_field", "tokens_field")
# The settings, besides `format`, that have a meaning in each format.
_SETTINGS: dict[FormatName, tuple[str, ...]] = {
    "text": ("max_line_bytes",),
    "words": ("max_line_bytes",),
    "jsonl": (*FIELD_NAMES, "max_line_bytes"),
    "csv": (*FIELD_NAMES, "quoting", "max_line_bytes"),
    "tsv": (*FIELD_NAMES, "quoting", "max_line_bytes"),
    "parquet": FIELD_NAMES,
    "conll": ("id_field", "conll_column", "max_line_bytes"),
    "conllu": ("id_field", "conll_column", "max_line_bytes"),
}


class InputFormat(Settings):
    """The kind of an input file and the places of its examples.

    `text` has a text or a pair `a ||| b` on each line, `words` the same, but words separated by
    white space, `jsonl` a JSON object; `csv` and `tsv` have a header, `conll` and `conllu` a word
    on each line and an empty line after each sentence.

    A field is a column of a table or a key of JSON objects. A field that is named here must exist;
    a field that is not named is read under its usual name if that exists. If `tokens_field` is not
    named, texts are read before words; the second lists of pairs are in the field of that name and
    `_b`.

    Raises:
      ConfigError: a value is not allowed, or two settings contradict each other.
    """

    format: FormatName = setting(
        "auto",
        "Format of the input; auto goes by the suffix (before .gz, .bz2, .xz or .zst) and reads "
        "any other file as text.",
        INPUT,
        common=True,
    )
    id_field: str | None = setting(
        None,
        "Column or JSON field of the ids, in CoNLL the key of a comment; by default `id` where "
        "there is one.",
        INPUT,
        common=True,
        allowed="a string; an empty one for no ids",
    )
    text_field: str | None = setting(
        None, "Column or JSON field of the texts; by default `text`.", INPUT, common=True
    )
    text_b_field: str | None = setting(
        None, "Column or JSON field of the second texts of pairs; by default `text_b`.", INPUT
    )
    tokens_field: str | None = setting(
        None, "Column or JSON field of lists of words; by default `tokens`.", INPUT
    )
    conll_column: Positive | None = setting(
        None, "Column of the words in CoNLL files, from 1; by default 1, in CoNLL-U 2.", INPUT
    )
    quoting: bool | None = setting(
        None,
        "Whether fields of csv and tsv may be in double quotes; by default yes in csv, no in tsv, "
        "where quotes are text.",
        INPUT,
    )
    max_line_bytes: LineBytes = setting(
        MAX_LINE_BYTES,
        "Longest line of the input in bytes; a longer one is an error. A csv row with line ends in "
        "quotes, and a CoNLL sentence, count as a whole.",
        INPUT,
    )

    def __init__(self, format: FormatName = "auto", **values: Any) -> None:
        """Checks settings; the format may stand alone, as in `InputFormat("csv")`."""
        super().__init__(format=format, **values)

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @model_validator(mode="after")
    def _texts_or_words(self) -> Self:
        text_field = self.text_field if self.text_field is not None else self.text_b_field
        if self.tokens_field is not None and text_field is not None:
            raise ConfigError.naming(
                "the input is either texts (field {text!r}) or words ({tokens_field} {tokens!r}); "
                "name one of the two",
                text=text_field,
                tokens=self.tokens_field,
            )
        return self

    def decided(self, name: FormatName) -> Self:
        """The same for one format, not `auto`; ConfigError if a setting has no meaning in it."""
        for setting_name, field in type(self).model_fields.items():
            if setting_name in ("format", *_SETTINGS[name]):
                continue
            if getattr(self, setting_name) not in (field.default, ""):
                formats = [other for other, names in _SETTINGS.items() if setting_name in names]
                raise ConfigError.naming(
                    f"{{{setting_name}}} is set, but the input is read as {{name}}; it is for "
                    "{formats}: name the {input_format}, or leave the setting out",
                    name=name,
                    formats=", ".join(formats),
                )
        return self.model_copy(update={"format": name})

"""InputFormat: the kind of input file, and where its texts, words and ids are."""

import dataclasses
from dataclasses import dataclass
from typing import Literal, Self, get_args

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


@dataclass(frozen=True)
class InputFormat:
    """The kind of an input file and the places of its examples.

    A field is a column of a table or a key of JSON objects. A field that is named here must exist;
    a field that is not named is read under its usual name if that exists.

    Attributes:
      format: `text` (a text or a pair `a ||| b` on each line), `words` (the same, but words
        separated by white space), `jsonl` (a JSON object on each line), `csv` and `tsv` (with a
        header), `parquet`, `conll` (a word on each line, an empty line after each sentence),
        `conllu`, or `auto`: the suffix of the file decides, any other suffix means text.
      id_field: field of the ids, usually `id`; in CoNLL files the key of a comment such as
        `# sent_id = x`, by default none. Empty: take no ids, number the examples from 0.
      text_field: field of the texts, usually `text`.
      text_b_field: field of the second texts of pairs, usually `text_b`.
      tokens_field: field of the lists of words, usually `tokens`; the second lists of pairs are
        then in the field of this name and `_b`. If it is not named, texts are read before words.
      conll_column: column of the words, counted from 1; by default 1, in CoNLL-U 2.
      quoting: whether fields of csv and tsv may be in double quotes; if false, quotes are text. By
        default true in csv, false in tsv.
      max_line_bytes: longest line in bytes. A row of a table with line ends in quotes and a
        sentence of a CoNLL file count as a whole.

    Raises:
      ConfigError: a value is not allowed, or two settings contradict each other.
    """

    format: FormatName = "auto"
    id_field: str | None = None
    text_field: str | None = None
    text_b_field: str | None = None
    tokens_field: str | None = None
    conll_column: int | None = None
    quoting: bool | None = None
    max_line_bytes: int = MAX_LINE_BYTES

    def __post_init__(self) -> None:
        if self.format not in get_args(FormatName):
            raise ConfigError(
                f"the input format {self.format!r} is unknown; allowed: "
                f"{', '.join(get_args(FormatName))}"
            )
        if self.conll_column is not None and self.conll_column < 1:
            raise ConfigError.naming(
                "{conll_column} is {received}; allowed: an integer of at least 1, the number of "
                "the first column",
                received=self.conll_column,
            )
        if not 1 <= self.max_line_bytes <= LARGEST_LINE_BYTES:
            raise ConfigError.naming(
                "{max_line_bytes} is {received}; allowed: an integer from 1 to {most}",
                received=self.max_line_bytes,
                most=LARGEST_LINE_BYTES,
            )
        text_field = self.text_field if self.text_field is not None else self.text_b_field
        if self.tokens_field is not None and text_field is not None:
            raise ConfigError.naming(
                "the input is either texts (field {text!r}) or words ({tokens_field} {tokens!r}); "
                "name one of the two",
                text=text_field,
                tokens=self.tokens_field,
            )

    def decided(self, name: FormatName) -> Self:
        """The same settings for one format.

        Args:
          name: the format; not `auto`.

        Raises:
          ConfigError: a setting is set that has no meaning in this format.
        """
        for field in dataclasses.fields(self):
            if field.name in ("format", *_SETTINGS[name]):
                continue
            if getattr(self, field.name) not in (field.default, ""):
                formats = [other for other, names in _SETTINGS.items() if field.name in names]
                raise ConfigError.naming(
                    f"{{{field.name}}} is set, but the input is read as {{name}}; it is for "
                    "{formats}: name the {input_format}, or leave the setting out",
                    name=name,
                    formats=", ".join(formats),
                )
        return dataclasses.replace(self, format=name)

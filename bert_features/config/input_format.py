"""InputFormat: the kind of input file, and where its texts, words and ids are."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from bert_features.config.settings import INPUT, Settings, setting
from bert_features.errors import ConfigError

FormatName = Literal[
    "auto", "text", "words", "jsonl", "json", "csv", "tsv", "parquet", "conll", "conllu"
]

# The default of `max_line_bytes`: five times War and Peace. The tokenizer takes 30 bytes of memory
# for each byte of a text, so half a gigabyte for such a line.
MAX_LINE_BYTES = 1 << 24
LARGEST_LINE_BYTES = (1 << 31) - 1  # what Python's csv module takes everywhere
LineBytes = Annotated[int, Field(ge=1, le=LARGEST_LINE_BYTES)]

# The settings that name a field of a table.
FIELD_NAMES = ("id_field", "text_field", "text_b_field", "tokens_field")
_LINES = ("max_line_bytes",)
_RECORDS = (*FIELD_NAMES, "label_field", "span_field")


@dataclass(frozen=True)
class FormatRow:
    """What is known of a format.

    Attributes:
      module: module of `readers`; it has `read_rows(source, ids)`, and where counting costs less
        than reading `count_rows(source)`.
      suffixes: suffixes of its files, without one of compression; other files are text.
      settings: the settings, besides `format`, that have a meaning in it.
      can_be_cut: whether a line or row is an example that needs none before it.
      unit: `line` of text, or `row` of a binary file, whose parts have no byte offsets.
      columns: the names of the columns, if the file does not name them; `ner` is the last.
      delimiters: possible defaults of `delimiter`.
      quoted: whether fields may be in double quotes; texts in tsv begin with quotes.
    """

    module: str
    suffixes: tuple[str, ...]
    settings: tuple[str, ...]
    can_be_cut: bool = False
    unit: Literal["line", "row"] = "line"
    columns: tuple[str, ...] = ()
    delimiters: tuple[str, ...] = ()
    quoted: bool = False


_COMMA = (*FIELD_NAMES, "label_field", "delimiter", *_LINES)
_TAB = (*FIELD_NAMES, "label_field", *_LINES)
_CONLL = ("id_field", "tokens_field", "label_field", "span_field", *_LINES)
_CONLLU_COLUMNS = (
    *("id", "form", "lemma", "upos", "xpos"),
    *("feats", "head", "deprel", "deps", "misc"),
)
INPUT_FORMATS: dict[FormatName, FormatRow] = {
    "text": FormatRow("text", (), _LINES, can_be_cut=True),
    "words": FormatRow("text", (), _LINES, can_be_cut=True),
    "jsonl": FormatRow("jsonl", (".jsonl", ".ndjson"), (*_RECORDS, *_LINES), can_be_cut=True),
    "json": FormatRow("jsonl", (".json",), (*_RECORDS, *_LINES)),
    "csv": FormatRow("table", (".csv",), _COMMA, delimiters=(",", ";", "\t", "|"), quoted=True),
    "tsv": FormatRow("table", (".tsv",), _TAB, delimiters=("\t",)),
    "parquet": FormatRow("parquet", (".parquet",), _RECORDS, can_be_cut=True, unit="row"),
    "conll": FormatRow("conll", (".conll",), _CONLL, columns=("form", "pos", "chunk", "ner")),
    "conllu": FormatRow("conll", (".conllu",), _CONLL, columns=_CONLLU_COLUMNS),
}


Delimiter = Annotated[str, Field(pattern=r'^([^"\r\n]|\\t)$')]


class InputFormat(Settings):
    """The kind of an input file and the places of its examples.

    `text` has a text or a pair `a ||| b` on each line, `words` the same, but words separated by
    white space, `jsonl` a JSON object; `json` is an array of objects, or has one on each line.
    `csv` and `tsv` have a header, `parquet` columns, `conll` and `conllu` a word on each line and
    an empty line after each sentence.

    A field is a column of a table or a key of JSON objects. A field that is named here must exist;
    a field that is not named is read under its usual name if that exists. Fields of csv and tsv
    that are numbers, from 1, mean a file without a header, whose first row is an example. If
    `tokens_field` is not named, texts are read before words; the second lists of pairs are in the
    field of that name and `_b`.

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
        None,
        "Column or JSON field of the texts; by default `text`. In csv and tsv without a header the "
        "number of a column, from 1.",
        INPUT,
        common=True,
    )
    text_b_field: str | None = setting(
        None, "Column or JSON field of the second texts of pairs; by default `text_b`.", INPUT
    )
    tokens_field: str | None = setting(
        None,
        "Column or JSON field of lists of words; by default `tokens`. In CoNLL the column of the "
        "words, by its number, from 1, or its name; by default form.",
        INPUT,
    )
    label_field: str | None = setting(
        None,
        "Column or JSON field of the labels: for words a list, with null or _ where there is none; "
        "for a text one label. In CoNLL the number of a column, from 1, or its name, as upos "
        "or ner.",
        INPUT,
        min_length=1,
    )
    span_field: str | None = setting(
        None,
        "Column or JSON field of the spans of each text, for level span: a list of [begin, end], "
        "[begin, end, label] or [begin, end, label, type_id], in characters of the text. In CoNLL "
        "the column of B-I-O tags, by its number, from 1, or its name.",
        INPUT,
        min_length=1,
    )
    delimiter: Delimiter | None = setting(
        None,
        "Character between the fields of csv; by default the one of `,`, `;`, tab and `|` that "
        "fits the first line.",
        INPUT,
        allowed=r"one character, as ';', '|' or '\t'; no quote and no line end",
    )
    max_line_bytes: LineBytes = setting(
        MAX_LINE_BYTES,
        "Longest line of the input in bytes; a longer one is an error. A csv row with line ends in "
        "quotes, a CoNLL sentence and an object of a JSON array count as a whole.",
        INPUT,
    )

    def __init__(self, format: FormatName = "auto", **values: Any) -> None:
        """Checks settings; the format may stand alone, as in `InputFormat("csv")`."""
        super().__init__(format=format, **values)

    @model_validator(mode="after")
    def _texts_or_words(self) -> Self:
        text_field = self.text_field if self.text_field is not None else self.text_b_field
        if self.tokens_field is not None and text_field is not None:
            raise ConfigError(
                f"the input is either texts (field {text_field!r}) or words (tokens_field "
                f"{self.tokens_field!r}); name one of the two"
            )
        return self

    def decided(self, name: FormatName) -> Self:
        """The same for one format, not `auto`; ConfigError if a setting has no meaning in it."""
        for setting_name, field in type(self).model_fields.items():
            if setting_name in ("format", *INPUT_FORMATS[name].settings):
                continue
            if getattr(self, setting_name) not in (field.default, ""):
                formats = [
                    other for other, row in INPUT_FORMATS.items() if setting_name in row.settings
                ]
                raise ConfigError(
                    f"{setting_name} is set, but the input is read as {name}; it is for "
                    f"{', '.join(formats)}: name the input_format, or leave the setting out"
                )
        return self.model_copy(update={"format": name})

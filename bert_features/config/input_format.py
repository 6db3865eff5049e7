"""InputFormat: what kind of file the input is, and where in it the texts, words and ids are."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, get_args

from bert_features.errors import ConfigError

FormatName = Literal["auto", "text", "words", "jsonl", "csv", "tsv", "parquet", "conll", "conllu"]

# Of a path with its .gz, .bz2, .xz or .zst taken off; any other suffix stands for text.
SUFFIXES: dict[str, FormatName] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".conll": "conll",
    ".conllu": "conllu",
}
# The column of the words where `conll_column` is None; in CoNLL-U they are called FORM.
CONLL_COLUMNS: dict[FormatName, int] = {"conll": 1, "conllu": 2}

_FIELD_NAMES = ("id_field", "text_field", "text_b_field", "tokens_field")
# The settings that say something about a format, `format` apart.
_SETTINGS: dict[FormatName, tuple[str, ...]] = {
    "text": (),
    "words": (),
    "jsonl": _FIELD_NAMES,
    "csv": (*_FIELD_NAMES, "quoting"),
    "tsv": (*_FIELD_NAMES, "quoting"),
    "parquet": _FIELD_NAMES,
    "conll": ("id_field", "conll_column"),
    "conllu": ("id_field", "conll_column"),
}


@dataclass(frozen=True)
class InputFormat:
    """How the examples lie in an input.

    A field is a column of a table or a key of JSON objects. One that is named here must be there;
    one that is not is taken by its usual name if it is there.

    Attributes:
      format: `text` (a text or a pair `a ||| b` on each line), `words` (the same, but words
        separated by white space), `jsonl` (a JSON object on each line), `csv` and `tsv` (with a
        header), `parquet`, `conll` (a word on each line, an empty line after each sentence),
        `conllu`, or `auto`: by the file's suffix, else text.
      id_field: of the ids, usually `id`; in CoNLL files the key of a comment such as
        `# sent_id = x`, by default none. Empty: take no ids, number the examples from 0.
      text_field: of the texts, usually `text`.
      text_b_field: of the second texts of pairs, usually `text_b`.
      tokens_field: of lists of words, usually `tokens`; the second lists of pairs are then in
        the field of this name and `_b`. If it is not named, texts are taken before words.
      conll_column: of the words, counted from 1; by default 1, in CoNLL-U 2.
      quoting: whether fields of csv and tsv may be in double quotes; if not, quotes are text.

    Raises:
      ConfigError: a value is not allowed, or two exclude each other.
    """

    format: FormatName = "auto"
    id_field: str | None = None
    text_field: str | None = None
    text_b_field: str | None = None
    tokens_field: str | None = None
    conll_column: int | None = None
    quoting: bool = True

    def __post_init__(self) -> None:
        if self.format not in get_args(FormatName):
            raise ConfigError(
                f"the input format {self.format!r} is not known; allowed: "
                f"{', '.join(get_args(FormatName))}"
            )
        if self.conll_column is not None and self.conll_column < 1:
            raise ConfigError(
                f"conll_column is {self.conll_column}; allowed: an integer of at least 1, the "
                "first column's number"
            )
        of_texts = self.text_field if self.text_field is not None else self.text_b_field
        if self.tokens_field is not None and of_texts is not None:
            raise ConfigError(
                f"the input is either texts (field {of_texts!r}) or words (tokens_field "
                f"{self.tokens_field!r}); name one of the two"
            )

    def of_file(self, path: str | Path) -> Self:
        """The same with `auto` decided, for a file.

        Raises:
          ConfigError: a setting that says nothing about the format is set.
        """
        from bert_features.readers.files import suffix_of

        decided = self.format
        if decided == "auto":
            decided = SUFFIXES.get(suffix_of(path), "text")
        for field in dataclasses.fields(self):
            if field.name in ("format", *_SETTINGS[decided]):
                continue
            if getattr(self, field.name) not in (field.default, ""):
                able = [name for name, settings in _SETTINGS.items() if field.name in settings]
                raise ConfigError(
                    f"{field.name} is set, but the input is read as {decided}; it is for "
                    f"{', '.join(able)}: name the input format, or leave it out"
                )
        return dataclasses.replace(self, format=decided)

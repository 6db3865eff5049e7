"""Levels: what each vector of a feature represents. Everything that differs by level reads a row.

A *unit* is what a text is cut into: its tokens, its words, spans of it that the user names, or the
whole sequence, which is one. A level has a vector for each unit, or for each pair of units.
"""

from dataclasses import dataclass, field
from typing import Any

TEXT = "text"


@dataclass(frozen=True)
class LevelRow:
    """One level.

    Attributes:
      unit: `token`, `word`, `span` or `sequence`.
      axes: number of axes of a text's features that count units: 0 for one vector, 2 for pairs.
      splits: name of the column that says where the vectors of each text begin and end; empty for
        a level with one vector.
      key: name of the field with the level's features in a JSON line.
      columns: the columns of the units that are no features: name -> dtype, or `text`. The first
        has their names.
      fields: name of the field of each of these columns in JSON; a column without one is left out.
      pieces: columns of pieces of the vocabulary, each with the column of their ids, which alone is
        there until results are finished.
      is_text: whether a unit is a text of any length: its vector may be put together from several
        windows, and a query for it is a whole text.
      labels: the column that is there only if the units have labels; empty for none.
      is_named: whether in an answer of the service a feature, of one value, is an object of the
        names of its units, not a list.
    """

    unit: str
    axes: int
    splits: str
    key: str
    columns: dict[str, str] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)
    pieces: dict[str, str] = field(default_factory=dict)
    is_text: bool = False
    labels: str = ""
    is_named: bool = False

    def columns_of(self, *, labelled: bool) -> dict[str, str]:
        """The columns that are there."""
        return {n: dtype for n, dtype in self.columns.items() if labelled or n != self.labels}

    def count(self, units: Any) -> Any:
        """Number of vectors of a text with `units` units; a number or an array of numbers."""
        return units**self.axes

    def shape(self, width: int, units: Any) -> tuple[Any, ...]:
        """Shape of a text's vectors of `width` values: [D], [units, D] or [D, units, units]."""
        return (width, units, units) if self.axes == 2 else (units,) * self.axes + (width,)


LEVELS: dict[str, LevelRow] = {
    "token": LevelRow(
        "token",
        1,
        "row_splits",
        "features",
        {"tokens": TEXT, "token_ids": "int32"},
        {"tokens": "token"},
        {"tokens": "token_ids"},
    ),
    "word": LevelRow(
        "word",
        1,
        "word_splits",
        "words",
        {
            "words": TEXT,
            "word_starts": "int32",
            "word_ends": "int32",
            "word_type_ids": "int32",
            "word_num_pieces": "int32",
            "word_labels": TEXT,
        },
        {
            "words": "word",
            "word_starts": "start",
            "word_ends": "end",
            "word_type_ids": "type_id",
            "word_num_pieces": "num_pieces",
            "word_labels": "label",
        },
        labels="word_labels",
    ),
    "span": LevelRow(
        "span",
        1,
        "span_splits",
        "spans",
        {
            "spans": TEXT,
            "span_begins": "int32",
            "span_ends": "int32",
            "span_type_ids": "int32",
            "span_num_pieces": "int32",
            "span_labels": TEXT,
        },
        {
            "spans": "span",
            "span_begins": "begin",
            "span_ends": "end",
            "span_type_ids": "type_id",
            "span_num_pieces": "num_pieces",
            "span_labels": "label",
        },
        is_text=True,
    ),
    "sequence": LevelRow("sequence", 0, "", "sequence", is_text=True),
    # The pieces of the vocabulary that have a weight for a text, the heaviest first.
    "term": LevelRow(
        "term",
        1,
        "term_splits",
        "terms",
        {"terms": TEXT, "term_ids": "int32"},
        {"terms": "term", "term_ids": "id"},
        {"terms": "term_ids"},
        is_named=True,
    ),
    # Of the tokens of a text, those that late interaction compares.
    "vector": LevelRow(
        "vector",
        1,
        "vector_splits",
        "vectors",
        {"scored_tokens": TEXT, "scored_token_ids": "int32"},
        {"scored_tokens": "token", "scored_token_ids": "token_id"},
        {"scored_tokens": "scored_token_ids"},
    ),
    # A token or a word by itself, in a shuffled store.
    "row": LevelRow("row", 0, "", "row"),
    # In the order of the rows of a matrix.
    "token_pair": LevelRow("token", 2, "token_pair_splits", "token_pairs"),
    "word_pair": LevelRow("word", 2, "word_pair_splits", "word_pairs"),
}

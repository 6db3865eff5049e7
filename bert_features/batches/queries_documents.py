"""Late interaction: rows of queries and documents, and which of their tokens have a vector.

Shape legend: `N` examples, `R` rows, `T` tokens of all rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from bert_features.batches.row_plan import Rows, expand_ranges
from bert_features.errors import ConfigError
from bert_features.readers.input_example import InputExample


@dataclass(frozen=True)
class RowRules:
    """What is done to the rows of queries, or of documents.

    Attributes:
      length: tokens of the longest row.
      skip_ids: ids of tokens that have no vector.
      fill_length: tokens up to which a shorter row is filled; 0 for no filling.
      fill_id: the token that fills it.
      fill_attended: whether the other tokens attend to it; it attends to them in any case.
    """

    length: int
    skip_ids: tuple[int, ...] = ()
    fill_length: int = 0
    fill_id: int = 0
    fill_attended: bool = True


@dataclass(frozen=True)
class QueriesAndDocuments:
    """What is done to documents and queries.

    Attributes:
      document: the rules of documents, which the policy for long texts cuts or windows.
      query: the rules of queries, which are cut to their length.
      packed: whether rows are packed. A token that others do not see can have no place there.
    """

    document: RowRules
    query: RowRules
    packed: bool = False

    def side(self, is_query: bool) -> RowRules:
        """The rules of queries, or of documents."""
        return self.query if is_query else self.document

    def cuts(self, examples: Sequence[InputExample]) -> np.ndarray:
        """The tokens at which each example is cut, int64 [N], see `Layout.rows`."""
        return np.where(_are_queries(examples), self.query.length, 0)

    def marked(self, rows: Rows, examples: Sequence[InputExample]) -> Rows:
        """The rows, filled where their rules say so, with `attended` and `scored`.

        Args:
          rows: a row for each example, or its windows, which are not filled.
          examples: the examples.

        Raises:
          ConfigError: rows are packed, and there is a query that is filled with unseen tokens.
        """
        query, are_queries = self.query, _are_queries(examples)
        if self.packed and are_queries.any() and query.fill_length and not query.fill_attended:
            raise ConfigError(
                "packing is given, and queries of this checkpoint are filled with tokens that "
                "others do not see; leave packing out"
            )
        of_query = are_queries[rows.examples]
        fills = np.where(of_query & (rows.num_windows == 1), query.fill_length, 0)
        rows, is_fill = _filled(rows, np.maximum(fills - rows.lengths, 0), query.fill_id)
        token_of_query = np.repeat(of_query, rows.lengths)
        skipped = np.where(
            token_of_query,
            np.isin(rows.values, query.skip_ids),
            np.isin(rows.values, self.document.skip_ids),
        )
        unseen = is_fill & (not query.fill_attended)
        return replace(
            rows, attended=(~unseen).astype(np.int32), scored=(~skipped).astype(np.int32)
        )


def _are_queries(examples: Sequence[InputExample]) -> np.ndarray:
    return np.array([example.is_query for example in examples], bool)


def _filled(rows: Rows, counts: np.ndarray, fill_id: int) -> tuple[Rows, np.ndarray]:
    """The rows with some more tokens behind each, int64 [R]; which tokens these are, bool [T]."""
    lengths = rows.lengths + counts
    starts = np.cumsum(lengths) - lengths
    total = int(lengths.sum())
    is_fill = np.ones(total, bool)
    is_fill[expand_ranges(starts, rows.lengths)] = False
    spread = {}
    for name in {field.name for field in fields(rows)} - _OF_ROWS:
        if (values := getattr(rows, name)) is not None:
            spread[name] = np.full(total, fill_id if name == "values" else -1, values.dtype)
            spread[name][~is_fill] = values
    single = rows.type_starts >= rows.lengths  # without a second text
    filled = counts > 0
    return (
        replace(
            rows,
            **spread,
            lengths=lengths,
            type_starts=np.where(single, lengths, rows.type_starts).astype(np.int32),
            own_ends=np.where(filled, lengths, rows.own_ends).astype(np.int32),
        ),
        is_fill,
    )


# Columns with a value for each row; the others have one for each token.
_OF_ROWS = {
    *("lengths", "examples", "window", "num_windows", "type_starts"),
    *("own_starts", "own_ends", "tokens_lost"),
}

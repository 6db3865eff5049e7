"""Rows of queries and documents, with values checked by hand."""

from dataclasses import replace

import numpy as np
import pytest

from bert_features.batches.queries_documents import QueriesAndDocuments, RowRules
from bert_features.batches.row_plan import Rows
from bert_features.errors import ConfigError
from bert_features.readers.input_example import InputExample

CLS, SEP, FILL = 2, 3, 4
DOCUMENT = RowRules(8, skip_ids=(7,))
QUERY = RowRules(6, skip_ids=(6,), fill_length=5, fill_id=FILL, fill_attended=False)
EXAMPLES = [InputExample(0, "a query", is_query=True), InputExample(1, "a document")]
ROWS = Rows(
    values=np.array([CLS, 6, SEP, CLS, 6, 7, SEP], np.int32),
    word_indices=np.array([-1, 0, -1, -1, 0, 1, -1], np.int32),
    lengths=np.array([3, 4]),
    examples=np.array([0, 1]),
    window=np.zeros(2, np.int32),
    num_windows=np.ones(2, np.int32),
    type_starts=np.array([3, 4], np.int32),
    own_starts=np.zeros(2, np.int32),
    own_ends=np.array([3, 4], np.int32),
    tokens_lost=np.zeros(2, np.int32),
    pieces=np.array([3, 0, 3, 3, 1, 2, 3]),
)


def test_queries_are_cut_and_documents_are_not():
    assert QueriesAndDocuments(DOCUMENT, QUERY).cuts(EXAMPLES).tolist() == [6, 0]


@pytest.mark.parametrize("attended", [False, True])
def test_a_query_is_filled_and_a_document_is_not(attended):
    sides = QueriesAndDocuments(DOCUMENT, replace(QUERY, fill_attended=attended))
    rows = sides.marked(ROWS, EXAMPLES)
    assert rows.values.tolist() == [CLS, 6, SEP, FILL, FILL, CLS, 6, 7, SEP]
    assert rows.word_indices.tolist() == [-1, 0, -1, -1, -1, -1, 0, 1, -1]
    assert rows.attended.tolist() == [1, 1, 1, attended, attended, 1, 1, 1, 1]
    assert rows.scored.tolist() == [1, 0, 1, 1, 1, 1, 1, 0, 1]
    for name in ("lengths", "type_starts", "own_ends"):
        assert getattr(rows, name).tolist() == [5, 4], name
    assert rows.own_starts.tolist() == [0, 0]


def test_a_query_of_several_windows_is_not_filled():
    rows = replace(ROWS, examples=np.array([0, 0]), num_windows=np.full(2, 2, np.int32))
    assert QueriesAndDocuments(DOCUMENT, QUERY).marked(rows, EXAMPLES[:1]).lengths.tolist() == [
        3,
        4,
    ]


@pytest.mark.parametrize(
    ("changes", "examples"),
    [({"fill_attended": True}, EXAMPLES), ({"fill_length": 0}, EXAMPLES), ({}, EXAMPLES[1:] * 2)],
)
def test_packed_rows_have_no_place_for_tokens_that_others_do_not_see(changes, examples):
    with pytest.raises(ConfigError, match="others do not see"):
        QueriesAndDocuments(DOCUMENT, QUERY, packed=True).marked(ROWS, EXAMPLES)
    rows = QueriesAndDocuments(DOCUMENT, replace(QUERY, **changes), packed=True).marked(
        ROWS, examples
    )
    assert (rows.attended == 1).all()

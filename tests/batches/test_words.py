"""Words of texts and their pieces, with values checked by hand."""

from dataclasses import fields

import numpy as np
import pytest

from bert_features.batches.long_text import LongText
from bert_features.batches.rows import Layout
from bert_features.batches.unit_tables import UnitTable
from bert_features.batches.words import PiecePlaces, Units, find_words, locate_words
from bert_features.readers.input_example import InputExample

SPACED = InputExample(0, "this  is", "no")
GIVEN = InputExample(1, "a b c", words_a=("a b", "c"))


@pytest.mark.parametrize(
    ("examples", "split", "expected"),
    [
        (
            [SPACED],
            "whitespace",
            (["this", "is", "no"], [0, 6, 0], [4, 8, 2], [2, 1], [True, True]),
        ),
        ([SPACED], "bert", (["this  is", "no"], [0, 0], [8, 2], [1, 1], [False, False])),
        ([GIVEN], "bert", (["a b", "c"], [-1, -1], [-1, -1], [2, 0], [True, False])),
        ([GIVEN], None, (["a b", "c"], [-1, -1], [-1, -1], [2, 0], [True, False])),
        ([SPACED], None, (["this  is", "no"], [0, 0], [0, 0], [1, 1], [False, False])),
    ],
)
def test_the_units_of_texts(examples, split, expected):
    units = Units.of(examples, split)
    assert (units.strings, units.starts, units.ends, units.per_text, units.are_words) == expected


def columns_of(words):
    names = ("texts", "first_pieces", "num_pieces", "starts", "ends")
    return {name: getattr(words, name).tolist() for name in names}


def test_words_by_their_places():
    """Pieces `this`, ` is`, `no` of the first example, and `a`, `b`, `c` of the other."""
    starts, ends = np.array([0, 5, 0, 0, 2, 4]), np.array([4, 8, 2, 1, 3, 5])
    places = PiecePlaces(np.array([0, 0, 1, 2, 2, 2]), starts, ends, np.zeros(6, bool))
    found = locate_words([SPACED, GIVEN], places)
    assert columns_of(found) == {
        "texts": [0, 0, 1, 2, 2],
        "first_pieces": [0, 1, 2, 3, 5],
        "num_pieces": [1, 1, 1, 2, 1],
        "starts": [0, 6, 0, -1, -1],
        "ends": [4, 8, 2, -1, -1],
    }


@pytest.mark.parametrize("policy", ["truncate", "window"])
def test_the_table_of_words_of_pairs(policy):
    """Words of one, two and one pieces, then a pair whose last word has no room in the row."""
    examples = [InputExample(0, "a bb", "c"), InputExample(1, "d", "ee f")]
    units = Units.of(examples, "whitespace")
    unit_lengths = np.array([1, 2, 1, 1, 2, 1])
    texts = np.array([0, 0, 0, 1, 2, 3, 3, 3])
    nothing = np.zeros(8, int)
    words = find_words(units, unit_lengths, PiecePlaces(texts, nothing, nothing, nothing > 0))
    length = 7 if policy == "window" else 6
    layout = Layout(LongText(policy, length), cls_id=2, sep_id=3)
    lengths = np.array([3, 1, 1, 3])
    _, table = layout.rows(np.arange(10, 18, dtype=np.int32), lengths, words, str)
    assert table.row_splits.tolist() == [0, 3, 6]
    assert table.starts.tolist() == [0, 2, 0, 0, 0, 3]
    assert table.ends.tolist() == [1, 4, 1, 1, 2, 4]
    assert table.type_ids.tolist() == [0, 0, 1, 0, 1, 1]
    assert table.all_pieces.tolist() == unit_lengths.tolist()
    if policy == "truncate":
        assert table.num_pieces.tolist() == [1, 1, 1, 1, 2, 0]
        assert table.part_units.tolist() == [0, 1, 2, 3, 4]
        assert table.part_slots.tolist() == [0, 1, 2, 0, 1]
        assert table.whole.tolist() == [True, False, True, True, True, False]
        counts = {name: values.tolist() for name, values in table.counts().items()}
        assert counts == {"all": [3, 3], "blank": [0, 0], "cut": [1, 0], "lost": [0, 1]}
    else:
        assert table.num_pieces.tolist() == unit_lengths.tolist()
        assert table.part_units.tolist() == [0, 1, 2, 3, 4, 5]
        assert table.part_slots.tolist() == [0, 1, 2, 0, 1, 2]
    assert not table.part_windows.any()
    joined = UnitTable.join([table, table])
    parts = table.part_units
    assert joined.part_units.tolist() == [*parts, *(parts + 6)]
    assert joined.row_splits.tolist() == [0, 3, 6, 9, 12]
    for field in fields(table)[1:]:
        if field.name == "part_units":
            continue
        column = getattr(table, field.name).tolist()
        assert getattr(joined, field.name).tolist() == column * 2

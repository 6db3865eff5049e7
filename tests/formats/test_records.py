"""Records and batches in a terminal: shapes, never a dump of numbers."""

import numpy as np

from bert_features.config.levels import LEVELS
from bert_features.formats.records import Feature, FeatureBatch, FeatureRecord, Rows
from tests.formats.feature_files import assert_all_same, make_batch, mix

TOKENS = Rows(
    np.array([0, 2, 9]),
    {"tokens": np.array(list("ab") + ["c"] * 7, object), "token_ids": np.arange(9, dtype=np.int32)},
    {"t": np.zeros((9, 4), np.float32)},
)
BATCH = FeatureBatch(np.array([0, 1]), {"s": np.zeros((2, 4), np.float16)}, {"token": TOKENS})
FEATURES = (
    Feature("t", (-1,), "none", 4, "float32"),
    Feature("s", (-1,), "none", 4, "float16", "sequence", "mean"),
)


def test_a_record():
    short, long = BATCH.records(FEATURES)
    assert repr(short) == (
        "FeatureRecord(unique_id=0, features={'t': float32 [2, 4], 's': float16 [4]}, "
        "tokens=('a', 'b'), token_ids=int32 [2])"
    )
    assert "tokens=['c', 'c', 'c', 'c', 'c', 'c', … 7 in all]" in repr(long)


def test_parts_of_a_batch():
    """Cut, joined and taken: the same records."""
    features = mix("token", "word", "sequence")
    batch = make_batch(features, [3, 0, 2, 5])
    batch.counts["windows"] = np.arange(4)
    expected = list(batch.records(features))
    parts = [batch.part(0, 1), batch.part(1, 1), batch.part(1, 4)]
    joined = FeatureBatch.join(parts)
    assert_all_same(joined.records(features), expected)
    assert joined.counts["windows"].tolist() == [0, 1, 2, 3]
    taken = joined.take(np.array([3, 1, 1]))
    assert_all_same(taken.records(features), [expected[i] for i in (3, 1, 1)])
    assert np.shares_memory(parts[2].columns["sentence"], batch.columns["sentence"])
    assert not np.shares_memory(parts[2].copy().columns["sentence"], batch.columns["sentence"])


def test_neighbours_are_joined_without_a_copy():
    """Parts of one array, in its order and without a gap; all else is copied."""
    whole = np.arange(20.0).reshape(10, 2)
    cuts = {
        "neighbours": [whole[1:4], whole[4:4], whole[4:9]],
        "gap": [whole[1:4], whole[5:9]],
        "order": [whole[4:9], whole[1:4]],
        "columns": [whole[1:4, :1], whole[4:9, :1]],
        "others": [whole[1:4], whole[4:9].copy()],
        "shapes": [whole.reshape(-1)[2:8].reshape(3, 2), whole.reshape(-1)[8:18].reshape(5, 2)],
        "bytes": [whole[1:4].view(np.int64), whole[4:9].view(np.int64)],
        "transposed": [whole.T[:1].T[1:4], whole.T[:1].T[4:9]],
    }
    for name, parts in cuts.items():
        batches = [FeatureBatch(np.arange(len(part)), {"x": part}) for part in parts]
        joined = FeatureBatch.join(batches).sequence["x"]
        assert joined.dtype == parts[0].dtype
        assert joined.tolist() == [row for part in parts for row in part.tolist()], name
        assert np.shares_memory(joined, whole) == (name in ("neighbours", "shapes")), name


def test_each_level_names_its_units():
    units = {
        "span": {"spans": ("a b",)},
        "term": {"terms": ("b", "a")},
        "vector": {"scored_tokens": ("x",)},
    }
    record = FeatureRecord(0, {}, tokens=("[CLS]", "a"), words=("a",), units=units)
    assert {level: record.unit_names(level) for level in LEVELS} == {
        "token": ("[CLS]", "a"),
        "token_pair": ("[CLS]", "a"),
        "word": ("a",),
        "word_pair": ("a",),
        "span": ("a b",),
        "sequence": (),
        "row": (),
        "term": ("b", "a"),
        "vector": ("x",),
    }
    assert not any(map(FeatureRecord(0, {}).unit_names, LEVELS))

"""Records and batches in a terminal: shapes, never a dump of numbers."""

from dataclasses import replace

import numpy as np
import pytest

from bert_features.formats import open_writer, read_features
from bert_features.formats.records import Feature, FeatureBatch, FeatureRecord, Tokens, WordSpans

TOKENS = Tokens(np.array([0, 2, 9]), list("ab") + ["c"] * 7, np.arange(9, dtype=np.int32))
BATCH = FeatureBatch(
    np.array([0, 1]),
    {"t": np.zeros((9, 4), np.float32), "s": np.zeros((2, 4), np.float16)},
    tokens=TOKENS,
)
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


def test_words_and_batches():
    spans = WordSpans(*(np.arange(3),) * 4)
    record = FeatureRecord("x", {}, words=("a",), word_spans=spans)
    assert repr(record) == (
        "FeatureRecord(unique_id='x', features={}, words=('a',), word_spans=WordSpans("
        "starts=int64 [3], ends=int64 [3], type_ids=int64 [3], num_pieces=int64 [3]))"
    )
    assert repr(BATCH).startswith(
        "FeatureBatch(unique_ids=int64 [2], features={'t': float32 [9, 4], 's': float16 [2, 4]}, "
    )
    assert "\n" not in repr(BATCH)


@pytest.mark.parametrize("name", ["o.parquet", "o.jsonl"])
def test_files_and_slices(tmp_path, name):
    features = FEATURES[:1] if name == "o.jsonl" else FEATURES
    path = tmp_path / name
    file_format = path.suffix[1:]
    with open_writer(
        path, format=file_format, features=features, metadata={}, id_type="int"
    ) as writer:
        values = {feature.name: BATCH.features[feature.name] for feature in features}
        writer.write(replace(BATCH, features=values))
    shown = "t float32 [tokens, 4]" + (", s float16 [4]" if name == "o.parquet" else "")
    with read_features(path) as file:
        assert len(file) == 2
        assert repr(file) == f"<{file_format} file {path}: 2 records of {shown}>"
        assert repr(file[1:]) == f"<records 1:2 of {path}: {shown}>"

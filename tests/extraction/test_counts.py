"""Totals by hand: [UNK] once however many windows hold it, NaN, and values that int8 clips."""

import dataclasses
import json

import ml_dtypes
import numpy as np
import pytest

from bert_features import FeatureExtractor, extract, plan, read_features
from bert_features.checkpoints.find import find_checkpoint
from bert_features.config.extract_config import ExtractConfig
from bert_features.extraction import losses
from bert_features.extraction.counts import Counts, find_non_finite
from bert_features.formats.records import Feature, FeatureBatch
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, TOY_VOCAB, random_weights


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("value", [np.nan, np.copysign(np.nan, -1), np.inf, -np.inf])
@pytest.mark.parametrize("rows", [3, 300_000])  # of a block, and of several
def test_vectors_with_a_value_that_is_not_finite(dtype, value, rows):
    values = np.ones((rows, 2), dtype)
    assert find_non_finite(values) is None
    values[rows - 2, 1] = value
    assert np.flatnonzero(find_non_finite(values)).tolist() == [rows - 2]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_values_are_finite(dtype, sign):
    """Their sum is not."""
    found = find_non_finite(np.full((6, 2), sign * ml_dtypes.finfo(dtype).max, dtype))
    assert found is None or not found.any()


SETTINGS = {"do_lower_case": True, "layers": (-1,), "max_seq_length": 8, "batch_size": 2}
TEXTS = ["the 漢 字 is a 漢 字 a b 漢 字 a b", "a b", "", "漢 ||| a"]
UNKNOWN, KEPT = [6, 0, 0, 1], [13, 2, 0, 2]


def test_unknown_tokens_of_a_run(toy, tmp_path, caplog):
    """The windows of the first text hold 8 [UNK]s, two of them twice."""
    (tmp_path / "in.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    config = ExtractConfig.of({"checkpoint": toy, **SETTINGS, "long_text": "window"})
    paths = (tmp_path / "in.txt", tmp_path / "o.npz")
    summary = extract(config, *paths, ledger_path=tmp_path / "ledger")
    ledger = [json.loads(line) for line in (tmp_path / "ledger").read_text().splitlines()]
    assert [line["tokens_unknown"] for line in ledger] == UNKNOWN
    assert [line["tokens_kept"] for line in ledger] == KEPT
    tokens = [token for record in read_features(tmp_path / "o.npz") for token in record.tokens]
    for counts in (summary.counts, plan(config, tmp_path / "in.txt")):
        assert counts.tokens_unknown == sum(UNKNOWN) == tokens.count("[UNK]")
        assert counts.tokens_kept == sum(KEPT)
    assert summary.counts.empty_examples == 1
    (warning,) = [m for m in caplog.messages if "[UNK]" in m]
    share = "7 of 17 tokens (41.2%), without [CLS] and [SEP], are [UNK]"
    assert warning.startswith(f"{share}: the vocabulary {toy}/vocab.txt")


def test_texts_in_memory_are_warned_of_too(toy, caplog):
    extractor = FeatureExtractor.from_checkpoint(toy, **SETTINGS)
    extractor(["a b"] * 20 + ["漢 a"])  # 1 of 42
    assert not [m for m in caplog.messages if "[UNK]" in m]
    extractor(["a b", "漢 a"])
    assert [m for m in caplog.messages if "[UNK]" in m]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "output"),
    [
        (np.nan, {}),
        (np.nan, {"level": "word"}),
        (np.nan, {"level": "sequence", "dtype": "int8", "scale_from": 1}),
        (3e38, {"level": "sequence"}),
        (3e38, {"level": "sequence", "long_text": "window", "dtype": "float16"}),
    ],
    ids=str,
)
def test_features_that_are_not_finite_are_counted(tmp_path, caplog, value, output):
    """The word embedding of `b` is broken."""
    weights = random_weights(TOY)
    weights["embeddings/word_embeddings"][TOY_VOCAB.index("b")] = value
    broken = write_directory(tmp_path / "uncased_broken", TOY, TOY_VOCAB, weights)
    (tmp_path / "in.txt").write_text("the a\na b\nthe is a the is a the is a the is a b\nthe\n")
    config = ExtractConfig.of({"checkpoint": str(broken), **SETTINGS, **output})
    paths = (tmp_path / "in.txt", tmp_path / "o.npz")
    summary = extract(config, *paths, ledger_path=tmp_path / "ledger")
    lines = (tmp_path / "ledger").read_text().splitlines()
    cut = "long_text" not in output
    assert [json.loads(line)["non_finite"] for line in lines] == [False, True, not cut, False]
    assert summary.counts.non_finite_examples == (1 if cut else 2)
    assert [m for m in caplog.messages if "have NaN or infinite values" in m]
    named = {"count": 1, "first_ids": [1]} if cut else {"count": 2, "first_ids": [1, 2]}
    assert read_features(tmp_path / "o.npz").metadata["losses"]["non_finite"] == named


def test_clipped_values_are_more_than_half_a_step_outside():
    int8 = Feature("v", (-1,), "none", 2, "int8", "sequence", scale=((0.0, 0.0), (255.0, 255.0)))
    vectors = np.array([[-0.4, 255.6], [np.nan, -0.6], [np.inf, 3], [255.4, 0]], np.float32)
    batch, counts = FeatureBatch(np.arange(4), {"v": vectors, "w": vectors}), Counts()
    for _ in range(2):
        counts.add_clipped(batch, [int8, dataclasses.replace(int8, name="w", dtype="float32")])
    assert batch.counts["clipped"].tolist() == [1, 1, 1, 0]
    assert (counts.values_clipped, counts.values_int8) == (6, 16)


@pytest.mark.parametrize(("clipped", "warns"), [(0, False), (9, False), (10, True)])
def test_one_percent_of_clipped_values_is_a_warning(toy, caplog, clipped, warns):
    counts = Counts(values_clipped=clipped, values_int8=1000 if clipped else 0)
    losses.warn(counts, ExtractConfig(checkpoint=toy), find_checkpoint(toy))
    assert ("10 of 1,000 values of int8 vectors (1.0%) lay outside" in caplog.text) is warns

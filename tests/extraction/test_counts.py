"""Totals by hand: [UNK] once however many windows hold it, and features that are not finite."""

import json

import ml_dtypes
import numpy as np
import pytest

from bert_features import FeatureExtractor, extract, plan, read_features
from bert_features.config.extract_config import ExtractConfig
from bert_features.extraction.counts import count_unknown, find_non_finite
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, TOY_VOCAB, random_weights

UNK, PAD = 9, 0


def test_unknown_tokens_of_rows_without_their_padding():
    batch = {
        "input_word_ids": np.array([[1, UNK, 5, UNK, 2], [1, UNK, 2, UNK, UNK]]),
        "input_mask": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
    }
    assert count_unknown(batch, UNK).tolist() == [2, 1]


def test_unknown_tokens_count_in_the_window_that_gives_their_vector():
    batch = {
        "input_word_ids": np.array([[1, UNK, 5, UNK, 2], [1, UNK, UNK, 5, 2]]),
        "input_mask": np.ones((2, 5), int),
        "window": np.array([0, 1]),
        "own_starts": np.array([0, 2]),
        "own_ends": np.array([3, 5]),
    }
    assert count_unknown(batch, UNK).tolist() == [1, 1]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_with_a_value_that_is_not_finite(dtype, value):
    tokens, sequences = np.ones((3, 4, 2), dtype), np.ones((3, 2), dtype)
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]])
    outputs = {"t": tokens, "s": sequences}
    assert find_non_finite(outputs, mask, {"t"}).tolist() == [False, False, False]
    tokens[1, 2, 1] = value  # padding
    tokens[2, 2, 0] = value
    assert find_non_finite(outputs, mask, {"t"}).tolist() == [False, False, True]
    sequences[0, 1] = value
    assert find_non_finite(outputs, mask, {"t"}).tolist() == [True, False, True]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_the_largest_values_are_finite(dtype):
    """Their sum is not."""
    values = np.full((2, 3, 2), ml_dtypes.finfo(dtype).max, dtype)
    assert find_non_finite({"t": values}, np.ones((2, 3)), {"t"}).tolist() == [False, False]


SETTINGS = {"do_lower_case": True, "layers": (-1,), "max_seq_length": 8, "batch_size": 2}
TEXTS = ["the 漢 字 is a 漢 字 a b 漢 字 a b", "a b", "漢 ||| a"]
UNKNOWN, KEPT = [6, 0, 1], [13, 2, 2]


@pytest.mark.usefixtures("one_device")
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
    (warning,) = [m for m in caplog.messages if "[UNK]" in m]
    assert warning.startswith(f"7 of 17 tokens (41.2%) are [UNK]: the vocabulary {toy}/vocab.txt")


@pytest.mark.usefixtures("one_device")
def test_texts_in_memory_are_warned_of_too(toy, caplog):
    extractor = FeatureExtractor.from_checkpoint(toy, **SETTINGS)
    extractor(["a b"] * 20 + ["漢 a"])  # 1 of 42
    assert not [m for m in caplog.messages if "[UNK]" in m]
    extractor(["a b", "漢 a"])
    assert [m for m in caplog.messages if "[UNK]" in m]


@pytest.fixture(params=[np.nan, np.float32(3e38)], ids=["nan", "huge"])
def broken(request, tmp_path):
    """A checkpoint whose word embedding of `b` is broken."""
    weights = random_weights(TOY)
    weights["embeddings/word_embeddings"][TOY_VOCAB.index("b")] = request.param
    return write_directory(tmp_path / "uncased_broken", TOY, TOY_VOCAB, weights)


@pytest.mark.usefixtures("one_device")
@pytest.mark.parametrize(
    "output",
    [
        {},
        {"level": "word"},
        {"level": "sequence"},
        {"level": "sequence", "long_text": "window", "dtype": "float16"},
    ],
    ids=str,
)
def test_features_that_are_not_finite_are_counted(broken, tmp_path, caplog, output):
    (tmp_path / "in.txt").write_text("the a\na b\nthe is a the is a the is a the is a b\nthe\n")
    config = ExtractConfig.of({"checkpoint": str(broken), **SETTINGS, **output})
    paths = (tmp_path / "in.txt", tmp_path / "o.npz")
    summary = extract(config, *paths, ledger_path=tmp_path / "ledger")
    lines = (tmp_path / "ledger").read_text().splitlines()
    cut = "long_text" not in output
    assert [json.loads(line)["non_finite"] for line in lines] == [False, True, not cut, False]
    assert summary.counts.non_finite_examples == (1 if cut else 2)
    assert [m for m in caplog.messages if "have NaN or infinite values" in m]

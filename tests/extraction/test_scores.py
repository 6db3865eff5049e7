"""Scores of tokens and words, against minicons on the same small checkpoint."""

import numpy as np
import pytest

from bert_features import ExtractConfig, FeatureExtractor, extract, read_features
from bert_features.checkpoints.find import find_without_tensorflow
from bert_features.checkpoints.read import read_weights
from bert_features.corpus.preview import plan
from tests.extraction.test_masked_lm import FOLDER, GOLDEN, OPTIONS
from tests.reference.numpy_encoder import NumpyEncoder
from tests.reference.numpy_masked_lm import log_probabilities

SCORED = GOLDEN["scored"]
TEXTS = [record["text"] for record in SCORED]


def make_config(level, **settings):
    return ExtractConfig(**{**OPTIONS, "kind": "score", "level": level, **settings})


def make(level, **settings):
    return FeatureExtractor(make_config(level, **settings))


def assert_scores(records):
    """The scores of tokens are those of minicons, and 0 for [CLS] and [SEP]."""
    for record, golden in zip(records, SCORED, strict=True):
        assert record.token_ids.tolist() == golden["ids"]
        want = [0.0, *golden["original"], 0.0]
        np.testing.assert_allclose(record.features["score"][:, 0], want, rtol=0, atol=1e-5)


def assert_surprisals(records):
    for record, golden in zip(records, SCORED, strict=True):
        splits = np.cumsum(golden["words"])[:-1]
        words = np.split(np.array(golden["within_word_l2r"]), splits)
        want = [-word.sum() for word in words]
        np.testing.assert_allclose(record.features["surprisal"][:, 0], want, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_the_surprisal_of_each_word():
    records = make("word")(TEXTS)
    assert_surprisals(records)
    assert records[0].words == ("this", "is", "jacksonville", ".")
    # The rest of the word matters: without its masks the sum would be another.
    plain = make("token")(TEXTS[:1])[0].features["score"][3:6].sum()
    assert abs(plain + records[0].features["surprisal"][2, 0]) > 0.01


def test_words_of_the_input_and_a_text_without_any():
    (given, empty) = make("word")([["jackson?", "no"], ""])
    assert given.words == ("jackson?", "no")
    assert given.features["surprisal"].shape == (2, 1)
    assert empty.features["surprisal"].shape == (0, 1)
    (empty,) = make("token")([""])
    assert empty.tokens == ("[CLS]", "[SEP]")
    assert empty.features["score"].tolist() == [[0.0], [0.0]]


def test_both_texts_of_a_pair_are_scored():
    (record,) = make("token")([("no", "jackson ?")])
    assert record.tokens == ("[CLS]", "no", "[SEP]", "jack", "##son", "?", "[SEP]")
    assert (record.features["score"][:, 0] < 0).tolist() == [0, 1, 0, 1, 1, 1, 0]
    other = FeatureExtractor.from_checkpoint(**OPTIONS, kind="masked_lm", top_k=30)
    (masked,) = other([("no", "jack[MASK]?")])  # the piece alone is masked
    at = masked.features["masked_lm_ids"][4].tolist().index(record.token_ids[4])
    np.testing.assert_allclose(
        record.features["score"][4, 0], masked.features["masked_lm"][4, at], rtol=0, atol=1e-5
    )


def test_a_run_and_its_plan_count_the_rows(tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("\n".join(TEXTS) + "\n")
    planned = plan(make_config("token"), source)
    assert planned.rows == 25  # one for each piece
    summary = extract(make_config("token"), source, tmp_path / "out.npz")
    assert summary.counts.rows == planned.rows
    assert_scores(read_features(tmp_path / "out.npz"))
    assert planned.tokens == sum(len(r["ids"]) * len(r["original"]) for r in SCORED)
    assert planned.output_tokens == sum(len(record["ids"]) for record in SCORED)


def test_a_word_that_truncation_cut_has_no_surprisal(tmp_path):
    source = tmp_path / "in.txt"
    source.write_text(f"{TEXTS[0]}\n\u200b it\n")
    config = make_config("word", max_seq_length=6, word_split="whitespace")
    path = tmp_path / "out.jsonl"  # the one format without NaN: there it is null
    summary = extract(config, source, path)
    assert (summary.counts.tokens_lost, summary.counts.truncated_examples) == (2, 1)
    assert summary.counts.non_finite_examples == 0
    record, vanished = read_features(path)
    assert record.word_spans.num_pieces.tolist() == [1, 1, 2]
    assert np.isnan(record.features["surprisal"][:, 0]).tolist() == [False, False, True]
    assert np.isnan(vanished.features["surprisal"][:, 0]).tolist() == [True, False]


def log_probability(ids, at, masked, state=-1):
    """Of the piece at a place of a row, in float64, where some places are masked."""
    checkpoint = find_without_tensorflow(str(FOLDER))
    weights = read_weights(checkpoint, head=True)
    row = np.array([ids])
    row[0, masked] = 4
    encode = NumpyEncoder(checkpoint.config, weights)
    states = encode(row, np.ones_like(row), np.zeros_like(row))[state]
    return log_probabilities(states, weights, checkpoint.config)[0, at, ids[at]]


@pytest.mark.parametrize("level", ["token", "word"])
def test_a_long_text_is_scored_through_windows(level):
    """Each piece where the smaller of its contexts is largest; of two such windows in the first."""
    golden = SCORED[2]
    pieces, room, begins = golden["ids"][1:-1], 6, [0, 4, 5]  # ##ville is scored without jack
    word_of = np.repeat(np.arange(len(golden["words"])), golden["words"])
    scores = []
    for place, word in enumerate(word_of):
        begin = max(begins, key=lambda b: (min(place - b, b + room - 1 - place), -b))
        seen = slice(begin, begin + room)
        masked = [place - begin + 1]
        if level == "word":
            later = np.arange(len(pieces)) >= place
            masked = 1 + np.flatnonzero(((word_of == word) & later)[seen])
        scores.append(log_probability([2, *pieces[seen], 3], place - begin + 1, masked))
    want = [0.0, *scores, 0.0] if level == "token" else -np.bincount(word_of, scores)
    windows = {"max_seq_length": room + 2, "long_text": "window", "stride": 4}
    (record,) = make(level, **windows)([golden["text"]])
    (values,) = record.features.values()
    np.testing.assert_allclose(values[:, 0], want, rtol=0, atol=1e-5)


def test_scores_by_layer():
    ids, layers = SCORED[0]["ids"], ["embeddings", "all"]
    (record,) = make("token", layers=layers)(TEXTS[:1])
    (last,) = make("token")(TEXTS[:1])
    *others, final = record.features.values()
    assert list(record.features) == [f"score_{i}" for i in range(len(others) + 1)]
    assert final.tobytes() == last.features["score"].tobytes()
    for state, values in enumerate(others):
        want = [log_probability(ids, at, [at], state) for at in range(1, len(ids) - 1)]
        np.testing.assert_allclose(values[:, 0], [0.0, *want, 0.0], rtol=0, atol=1e-5)
    (lowest,) = make("token", layers=["embeddings"])(TEXTS[:1])
    np.testing.assert_allclose(lowest.features["score"], others[0], rtol=0, atol=1e-5)

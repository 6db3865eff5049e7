"""The job and the Python calls: golden values, invariance, order, memory."""

import json
import threading

import numpy as np
import pandas as pd
import pytest

from bert_features import FeatureExtractor, extract, get_features, read_features
from bert_features.check.tolerances import TOLERANCES, deviation
from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import read_weights, weights_sha256
from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import InputError, OutputError
from bert_features.readers.input_example import InputExample
from tests.conftest import NUM_DEVICES
from tests.corpus.runs import wait_until
from tests.reference.numpy_encoder import NumpyEncoder

BANK = (
    "After stealing money from the bank vault, the bank robber was seen fishing on the "
    "Mississippi river bank."
)
TOY_SETTINGS = {"max_seq_length": 20, "buckets": (5, 10), "batch_size": 8, "do_lower_case": True}


@pytest.fixture(scope="module")
def states(minilm_dir):
    """Every layer of several texts, the embeddings first; as records."""
    extractor = FeatureExtractor.from_checkpoint(
        "minilm", layers=("embeddings", 0, 1, 2, 3, 4, 5), batch_size=8
    )
    return extractor([BANK, "x", "", "Ünïcödé 日本 \U0001f600"])


def texts_of_many_lengths(count):
    words = ["a", "b", "the", "jackson", "is", "not"]
    return [" ".join(words[(i + j) % 6] for j in range(i * 7 % 23)) for i in range(count)]


@pytest.mark.slow
def test_golden_last_layer_with_the_tanh_gelu(data, minilm_dir):
    golden = json.loads((data / "minilm_golden.json").read_text())["cases"]
    case = next(c for c in golden if c["hidden_act"] == "gelu_tanh")
    extractor = FeatureExtractor.from_checkpoint(
        "minilm", layers=(-1,), hidden_act="gelu_tanh", batch_size=8
    )
    (record,) = extractor([case["text"]])
    assert list(record.tokens) == case["tokens"]
    np.testing.assert_allclose(
        record.features["layer_output_0"], case["sequence_output"], rtol=0, atol=1e-5
    )


@pytest.mark.slow
def test_every_layer_of_minilm_equals_the_reference(states):
    checkpoint = find_checkpoint("minilm")
    encoder = NumpyEncoder(checkpoint.config, read_weights(checkpoint))
    for record in states:
        ids = record.token_ids[None]
        wanted = encoder(ids, np.ones_like(ids), np.zeros_like(ids))
        for got, state in zip(record.features.values(), wanted, strict=True):
            np.testing.assert_allclose(got, state[0], rtol=0, atol=2e-5)


@pytest.mark.slow
def test_get_features_keeps_every_token_its_own_vector(minilm_dir):
    (pairs, other) = get_features([BANK, "bank"], batch_size=8)
    assert [token for token, _ in pairs[:3]] == ["[CLS]", "after", "stealing"]
    vectors = [vector for token, vector in pairs if token == "bank"]
    assert len(vectors) == 3
    assert all(v.shape == (384,) and v.dtype == np.float32 for v in vectors)
    assert np.abs(vectors[0] - vectors[1]).max() > 0.1
    assert [token for token, _ in other] == ["[CLS]", "bank", "[SEP]"]
    (short,) = get_features([BANK], dim=10, batch_size=8)
    np.testing.assert_allclose(short[6][1], vectors[0][:10], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_get_features_of_words(minilm_dir):
    (pairs,) = get_features(["the embeddings"], level="word", batch_size=8)
    assert [word for word, _ in pairs] == ["the", "embeddings"]
    assert pairs[1][1].shape == (384,)


@pytest.fixture(scope="module")
def extractor(toy):
    return FeatureExtractor.from_checkpoint(toy, layers=(-1,), **TOY_SETTINGS)


def test_pairs_and_words_of_lists(extractor):
    pair, words, example = extractor([("a", "b"), ["a", "b"], InputExample("x", "b")])
    assert pair.tokens == ("[CLS]", "a", "[SEP]", "b", "[SEP]")
    assert words.tokens == ("[CLS]", "a", "b", "[SEP]")
    assert example.unique_id == "x"
    for wrong in (3, ("a", "b", "a"), ["a", 1], ("a", None)):
        with pytest.raises(InputError, match=r"texts\[1\] is"):
            extractor(["a", wrong])


def test_truncation_in_python_is_warned_of(extractor, caplog):
    extractor(["a b"])
    assert not [r for r in caplog.records if r.levelname == "WARNING"]
    extractor(["a b", "a " * 30])
    (warning,) = [r for r in caplog.records if r.levelname == "WARNING"]
    assert "1 of 2 texts did not fit max_seq_length 20 and lost 12 tokens" in warning.getMessage()


def test_a_table_is_read_by_its_columns(toy, extractor):
    """Its columns' names were once taken for the texts."""
    frame = pd.DataFrame({"body": ["the a", "b"], "key": ["x", "y"]})
    with pytest.raises(InputError, match="texts is a DataFrame"):
        extractor(frame)
    records = extractor(frame, text_field="body", id_field="key")
    assert [record.unique_id for record in records] == ["x", "y"]
    assert [record.tokens[1:-1] for record in records] == [("the", "a"), ("b",)]
    series = frame["body"][::-1]
    assert [record.unique_id for record in extractor(series)] == [1, 0]
    of_settings = FeatureExtractor.from_checkpoint(
        toy, layers=(-1,), text_field="body", **TOY_SETTINGS
    )
    assert len(of_settings(frame)) == len(of_settings(["a", "b"])) == 2


@pytest.mark.eight_devices
@pytest.mark.slow
def test_same_text_same_vector(minilm_dir, one_device, monkeypatch):
    """Alone, in a batch, in the longest bucket, on one device and on eight: see `check_numbers`."""
    others = ["short", "a text of some more words than the others have " * 3, "x " * 120]
    # Two blocks, as each device traces them again.
    below = {"outputs": [{"name": "below", "layers": [1]}], "batch_size": NUM_DEVICES}
    seen = []

    def run(texts, **changes):
        extractor = FeatureExtractor.from_checkpoint("minilm", **(below | changes))
        seen.append(extractor(texts)[0].features["below"])

    run([BANK], batch_size=1)
    run([BANK, *others])
    run([BANK, *others], buckets=(), max_seq_length=512)
    monkeypatch.undo()
    run([BANK, *others])
    for states in seen[1:]:
        assert TOLERANCES["float32"].allows(deviation(seen[0], states))


@pytest.mark.slow
@pytest.mark.release
def test_sums_of_layers_agree_in_other_batches(minilm_dir, read_lines):
    """Their values are the largest: in some, other batches change more than 1e-5."""
    four = {"layers": [-4, -3, -2, -1], "combine": "sum"}
    outputs = [
        {"name": "sum", **four},
        {"name": "sqrt", "level": "sequence", "pooling": "sqrt_len_mean", **four},
    ]
    texts = [line for line in read_lines("udhr_300.txt") if line.strip()][::5]

    def run(**settings):
        settings |= {"outputs": outputs, "max_seq_length": 128}
        records = FeatureExtractor.from_checkpoint("minilm", **settings)(texts)
        return [
            np.concatenate([np.atleast_2d(record.features[name]) for record in records])
            for name in ("sum", "sqrt")
        ]

    for expected, received in zip(run(), run(buckets=[32, 128], batch_tokens=1024), strict=True):
        assert np.abs(expected).max() > 30
        assert TOLERANCES["float32"].allows(deviation(expected, received))


def test_order_and_ids_are_the_inputs(toy, tmp_path):
    """Those of several megabatches."""
    texts = texts_of_many_lengths(2000)
    path = tmp_path / "in.txt"
    path.write_text("\n".join(texts), encoding="utf-8")
    config = ExtractConfig.of(
        {"checkpoint": toy, "layers": (-1, "embeddings"), "buffer_mb": 1, **TOY_SETTINGS}
    )
    summary = extract(config, path, tmp_path / "out.parquet")
    records = list(read_features(tmp_path / "out.parquet"))
    assert [r.unique_id for r in records] == list(range(2000))
    for text, record in zip(texts, records, strict=True):
        words = [w.removeprefix("##") for w in record.tokens[1:-1]]
        assert "".join(text.split()).startswith("".join(words))
        assert record.features["layer_output_0"].shape == (len(record.tokens), 8)
    counts = summary.counts
    assert counts.examples == 2000
    assert counts.tokens == sum(len(r.tokens) for r in records)
    pieces = [sum(2 if w == "jackson" else 1 for w in text.split()) for text in texts]
    assert counts.truncated_examples == sum(n > 18 for n in pieces)
    assert counts.tokens_lost == sum(max(0, n - 18) for n in pieces)
    assert 0 < counts.pad_waste < 1
    assert summary.bytes_written == (tmp_path / "out.parquet").stat().st_size


def test_a_file_holds_what_the_extractor_gives(toy, tmp_path):
    texts = [*texts_of_many_lengths(9), "", "jacksonville ?"]
    path = tmp_path / "in.txt"
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    settings = {"checkpoint": toy, "layers": (-1, 0), "dtype": "float16", **TOY_SETTINGS}
    config = ExtractConfig.of(settings)
    extract(config, path, tmp_path / "out.hdf5")
    file = read_features(tmp_path / "out.hdf5")
    for got, want in zip(file, FeatureExtractor(config)(texts), strict=True):
        assert (got.unique_id, got.tokens) == (want.unique_id, want.tokens)
        for name, values in want.features.items():
            np.testing.assert_array_equal(got.features[name], values)
    assert file.recipe.settings["outputs"][0]["layers"] == [-1, 0]
    assert file.recipe.checkpoint["sha256"] == weights_sha256(find_checkpoint(toy))
    assert file.recipe.versions.keys() >= {"bert_features", "tensorflow", "keras"}


def test_progress_is_told(toy, tmp_path):
    (tmp_path / "in.txt").write_text("a\n" * 1100)
    config = ExtractConfig.of({"checkpoint": toy, "layers": (-1,), **TOY_SETTINGS})
    told = []
    extract(
        config,
        tmp_path / "in.txt",
        tmp_path / "o.parquet",
        progress=lambda counts, total: told.append((counts.examples, total)),
    )
    # Batches of 8 of the same length: one step of the device after the other.
    assert told == [(min(8 * i, 1100), 1100) for i in range(1, 139)]


def test_results_that_wait_are_bounded(extractor, monkeypatch):
    """However long the input, only about a window of results is held back."""
    monkeypatch.setattr(extractor.preparation, "megabatch_tokens", 2000)
    produced, consumed, lead = 0, 0, []

    def examples():
        nonlocal produced
        for i, text in enumerate(texts_of_many_lengths(3000)):
            produced += 1
            yield InputExample(i, text)

    for batch in extractor.batches(examples):
        consumed += len(batch)
        lead.append(produced - consumed)
    assert consumed == 3000
    assert max(lead) < 2000


def test_the_output_is_refused_before_anything_is_loaded(toy, tmp_path):
    (tmp_path / "o.parquet").write_text("precious")
    config = ExtractConfig.of({"checkpoint": "nowhere"})
    with pytest.raises(OutputError, match="overwrite"):
        extract(config, tmp_path / "in.txt", tmp_path / "o.parquet")
    assert (tmp_path / "o.parquet").read_text() == "precious"


def test_a_failure_half_way_leaves_nothing(toy, tmp_path):
    (tmp_path / "in.txt").write_bytes(b"a b\n" * 5000 + b"\xff\n")
    config = ExtractConfig.of({"checkpoint": toy, "layers": (-1,), "buffer_mb": 1, **TOY_SETTINGS})

    def threads():
        """All but those of steps, which the tests of this room share."""
        return {thread for thread in threading.enumerate() if not thread.name.startswith("step_")}

    before = threads()
    with pytest.raises(InputError, match=r"line 5001: .* offset 20000"):
        extract(
            config, tmp_path / "in.txt", tmp_path / "o.parquet", ledger_path=tmp_path / "ledger"
        )
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]
    wait_until(lambda: threads() <= before)


def test_the_tests_of_this_room_share_steps(toy):
    """Tracing takes a second: an argument that is never the same twice would undo it unseen."""
    config = ExtractConfig.of({"checkpoint": toy, "layers": (-1,), **TOY_SETTINGS})
    assert FeatureExtractor(config)._step is FeatureExtractor(config)._step

"""Attention of texts through the whole package, against the float64 encoder."""

import numpy as np
import pytest

from bert_features import ExtractConfig, FeatureExtractor, extract, read_features
from bert_features.config import output_specs
from bert_features.corpus.preview import plan
from bert_features.errors import ConfigError
from tests.cli.command_line import run
from tests.reference.numpy_encoder import NumpyEncoder
from tests.reference.numpy_outputs import show_attention
from tests.toy import TOY, TOY_VOCAB, random_weights

# One without a word, words of several pieces, a pair, a text that is cut.
TEXTS = [
    "",
    "jacksonville",
    ("is this jacksonville ?", "it is not"),
    "no",
    "jackson is the b . " * 9,
]
OUTPUTS = [
    {"kind": "attention", "layers": [-1, 0]},
    {"kind": "attention", "name": "mean", "layers": [1], "heads": "mean"},
    {"kind": "attention", "name": "cls", "layers": [-1], "heads": [1], "pooling": "cls"},
    {"kind": "attention", "name": "by word", "layers": [-1], "level": "word", "heads": "max"},
    {"kind": "attention", "name": "cls words", "layers": [-1], "level": "word", "pooling": "cls"},
    {"name": "sequence", "layers": [-1], "level": "sequence"},
]
LENGTH = 20


def make_config(toy, **settings):
    usual = {"checkpoint": toy, "do_lower_case": True, "outputs": OUTPUTS, "max_seq_length": LENGTH}
    return ExtractConfig.of(usual | settings)


def write_texts(path):
    lines = (" ||| ".join(text) if isinstance(text, tuple) else text for text in TEXTS)
    path.write_text("\n".join(lines) + "\n")
    return path


def expected(tokens):
    """The attention of one text, float64; and the number of pieces of each of its words."""
    encoder = NumpyEncoder(TOY, random_weights(TOY))
    ids = np.array([[TOY_VOCAB.index(token) for token in tokens]])
    types = np.zeros_like(ids)
    types[0, tokens.index("[SEP]") + 1 :] = 1
    encoder(ids, np.ones_like(ids), types)
    first, second, last = (weights[0] for weights in encoder.attention_of)
    words = []
    for place, token in enumerate(tokens):
        if token.startswith("##"):
            words[-1].append(place)
        elif not token.startswith("["):
            words.append([place])
    features = {
        "attention_0": last,
        "attention_1": first,
        "mean": show_attention(second, ("mean",)),
        "cls": show_attention(last, (1,), pooling="cls"),
        "by word": np.zeros((1, 0, 0)),
    }
    if words:
        features["by word"] = show_attention(last, ("max",), words)
        features["cls words"] = show_attention(last, (0, 1), words, "cls")
    return features, list(map(len, words))


def assert_attention(records, atol=1e-5):
    records = list(records)
    for record in records:
        features, num_pieces = expected(record.tokens)
        kept = record.word_spans.num_pieces > 0
        assert record.word_spans.num_pieces[kept].tolist() == num_pieces
        for name, want in features.items():
            values = record.features[name]
            # Words that were cut off are words, whose vectors are zero; they have no attention.
            values = values[kept] if name == "cls words" else values
            assert values.shape == want.shape, name
            np.testing.assert_allclose(values, want, rtol=0, atol=atol)
    assert len(records) == len(TEXTS)
    assert records[0].features["by word"].shape == (1, 0, 0)
    long = records[-1]
    assert len(long.tokens) == LENGTH
    assert len(long.words) == 45
    assert long.features["by word"].shape == (1, 15, 15)
    assert not long.features["cls words"][15:].any()


def test_texts_in_memory(toy):
    extractor = FeatureExtractor(make_config(toy))
    assert_attention(extractor(TEXTS))
    shapes = [output.describe().removeprefix(f"{output.name} ") for output in extractor.outputs]
    assert shapes == [
        "float32 [2, tokens, tokens]",
        "float32 [2, tokens, tokens]",
        "float32 [1, tokens, tokens]",
        "float32 [tokens, 1]",
        "float32 [1, words, words]",
        "float32 [words, 2]",
        "float32 [8]",
    ]
    assert_attention(FeatureExtractor(make_config(toy, dedupe=True))(TEXTS))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "atol"), [("float32", 1e-5), ("float16", 1e-3), ("bfloat16", 8e-3)]
)
def test_a_file_and_its_plan(toy, tmp_path, dtype, atol):
    config = make_config(toy, dtype=dtype)
    source, target = write_texts(tmp_path / "in.txt"), tmp_path / "out.tfrecord"
    extract(config, source, target)
    opened = read_features(target)
    assert {feature.dtype for feature in opened.features} == {dtype}
    assert_attention(opened, atol)
    attention = opened.features[0]
    assert (attention.kind, attention.level, attention.heads) == ("attention", "token_pair", (0, 1))
    values, splits = opened.ragged("attention_0")
    sizes = [len(record.tokens) for record in opened]
    assert np.diff(splits).tolist() == [size * size for size in sizes]
    assert len(values) == splits[-1]
    stored = sum(opened.ragged(feature.name)[0].nbytes for feature in opened.features)
    assert plan(config, source).output_bytes("tfrecord") == stored


def test_encode(toy):
    extractor = FeatureExtractor(make_config(toy))
    with pytest.raises(ConfigError, match="'mean' has a matrix"):
        extractor.encode(TEXTS, "mean")
    records = extractor(TEXTS)
    ragged = extractor.encode(TEXTS, "attention_0", ragged=True)
    sizes = [len(record.tokens) for record in records]
    assert ragged.row_splits.tolist() == [0, *np.cumsum(np.square(sizes))]
    first = ragged.values[: sizes[0] ** 2].reshape(sizes[0], sizes[0], 2).transpose(2, 0, 1)
    np.testing.assert_array_equal(first, records[0].features["attention_0"])
    single = extractor.encode(TEXTS[1], "attention_0")
    np.testing.assert_allclose(single, records[1].features["attention_0"], rtol=0, atol=1e-5)
    values = extractor.encode(TEXTS[1], "cls")
    np.testing.assert_allclose(values, expected(records[1].tokens)[0]["cls"], rtol=0, atol=1e-5)


def test_batches_whose_attention_would_take_much_memory_are_smaller(toy, monkeypatch):
    ready = FeatureExtractor(make_config(toy, buffer_mb=1)).preparation
    usual = ready.batch_params()["batch_tokens"]
    # Three layers of two heads, 4 bytes each, for each token of the row: room for 64 tokens.
    monkeypatch.setattr(output_specs, "_MAX_ATTENTION_BYTES", 64 * 3 * 2 * 4 * LENGTH)
    assert ready.batch_params()["batch_tokens"] == 64 < usual
    monkeypatch.setattr(output_specs, "_MAX_ATTENTION_BYTES", 1)
    assert ready.batch_params()["batch_tokens"] == LENGTH
    # Of each token: 2 + 2 + 1 + 1 values for each token of its row, 1 for [CLS]; of words 2 more.
    size = 4 * ((2 + 2 + 1 + 1) * LENGTH + 1 + 2 + TOY.hidden_size // 2)
    assert ready.megabatch_tokens == (1 << 20) // size


@pytest.mark.slow
def test_the_command_line(toy, tmp_path):
    source, target = write_texts(tmp_path / "in.txt"), tmp_path / "out.arrow"
    options = ("--checkpoint", toy, "--uncased", "--kind=attention", "--layers=-1")
    for heads in ("--heads=1,0", "--heads=mean"):
        result = run("extract", source, "-o", target, *options, heads, "--overwrite")
        assert result.exit_code == 0, result.stderr
    (feature,) = read_features(target).features
    assert (feature.name, feature.heads, feature.width) == ("attention", ("mean",), 1)
    result = run("plan", source, *options)
    assert "token_pair, 2 values of float32, by the square of the tokens" in result.stdout

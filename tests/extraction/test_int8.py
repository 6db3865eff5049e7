"""Arithmetic in int8, in whole runs: near float32, whatever the batch, and refused elsewhere."""

import logging
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from bert_features import ExtractConfig, FeatureExtractor, compare, extract, read_features
from bert_features.checkpoints.read import view_weights
from bert_features.encoder.int8 import exact_products
from bert_features.errors import CheckpointError, ConfigError
from bert_features.extraction import int8
from bert_features.machine import onednn
from bert_features.readers.input_example import InputExample
from bert_features.runtime.start import make_runtime
from bert_features.tpu.job import plan_job

needs_vnni = pytest.mark.skipif(
    not onednn.fixes_weights("int8"), reason="oneDNN has no VNNI on this CPU"
)
TEXTS = [
    "The river bank was muddy after the flood.",
    "Yes.",
    "She paid 12,5 % more (in 2019) for the same house, didn't she?",
    "A bank robber hid the money; nobody found it for years, and then a dog dug it up. " * 5,
]


def cosines(a, b):
    sizes = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    return (a * b).sum(axis=-1) / sizes


@pytest.fixture(scope="module")
def extractor(minilm_dir):
    return FeatureExtractor.from_checkpoint(minilm_dir, layers="all", precision="int8")


@pytest.mark.slow
@needs_vnni
def test_every_layer_is_near_the_vectors_in_float32(extractor, minilm_dir):
    exact = FeatureExtractor.from_checkpoint(minilm_dir, layers="all")(TEXTS)
    for layer in range(6):
        name = f"layer_output_{layer}"
        found, wanted = (
            np.concatenate([record.features[name] for record in records])
            for records in (extractor(TEXTS), exact)
        )
        near = cosines(found, wanted)
        assert np.percentile(near, 1) > 0.985
        assert near.min() < 0.99999


@pytest.mark.slow
@needs_vnni
def test_the_errors_that_a_run_logs_are_those_of_its_vectors(extractor, minilm_dir):
    exact = FeatureExtractor.from_checkpoint(minilm_dir, layers="all")(TEXTS)
    records = extractor(TEXTS)
    examples = [InputExample(i, text) for i, text in enumerate(TEXTS)]
    errors = int8.errors_by_layer(extractor._model, extractor.preparation, examples)
    assert len(errors) == 6
    for found, name in zip(errors, records[0].features, strict=True):
        pairs = [(a.features[name], b.features[name]) for a, b in zip(records, exact, strict=True)]
        wanted = np.concatenate([cosines(*pair) for pair in pairs])
        np.testing.assert_allclose(np.sort(found), np.sort(wanted), rtol=0, atol=2e-3)


@needs_vnni
def test_a_text_has_the_same_vectors_in_every_batch(extractor):
    """The last bits alone would round other values: there is one graph, also for few tokens."""
    together = extractor(TEXTS)
    for text, among in zip(TEXTS, together, strict=True):
        (alone,) = extractor([text])
        for name, values in alone.features.items():
            np.testing.assert_array_equal(values, among.features[name])


@pytest.mark.slow
@needs_vnni
def test_ranges_depend_on_the_checkpoint_alone(extractor, minilm_dir):
    other = FeatureExtractor.from_checkpoint(
        minilm_dir, precision="int8", max_seq_length=16, level="sequence", prompt="query: "
    )
    mine, others = (e._model.encoder.variables for e in (extractor, other))
    assert {v.dtype for v in mine} == {"float32", "int8"}
    for one, another in zip(mine, others, strict=True):
        np.testing.assert_array_equal(one.numpy(), another.numpy())


@pytest.mark.slow
@needs_vnni
def test_a_run_says_how_exact_it_is_before_its_first_text(minilm_dir, tmp_path, caplog):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    settings = {"checkpoint": str(minilm_dir), "layers": (-1,), "level": "sequence"}
    settings |= {"max_seq_length": 64}
    with caplog.at_level(logging.INFO, "bert_features"):
        for precision in ("int8", "float32"):
            output = str(tmp_path / f"{precision}.parquet")
            config = ExtractConfig.of(settings | {"precision": precision})
            extract(config, str(tmp_path / "texts.txt"), output)
    lines = [line for line in caplog.messages if line.startswith("int8 after layer")]
    assert [line.split(":")[0] for line in lines] == [f"int8 after layer {n}" for n in range(1, 7)]
    assert lines[0].endswith("(the first 4 texts)")
    small, exact = (read_features(tmp_path / f"{name}.parquet") for name in ("int8", "float32"))
    assert small.recipe.arithmetic["precision"] == "int8"
    near = cosines(*(np.stack([r.features["features"] for r in f]) for f in (small, exact)))
    assert 0.99 < near.min() < 0.99999
    (found,) = compare(small, exact)
    assert found.verdict == "rounded"
    assert "precision 'int8' and 'float32'" in str(found)


@needs_vnni
def test_a_checkpoint_that_int8_does_not_suit_is_named(extractor, monkeypatch, caplog):
    monkeypatch.setattr(int8, "_GOOD", 0.9999)
    examples = int8.log_errors(extractor._model, extractor.preparation, [InputExample(7, "A cat.")])
    assert [example.unique_id for example in examples] == [7]
    warnings = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert warnings[0].startswith("int8 is inexact for")


@pytest.mark.parametrize(
    ("best", "off", "reason"),
    [
        ("AVX512", None, "oneDNN has AVX512 here"),
        ("", None, "this is an ARM CPU"),
        ("", None, "oneDNN has neither AVX2 nor AVX-512 here"),
        ("AVX512_VNNI", onednn.Off("TF_ENABLE_ONEDNN_OPTS=0", "unset it"), "oneDNN is off: TF_EN"),
    ],
)
def test_other_cpus_are_refused(monkeypatch, best, off, reason):
    monkeypatch.setattr(onednn, "is_x86", lambda: reason != "this is an ARM CPU")
    monkeypatch.setattr(onednn, "find_class", lambda *_: best)
    monkeypatch.setattr(onednn, "find_off", lambda *_: off)
    runtime = make_runtime("tensorflow", "cpu")
    with pytest.raises(ConfigError, match=rf"AVX-512 VNNI.*{reason}"):
        runtime.choose_precision("int8")
    assert runtime.choose_precision("float32") == "float32"


def test_tpus_are_refused():
    config = ExtractConfig.of({"precision": "int8", "layers": (-1,)})
    with pytest.raises(ConfigError, match="which is for CPUs"):
        plan_job(config, "v5e:2x2", architecture="bert-base-uncased")


@needs_vnni
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    "name", ["embeddings/word_embeddings", "encoder/layer_0/output/dense/kernel"]
)
def test_weights_that_are_not_finite_are_refused(monkeypatch, minilm_dir, name, value):
    """As integers they would pass for numbers."""
    from bert_features.extraction import pipeline

    def read(*arguments, **options):
        weights = dict(view_weights(*arguments, **options))
        weights[name] = weights[name].copy()
        weights[name][-1, -1] = value
        return weights

    monkeypatch.setattr(pipeline, "view_weights", read)
    with pytest.raises(CheckpointError, match=f"{name} has NaN"):
        FeatureExtractor.from_checkpoint(minilm_dir, precision="int8")


@pytest.mark.slow
@needs_vnni
def test_only_the_thread_that_judges_computes_in_float32(extractor, minilm_dir):
    """A graph that another thread traced meanwhile would stay in float32."""
    other = FeatureExtractor.from_checkpoint(minilm_dir, layers="all", precision="int8")
    judging = exact_products(other._model.encoder, view_weights(other.checkpoint))
    with judging, ThreadPoolExecutor(1) as thread:
        (found,) = thread.submit(other, TEXTS[:1]).result()
    (wanted,) = extractor(TEXTS[:1])
    for name, values in wanted.features.items():
        np.testing.assert_array_equal(found.features[name], values)

"""bert_features.ray.Features: the columns that it adds are what FeatureExtractor returns."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from bert_features import FeatureExtractor
from bert_features.errors import ConfigError, InputError
from bert_features.ray import Features
from tests.formats.feature_files import pairs_of

TEXTS = ["a b", "the jacksonville is not", "", "it is"]
SETTINGS = {"do_lower_case": True, "max_seq_length": 8, "batch_size": 4, "layers": (-1,)}
OUTPUTS = [
    {"name": "mean", "level": "sequence", "pooling": "mean"},
    {"name": "pieces", "level": "token"},
    {"name": "words", "level": "word", "pooling": "mean"},
    {"name": "seen", "kind": "attention"},
]
BATCHES = {
    "numpy": lambda columns: {name: np.array(v, object) for name, v in columns.items()},
    "pandas": lambda columns: pd.DataFrame(columns),
    "arrow": lambda columns: pa.table(columns),
}


@pytest.fixture(scope="module")
def features(toy):
    return Features(checkpoint=toy, outputs=OUTPUTS, **SETTINGS)


@pytest.fixture(scope="module")
def records(toy):
    return FeatureExtractor.from_checkpoint(toy, outputs=OUTPUTS, **SETTINGS)(TEXTS)


def rows_of(batch, name):
    column = batch[name]
    if isinstance(batch, pa.Table):
        width = column.type.list_size if name == "mean" else column.type.value_type.list_size
        return [np.array(row, np.float32).reshape(-1, width) for row in column.to_pylist()]
    return [np.atleast_2d(row) for row in column]


@pytest.mark.parametrize("kind", BATCHES)
def test_every_level_becomes_a_column_and_the_others_stay(features, records, kind):
    given = BATCHES[kind]({"text": TEXTS, "label": [3, 1, 2, 0]})
    batch = features(given)
    assert type(batch) is type(given)
    assert list(batch["label"] if kind != "arrow" else batch["label"].to_pylist()) == [3, 1, 2, 0]
    for name in ("mean", "pieces", "words", "seen"):
        for row, record in zip(rows_of(batch, name), records, strict=True):
            expected = np.atleast_2d(record.features[name])
            if (name, kind) == ("seen", "arrow"):
                expected = pairs_of(expected)
            np.testing.assert_array_equal(row, expected)


def test_arrow_columns_have_the_width_in_their_type(features):
    batch = features(pa.table({"text": TEXTS}))
    width = batch["mean"].type.list_size
    assert batch["mean"].type == pa.list_(pa.float32(), width)
    assert batch["pieces"].type == pa.large_list(pa.list_(pa.float32(), width))


def test_arrow_columns_of_bits(toy):
    texts = {"text": TEXTS}
    bits = Features(checkpoint=toy, level="sequence", layers=-1, dtype="binary", dim=7)
    batch = bits(pa.table(texts))
    assert batch["features"].type == pa.list_(pa.uint8(), 1)
    assert len(bits(pa.table(texts).slice(0, 0))["features"]) == 0
    assert bits({"text": np.array(TEXTS, object)})["features"].dtype == np.uint8


@pytest.mark.parametrize("kind", BATCHES)
def test_an_empty_batch_stays_empty(features, kind):
    batch = features(BATCHES[kind]({"text": pa.array([], pa.string()).to_numpy(False)}))
    assert len(batch["mean"]) == len(batch["pieces"]) == 0


@pytest.mark.slow
def test_pairs_words_and_ids_have_columns_of_their_own(toy):
    extractor = FeatureExtractor.from_checkpoint(toy, **SETTINGS)
    pairs = Features(checkpoint=toy, text_column="q", text_b_column="a", **SETTINGS)
    batch = pairs({"q": np.array(["it is"], object), "a": np.array(["a b"], object)})
    (expected,) = extractor([("it is", "a b")])
    np.testing.assert_array_equal(batch["layer_output_0"][0], expected.features["layer_output_0"])

    words = Features(checkpoint=toy, tokens_column="w", id_column="key", **SETTINGS)
    batch = words(pa.table({"w": [["it", "is"]], "key": ["x"]}))
    (expected,) = extractor([["it", "is"]])
    found = np.array(batch["layer_output_0"][0].as_py(), np.float32)
    np.testing.assert_array_equal(found, expected.features["layer_output_0"])


def test_what_is_refused(toy, features):
    with pytest.raises(ConfigError, match="column 'mean' already"):
        features({"text": np.array(["a"], object), "mean": np.zeros(1)})
    with pytest.raises(InputError, match="text"):
        features({"body": np.array(["a"], object)})
    with pytest.raises(ConfigError, match="dtype is 'bfloat16'"):
        Features(checkpoint=toy, dtype="bfloat16")


@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("value", [None, float("nan")])
def test_a_text_that_is_missing_is_named_by_its_row(features, kind, value):
    texts = ["a", "b", value if kind != "arrow" else None]
    with pytest.raises(InputError, match=r"row 2 .* 'text' is null"):
        features(BATCHES[kind]({"text": texts}))


def test_it_works_in_the_driver_of_a_ray(toy, monkeypatch):
    def refuse():
        raise AssertionError("This method is only available when the process is a worker.")

    context = SimpleNamespace(get_assigned_resources=refuse)
    driver = SimpleNamespace(is_initialized=lambda: True, get_runtime_context=lambda: context)
    monkeypatch.setitem(sys.modules, "ray", driver)
    batch = Features(checkpoint=toy, **SETTINGS)({"text": np.array(["a"], object)})
    assert len(batch["layer_output_0"]) == 1


def test_importing_it_imports_neither_ray_nor_tensorflow():
    program = (
        "import sys; from bert_features.ray import Features;"
        "sys.exit(bool({'ray', 'tensorflow', 'jax'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Ray leaves its files open
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
@pytest.mark.filterwarnings("ignore::FutureWarning:ray")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_map_batches_of_a_ray_dataset_adds_the_columns(toy, records):
    import ray
    from ray.data import DataContext

    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    DataContext.get_current().enable_progress_bars = False
    settings = {"checkpoint": toy, "outputs": OUTPUTS, **SETTINGS}
    try:
        texts = ray.data.from_arrow(pa.table({"text": TEXTS}))
        found = texts.map_batches(
            Features,
            fn_constructor_kwargs=settings,
            batch_size=3,
            compute=ray.data.ActorPoolStrategy(size=1),
        ).take_all()
    finally:
        ray.shutdown()
    assert [row["text"] for row in found] == TEXTS
    for row, record in zip(found, records, strict=True):
        for name in ("mean", "pieces", "words"):
            np.testing.assert_allclose(row[name], record.features[name], rtol=0, atol=1e-5)

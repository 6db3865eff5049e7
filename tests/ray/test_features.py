"""bert_features.ray.Features: the columns that it adds are what FeatureExtractor returns."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from bert_features import FeatureExtractor
from bert_features.errors import ConfigError, InputError
from bert_features.ray import Features

TEXTS = ["a b", "the jacksonville is not", "", "it is"]
SETTINGS = {"do_lower_case": True, "max_seq_length": 8, "batch_size": 4, "layers": (-1,)}
OUTPUTS = [
    {"name": "mean", "level": "sequence", "pooling": "mean"},
    {"name": "pieces", "level": "token"},
    {"name": "words", "level": "word", "pooling": "mean"},
]
BATCHES = {
    "numpy": lambda columns: {name: np.array(v, object) for name, v in columns.items()},
    "pandas": lambda columns: pd.DataFrame(columns),
    "arrow": lambda columns: pa.table(columns),
}


@pytest.fixture
def records(toy):
    return FeatureExtractor.from_checkpoint(toy, outputs=OUTPUTS, **SETTINGS)(TEXTS)


def rows_of(batch, name):
    column = batch[name]
    if isinstance(batch, pa.Table):
        width = column.type.list_size if name == "mean" else column.type.value_type.list_size
        return [np.array(row, np.float32).reshape(-1, width) for row in column.to_pylist()]
    return [np.atleast_2d(row) for row in column]


@pytest.mark.parametrize("kind", BATCHES)
def test_every_level_becomes_a_column_and_the_others_stay(toy, records, kind):
    features = Features(checkpoint=toy, outputs=OUTPUTS, **SETTINGS)
    given = BATCHES[kind]({"text": TEXTS, "label": [3, 1, 2, 0]})
    batch = features(given)
    assert type(batch) is type(given)
    assert list(batch["label"] if kind != "arrow" else batch["label"].to_pylist()) == [3, 1, 2, 0]
    for name in ("mean", "pieces", "words"):
        for row, record in zip(rows_of(batch, name), records, strict=True):
            expected = np.atleast_2d(record.features[name])
            np.testing.assert_array_equal(row, expected)


def test_arrow_columns_have_the_width_in_their_type(toy):
    batch = Features(checkpoint=toy, outputs=OUTPUTS, **SETTINGS)(pa.table({"text": TEXTS}))
    width = batch["mean"].type.list_size
    assert batch["mean"].type == pa.list_(pa.float32(), width)
    assert batch["pieces"].type == pa.large_list(pa.list_(pa.float32(), width))


@pytest.mark.parametrize("kind", BATCHES)
def test_an_empty_batch_stays_empty(toy, kind):
    features = Features(checkpoint=toy, outputs=OUTPUTS, **SETTINGS)
    batch = features(BATCHES[kind]({"text": pa.array([], pa.string()).to_numpy(False)}))
    assert len(batch["mean"]) == len(batch["pieces"]) == 0


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


def test_a_column_of_the_name_of_an_output_is_refused(toy):
    features = Features(checkpoint=toy, **SETTINGS)
    with pytest.raises(ConfigError, match="has a column 'layer_output_0' already"):
        features({"text": np.array(["a"], object), "layer_output_0": np.zeros(1)})


def test_a_missing_column_is_named(toy):
    features = Features(checkpoint=toy, **SETTINGS)
    with pytest.raises(InputError, match="text"):
        features({"body": np.array(["a"], object)})


def test_bfloat16_is_refused(toy):
    with pytest.raises(ConfigError, match="dtype is 'bfloat16'"):
        Features(checkpoint=toy, dtype="bfloat16")


def test_importing_it_imports_neither_ray_nor_tensorflow():
    program = (
        "import sys; from bert_features.ray import Features;"
        "sys.exit(bool({'ray', 'tensorflow', 'jax'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


@pytest.fixture
def local_ray():
    import ray
    from ray.data import DataContext

    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    DataContext.get_current().enable_progress_bars = False
    yield ray
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Ray leaves its files open
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
@pytest.mark.filterwarnings("ignore::FutureWarning:ray")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_map_batches_of_a_ray_dataset_adds_the_columns(toy, records, local_ray):
    rows = [{"text": text, "label": i} for i, text in enumerate(TEXTS)]
    found = (
        local_ray.data.from_items(rows)
        .map_batches(
            Features,
            fn_constructor_kwargs={"checkpoint": toy, "outputs": OUTPUTS, **SETTINGS},
            batch_size=3,
            concurrency=1,
        )
        .sort("label")
        .take_all()
    )
    assert [row["text"] for row in found] == TEXTS
    for row, record in zip(found, records, strict=True):
        for name in ("mean", "pieces", "words"):
            np.testing.assert_allclose(row[name], record.features[name], rtol=0, atol=1e-5)

"""Files saved by the version before the rooms (tests/data/saved) still load and give the same.

They were made from the toy checkpoint of `tests.toy` by `keras.Model.save` and `export_savedmodel`.
"""

import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_features
from bert_features import load_export

SAVED = Path(__file__).parents[1] / "data" / "saved"


@pytest.fixture(scope="module")
def expected():
    return dict(np.load(SAVED / "expected.npz"))


@pytest.fixture
def export(request, tmp_path):
    shutil.unpack_archive(SAVED / f"export_{request.param}.zip", tmp_path / "export")
    return tmp_path / "export"


def part(expected, prefix):
    return {n.removeprefix(prefix): v for n, v in expected.items() if n.startswith(prefix)}


def assert_outputs(received, expected, *names):
    for name in names:
        np.testing.assert_allclose(received[name], expected[f"out_{name}"], rtol=0, atol=1e-6)


def test_text_input_layer(expected):
    assert bert_features.BertTextInput
    model = keras.models.load_model(SAVED / "text_input.keras")
    for name, value in model(tf.constant(expected["texts"].astype(bytes))).items():
        np.testing.assert_array_equal(value, expected[f"in_{name}"])


@pytest.mark.slow
@pytest.mark.parametrize("export", ["text"], indirect=True)
def test_export_of_text(export, expected):
    result = load_export(export)(expected["texts"].tolist())
    assert_outputs(result, expected, "mean")
    length = result["last"].shape[1]
    np.testing.assert_allclose(result["last"], expected["out_last"][:, :length], rtol=0, atol=1e-6)


@pytest.mark.parametrize("export", ["ids"], indirect=True)
def test_export_of_ids(export, expected):
    batch = {n: v for n, v in part(expected, "in_").items() if n != "word_indices"}
    assert_outputs(load_export(export)(batch), expected, "mean")


@pytest.mark.parametrize("export", ["ids"], indirect=True)
def test_export_is_a_checkpoint(export, expected):
    extractor = bert_features.FeatureExtractor.from_checkpoint(
        export, layers=[-1], level="sequence", special_tokens=False, max_seq_length=12
    )
    vectors = [record.features["features"] for record in extractor(expected["texts"].tolist())]
    np.testing.assert_allclose(vectors, expected["out_mean"], rtol=0, atol=1e-5)

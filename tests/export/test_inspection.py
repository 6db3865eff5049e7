"""read_signature: what a SavedModel takes and returns, without loading it."""

import pytest
import tensorflow as tf

from bert_features.errors import OutputError
from bert_features.export.inspection import read_signature


def test_an_export_of_ids_agrees_with_the_loaded_model(toy_ids):
    signature = read_signature(toy_ids)
    served = tf.saved_model.load(str(toy_ids)).signatures["serving_default"]
    _, inputs = served.structured_input_signature
    for described, specs in (
        (signature.inputs, inputs),
        (signature.outputs, served.structured_outputs),
    ):
        assert {tensor.name: (tensor.dtype, tensor.shape) for tensor in described} == {
            name: (spec.dtype.name, tuple(spec.shape)) for name, spec in specs.items()
        }
    assert [tensor.name for tensor in signature.inputs] == [
        "input_mask", "input_type_ids", "input_word_ids",
    ]  # fmt: skip


def test_a_model_without_that_signature(tmp_path):
    tf.saved_model.save(tf.train.Checkpoint(), str(tmp_path))
    assert read_signature(tmp_path) is None


def test_damage(toy_text, tmp_path):
    with pytest.raises(OutputError, match=r"saved_model\.pb"):
        read_signature(tmp_path)
    content = (toy_text / "saved_model.pb").read_bytes()
    (tmp_path / "saved_model.pb").write_bytes(content[: len(content) // 2])
    with pytest.raises(OutputError, match=r"saved_model\.pb"):
        read_signature(tmp_path)

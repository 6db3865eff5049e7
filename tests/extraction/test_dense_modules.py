"""Dense modules of sentence-transformers, which follow the pooling; and a vector that is cut."""

import json

import numpy as np
import pytest

from bert_features import BertFeatures, FeatureExtractor, find_checkpoint
from bert_features.checkpoints.convert import convert
from bert_features.checkpoints.modules.sentence_transformers import read_dense
from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import ConfigError
from bert_features.export.loading import load_export
from bert_features.export.savedmodel import export_savedmodel
from bert_features.extraction.recipe import plan_recipe
from tests.sentence_dense import AUTO, NAMES, TEXTS, VECTORS, dense, reference, write

POOLINGS = {"labse": "cls", "distiluse": "mean", "sentence_t5": "mean", "two": "cls+max"}


def close(got, wanted):
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_the_vectors_are_those_of_sentence_transformers(tmp_path, name):
    """Also of packed rows, whose texts share a row of the batch."""
    folder = write(name, tmp_path / "in")
    packing = name == "two"
    extractor = FeatureExtractor.from_checkpoint(folder, **AUTO, packing=packing)
    vectors = extractor.encode(TEXTS)
    assert extractor.outputs[0].width == vectors.shape[1]
    close(vectors, VECTORS[name])
    wanted = {"normalize": name in ("labse", "sentence_t5")}
    wanted["dim"] = 5 if name == "sentence_t5" else None
    a_boat = [2, 11, 7, 3]  # with [CLS] and [SEP]
    close(vectors[2], reference(folder, a_boat, POOLINGS[name], **wanted))


@pytest.mark.slow
def test_what_the_user_sets_stays(tmp_path):
    """The folder scales a vector of 12 values, then keeps 5."""
    folder = write("sentence_t5", tmp_path / "in")
    wanted = {
        "auto": {},
        "dim": {"dim": 7},
        "raw": {"normalize": False},
        "unit": {"normalize": True},
        "half": {"dtype": "float16"},
        "bits": {"dtype": "binary"},
        "first": {"layers": [0]},
        "mean": {"pooling": "mean", "layers": [-1]},
    }
    outputs = [{"name": name, **AUTO, **settings} for name, settings in wanted.items()]
    extractor = FeatureExtractor.from_checkpoint(folder, outputs=outputs, max_seq_length=16)
    assert [output.width for output in extractor.outputs] == [5, 7, 5, 5, 5, 5, 5, 16]
    got = {name: extractor.encode(TEXTS, name) for name in wanted}
    full = np.stack([dense(folder, vector) for vector in got["mean"].astype(np.float64)])
    close(got["auto"], VECTORS["sentence_t5"])
    close(got["auto"], (full / np.linalg.norm(full, axis=1, keepdims=True))[:, :5])
    close(got["dim"], full[:, :7] / np.linalg.norm(full[:, :7], axis=1, keepdims=True))
    close(got["raw"], full[:, :5])
    close(got["unit"], full[:, :5] / np.linalg.norm(full[:, :5], axis=1, keepdims=True))
    np.testing.assert_array_equal(got["half"], got["auto"].astype(np.float16))
    np.testing.assert_array_equal(got["bits"], np.packbits(got["auto"] > 0, axis=1))
    close(got["first"][2], reference(folder, [2, 11, 7, 3], "mean", normalize=True, layer=1)[:5])


def test_each_window_of_a_long_text_goes_through_the_modules(tmp_path):
    """Here all they do is linear, so that the order with the average is the same."""
    identity = {"activation_function": "torch.nn.modules.linear.Identity", "bias": True}
    folder = write("labse", tmp_path / "in", **{"2_Dense_config": identity})
    mean = {"name": "cls", "level": "sequence", "pooling": "cls", "layers": [-1]}
    extractor = FeatureExtractor.from_checkpoint(
        folder, outputs=[{"name": "auto", **AUTO}, mean], long_text="window", max_seq_length=8
    )
    text = TEXTS[3]
    full = dense(folder, extractor.encode(text, "cls").astype(np.float64))
    close(extractor.encode(text, "auto"), full / np.linalg.norm(full))


def test_layers_that_do_not_fit_the_modules(tmp_path):
    folder = write("labse", tmp_path / "in")
    message = "a Dense module for 16 values, and this output has 32 before it"
    with pytest.raises(ConfigError, match=message):
        FeatureExtractor.from_checkpoint(folder, **AUTO, layers=[-1, 0], combine="concat")
    with pytest.raises(ConfigError, match="dim"):
        FeatureExtractor.from_checkpoint(folder, **AUTO, dim=17)


@pytest.mark.parametrize("to", ["safetensors", "tf1"])
def test_a_conversion_keeps_the_modules(tmp_path, to):
    folder = write("two", tmp_path / "in")
    source = find_checkpoint(folder)
    assert folder / "3_Dense" / "model.safetensors" in [path for _, path in source.files()]
    for _ in range(2):  # the second time it is replaced
        convert(source, tmp_path / "out", to=to, overwrite=True)
    got = find_checkpoint(tmp_path / "out").sentence_transformers
    wanted = source.sentence_transformers
    assert (got.modules, got.unsupported) == (wanted.modules, None)
    for name, value in read_dense(wanted, wanted.dense).items():
        np.testing.assert_array_equal(read_dense(got, got.dense)[name], value)


def test_the_weights_of_the_modules_are_part_of_the_checkpoint(tmp_path):
    folder, other = write("labse", tmp_path / "a"), write("labse", tmp_path / "b")
    run = plan_recipe(ExtractConfig(**AUTO), find_checkpoint(folder)).checkpoint
    path = other / "2_Dense" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    changed = plan_recipe(ExtractConfig(**AUTO), find_checkpoint(other)).checkpoint
    assert changed["sha256"] == run["sha256"] != run["heads"]["features"]
    assert changed["heads"] != run["heads"]
    assert "heads" not in plan_recipe(ExtractConfig(layers=-1), find_checkpoint(folder)).checkpoint


def test_a_keras_layer_has_and_trains_the_modules(tmp_path):
    folder = write("labse", tmp_path / "in")
    ids = np.array([[2, 11, 7, 3]])
    batch = {"input_word_ids": ids, "input_mask": np.ones_like(ids)}
    batch["input_type_ids"] = np.zeros_like(ids)
    layer = BertFeatures.from_checkpoint(folder, [AUTO], trainable=True)
    close(layer(batch)["features"], VECTORS["labse"][2:3])
    copy = BertFeatures.from_config(json.loads(json.dumps(layer.get_config())))
    copy.set_weights([weight * 1.5 for weight in layer.get_weights()])
    trained = copy(batch)["features"]
    assert np.abs(trained - layer(batch)["features"]).max() > 0.1
    saved = copy.save_checkpoint(tmp_path / "out", folder)
    close(BertFeatures.from_checkpoint(saved, [AUTO])(batch)["features"], trained)


@pytest.mark.slow
def test_an_export_has_the_modules_and_is_a_checkpoint_with_them(tmp_path):
    folder = write("distiluse", tmp_path / "in")
    outputs = [{"name": "auto", **AUTO}]
    to = export_savedmodel(tmp_path / "out", signature="ids", checkpoint=folder, outputs=outputs)
    ids = np.array([[2, 11, 7, 3]])
    batch = {"input_word_ids": ids, "input_mask": ids > 0, "input_type_ids": ids * 0}
    close(load_export(to)(batch, "auto"), VECTORS["distiluse"][2:3])
    found, source = (find_checkpoint(path).sentence_transformers for path in (to, folder))
    assert found.modules == source.modules
    for name, value in read_dense(source, source.dense).items():
        np.testing.assert_array_equal(read_dense(found, found.dense)[name], value)

"""Reading TF2 checkpoints, SavedModels of TF-Hub and shards: bit-identical, whole or refused."""

import json
import logging
import shutil

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import has_pooler, read_weights, weights_sha256
from bert_features.checkpoints.weights import weight_names
from bert_features.errors import CheckpointError
from tests.reference.tf1_checkpoint import write_directory
from tests.reference.tf2_checkpoint import (
    V2,
    V3,
    garden_tensors,
    module_of,
    named,
    path_of,
    write_checkpoint,
    write_saved_model,
    write_tf1_hub_module,
)
from tests.toy import TOY, TOY_VOCAB, random_weights
from tests.weights import assert_same

WEIGHTS = random_weights(TOY)
HEADS = TOY.num_attention_heads
GARDEN = garden_tensors(WEIGHTS, HEADS)
MLM = {
    "cls/predictions/transform/dense/kernel": np.ones((8, 8), np.float32),
    "cls/predictions/transform/LayerNorm/gamma": np.ones(8, np.float32),
    "cls/predictions/output_bias/bias": np.ones(30, np.float32),
}


def write_config(folder, config=TOY):
    folder.mkdir(parents=True, exist_ok=True)
    values = config.model_dump() | {"hidden_act": "gelu"}
    (folder / "bert_config.json").write_text(json.dumps(values))
    return folder


@pytest.mark.parametrize(("scope", "root"), [("", "encoder"), ("bert_encoder_v2/", "model")])
def test_a_model_garden_checkpoint(tmp_path, scope, root, caplog):
    folder = write_config(tmp_path)
    tensors = garden_tensors(WEIGHTS, HEADS, scope=scope) | MLM
    write_checkpoint(folder / "bert_model.ckpt", **{root: module_of(named(tensors))})
    checkpoint = find_checkpoint(folder)
    assert (checkpoint.kind, checkpoint.family) == ("tf2", "google")
    assert checkpoint.config == TOY
    assert has_pooler(checkpoint)
    with caplog.at_level(logging.INFO, "bert_features"):
        assert_same(read_weights(checkpoint, pooler=True), WEIGHTS)
    assert "ignoring the heads cls/predictions/output_bias/bias, cls/pred" in caplog.text


@pytest.mark.parametrize("scope", ["", "encoder", "model"])
def test_a_model_garden_checkpoint_by_its_paths(tmp_path, scope):
    # Variables without names of their own: the paths to them tell what they are.
    tensors = {
        path_of(name, TOY.num_hidden_layers): tensor
        for name, tensor in zip(WEIGHTS, GARDEN.values(), strict=True)
    }
    encoder = module_of({path: tf.Variable(value) for path, value in tensors.items()})
    objects = {scope: encoder} if scope else {"root": encoder}
    write_checkpoint(write_config(tmp_path) / "bert_model.ckpt", **objects)
    keys = {name for name, _ in tf.train.list_variables(str(tmp_path / "bert_model.ckpt"))}
    path = "layer_with_weights-4/_attention_layer/_query_dense/kernel/.ATTRIBUTES/VARIABLE_VALUE"
    assert f"{scope}/{path}".removeprefix("/") in keys
    assert_same(read_weights(find_checkpoint(tmp_path), pooler=True), WEIGHTS)


def test_optimizer_slots_counters_and_settings_are_passed_over(tmp_path, caplog):
    encoder = module_of(named(GARDEN))
    slots = {f"Adam/m/{name}": np.ones_like(value) for name, value in GARDEN.items()}
    checkpoint = tf.train.Checkpoint(
        encoder=encoder,
        optimizer=module_of(named(slots)),
        global_step=tf.Variable(7, dtype=tf.int64),
    )
    prefix = checkpoint.save(str(write_config(tmp_path) / "ckpt"))
    assert any("save_counter" in name for name, _ in tf.train.list_variables(prefix))
    with caplog.at_level(logging.INFO, "bert_features"):
        assert_same(read_weights(find_checkpoint(tmp_path), pooler=True), WEIGHTS)
    assert not caplog.text


@pytest.mark.slow
def test_an_encoder_that_keras_saved(tmp_path):
    """Keras itself, not this test, makes the names; the optimizer and metrics are saved along."""
    from tests.reference.keras_encoder import keras_encoder

    config = TOY.model_copy(update={"num_hidden_layers": 2})
    model = keras_encoder(config)
    expected = garden_tensors(random_weights(config), HEADS)
    assert {variable.name.removesuffix(":0") for variable in model.weights} == expected.keys()
    for variable in model.weights:
        variable.assign(expected[variable.name.removesuffix(":0")])
    model.compile("adam", "mse", run_eagerly=True)  # to trace the training takes seconds
    inputs = [np.zeros((1, 4), np.int32)] * 2
    model.fit(inputs, [np.zeros((1, 4, 8)), np.zeros((1, 8))], verbose=0)  # the slots of Adam
    trained = {v.name.removesuffix(":0"): v.numpy() for v in model.weights}
    write_checkpoint(tmp_path / "1" / "ckpt-1", encoder=model, optimizer=model.optimizer)
    model.save(tmp_path / "2", save_format="tf")
    for folder in ("1", "2"):
        weights = read_weights(find_checkpoint(tmp_path / folder), pooler=True)
        assert_same(garden_tensors(weights, HEADS), trained)


def test_the_pooler_trained_in_the_next_sentence_head(tmp_path, caplog):
    untrained = {n: np.zeros_like(v) if "pooler" in n else v for n, v in GARDEN.items()}
    head = tf.Module()
    head.kernel = tf.Variable(WEIGHTS["pooler/dense/kernel"], name="pooler_dense/kernel")
    head.bias = tf.Variable(WEIGHTS["pooler/dense/bias"], name="pooler_dense/bias")
    write_checkpoint(
        write_config(tmp_path) / "bert_model.ckpt",
        encoder=module_of(named(untrained)),
        **{"next_sentence.pooler_dense": head},
    )
    keys = {name for name, _ in tf.train.list_variables(str(tmp_path / "bert_model.ckpt"))}
    assert "next_sentence..pooler_dense/kernel/.ATTRIBUTES/VARIABLE_VALUE" in keys
    with caplog.at_level(logging.INFO, "bert_features"):
        assert_same(read_weights(find_checkpoint(tmp_path), pooler=True), WEIGHTS)
    assert "the pooler is read from its next-sentence head" in caplog.text


@pytest.mark.parametrize(
    ("table", "scope", "do_lower_case"),
    [(V3, "", True), (V3, "bert_model/", False), (V2, "bert_model/", None)],
)
def test_a_saved_model_of_tf_hub(tmp_path, table, scope, do_lower_case, caplog):
    tensors = garden_tensors(WEIGHTS, HEADS, table=table, scope=scope)
    folder = write_saved_model(
        tmp_path / "3", tensors, vocab=TOY_VOCAB, do_lower_case=do_lower_case
    )
    with caplog.at_level(logging.INFO, "bert_features"):
        checkpoint = find_checkpoint(folder)
    assert checkpoint.kind == "tf2"
    assert checkpoint.config == TOY
    assert "no bert_config.json: its shapes show 3 layers of width 8 and 2 heads (stored); th" in (
        caplog.text
    )
    assert checkpoint.vocab_file == folder / "assets" / "vocab.txt"
    assert checkpoint.do_lower_case is do_lower_case
    if do_lower_case is not None:
        word = str(do_lower_case).lower()
        assert checkpoint.casing_evidence == f"do_lower_case is {word} in its variables"
    assert_same(read_weights(checkpoint, pooler=True), WEIGHTS)


def test_a_saved_model_by_any_of_its_paths(saved_model):
    weights = saved_model / "variables" / "variables"
    for path in ("", "saved_model.pb", "variables", weights, f"{weights}.index"):
        found = find_checkpoint(saved_model / path)
        assert (found.weights_path, found.config) == (weights, TOY)
        assert found.vocab_file == saved_model / "assets" / "vocab.txt"


@pytest.mark.parametrize("where", [".", "assets"])
def test_the_config_of_a_saved_model_goes_before_its_shapes(saved_model, tmp_path, where, caplog):
    folder = shutil.copytree(saved_model, tmp_path / "3")
    config = TOY.model_copy(update={"layer_norm_eps": 1e-6})
    write_config(folder / where, config)
    with caplog.at_level(logging.INFO, "bert_features"):
        assert find_checkpoint(folder).config == config
    assert not caplog.text


WIDE = TOY.model_copy(update={"hidden_size": 128})


@pytest.mark.parametrize("scope", ["module/bert/", "bert/"])
def test_a_tf1_module_of_tf_hub(tmp_path, scope, caplog):
    weights = random_weights(WIDE)
    tensors = {f"{scope}{name}": value for name, value in weights.items()}
    tensors["module/cls/predictions/output_bias"] = np.zeros(30, np.float32)
    folder = write_tf1_hub_module(tmp_path / "1", tensors, vocab=TOY_VOCAB)
    with caplog.at_level(logging.INFO, "bert_features"):
        checkpoint = find_checkpoint(folder)
        assert_same(read_weights(checkpoint, pooler=True), weights)
    assert checkpoint.kind == "tf1"
    assert checkpoint.config == WIDE
    assert (
        "of width 128 and 2 heads (each of width 64, as in all that Google published)"
        in caplog.text
    )
    assert "ignoring the heads module/cls/predictions/output_bias" in caplog.text
    assert checkpoint.vocab_file == folder / "assets" / "vocab.txt"


def test_heads_that_shapes_do_not_tell(tmp_path):
    tensors = {f"bert/{name}": value for name, value in WEIGHTS.items()}
    folder = write_tf1_hub_module(tmp_path / "1", tensors)
    with pytest.raises(
        CheckpointError, match=r"the number of heads: .* \(8, 8\), width 8; pass config_file"
    ):
        find_checkpoint(folder)
    config = write_config(tmp_path / "config") / "bert_config.json"
    found = find_checkpoint(folder, config_file=config)
    assert_same(read_weights(found, pooler=True), WEIGHTS)


def test_the_names_that_an_exporter_writes():
    assert_same(weight_names.garden_weights(WEIGHTS, TOY), GARDEN)
    assert [weight_names.garden_name(name) for name in WEIGHTS] == list(GARDEN)


SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


@pytest.fixture
def sharded(tmp_path):
    """A directory as transformers' save_pretrained(max_shard_size=…) writes it."""
    folder = write_directory(tmp_path / "m", TOY, TOY_VOCAB, WEIGHTS)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    weight_map = {name: SHARDS[i % 2] for i, name in enumerate(tensors)}
    for shard in SHARDS:
        save_file({n: v for n, v in tensors.items() if weight_map[n] == shard}, folder / shard)
    write_index(folder, weight_map)
    return folder


def write_index(folder, weight_map):
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def read_index(folder):
    return json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]


def test_shards(sharded):
    index = sharded / "model.safetensors.index.json"
    for path in (sharded, index):
        checkpoint = find_checkpoint(path)
        assert (checkpoint.kind, checkpoint.weights_path) == ("safetensors", index)
        assert_same(read_weights(checkpoint, pooler=True), WEIGHTS)


@pytest.mark.parametrize(
    "shard", ["../x.safetensors", "/etc/x.safetensors", "a\\x.safetensors", "pytorch_model.bin", 7]
)
def test_a_hostile_index_that_leads_elsewhere(sharded, shard):
    (sharded.parent / "x.safetensors").write_bytes(b"")
    checkpoint = find_checkpoint(sharded)
    write_index(sharded, read_index(sharded) | {"pooler.dense.bias": shard})
    for use in (read_weights, lambda found: find_checkpoint(sharded), weights_sha256):
        with pytest.raises(CheckpointError, match=r"not \.safetensors files in its own folder: "):
            use(checkpoint)

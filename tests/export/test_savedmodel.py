"""SavedModels: what they give in a process without this package, TF-Hub's interface, failures."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from typer.testing import CliRunner

from bert_features import (
    BertFeatures,
    BertTextInput,
    FeatureExtractor,
    export_savedmodel,
    find_checkpoint,
    load_export,
    read_weights,
)
from bert_features.checkpoints.find import has_pooler
from bert_features.cli import app
from bert_features.errors import CheckpointError, ConfigError, InputError, OutputError
from tests.reference.numpy_encoder import NumpyEncoder
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, TOY_VOCAB, random_batch, random_weights

IDS = ("input_word_ids", "input_mask", "input_type_ids")
MEAN = {"name": "mean", "level": "sequence", "layers": [-1], "special_tokens": False}
UNIT = {"name": "unit", "level": "sequence", "layers": [-1], "normalize": True}
LAST = {"name": "last", "layers": [-1]}
TEXTS = [
    "Hello, World! It's a naïve café…",
    "",
    "ΟΔΥΣΣΕΥΣ 中文 mixed",
    "\u200bzero\u00adwidth \x00 control",
    "unaffable embeddings " * 40,
    "[CLS] typed [SEP] specials",
]


@pytest.fixture(scope="module")
def weights():
    return random_weights(TOY)


@pytest.fixture
def no_pooler(tmp_path, weights):
    bare = {n: w for n, w in weights.items() if not n.startswith("pooler")}
    return write_directory(tmp_path / "uncased_bare", TOY, TOY_VOCAB, bare, kind="tf1")


@pytest.fixture(scope="module")
def toy_text(tmp_path_factory, toy):
    to = tmp_path_factory.mktemp("export") / "text"
    return export_savedmodel(to, checkpoint=toy, outputs=[MEAN, LAST], max_seq_length=12)


@pytest.fixture(scope="module")
def toy_ids(tmp_path_factory, toy):
    to = tmp_path_factory.mktemp("export") / "ids"
    return export_savedmodel(to, signature="ids", checkpoint=toy, outputs=[MEAN])


@pytest.fixture(scope="module")
def batch():
    return random_batch(TOY, [9, 4, 1], 9)


def constants(batch):
    return {name: tf.constant(batch[name]) for name in IDS}


# Without this package.

BLOCKED = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("bert_features", "keras"):
            raise ImportError(name + " is blocked")

import numpy as np, tensorflow as tf, tensorflow_text
for name in [n for n in sys.modules if n.split(".")[0] in ("bert_features", "keras")]:
    del sys.modules[name]
sys.meta_path.insert(0, Block())
try:
    import bert_features
except ImportError:
    pass
else:
    sys.exit("bert_features is importable")
inputs = np.load(sys.argv[2], allow_pickle=True)
model = tf.saved_model.load(sys.argv[1])
(arguments,) = [f.structured_input_signature[1] for f in model.signatures.values()]
result = model.signatures["serving_default"](**{n: tf.constant(inputs[n]) for n in arguments})
np.savez(sys.argv[3], **{name: value.numpy() for name, value in result.items()})
"""


def served(export, folder, **inputs):
    """What `serving_default` gives in a process that cannot import bert_features."""
    np.savez(folder / "in.npz", **inputs)
    command = [sys.executable, "-c", BLOCKED, export, folder / "in.npz", folder / "out.npz"]
    run = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=folder)
    assert run.returncode == 0, run.stderr
    print(run.stdout.strip())
    with np.load(folder / "out.npz") as result:
        return dict(result)


@pytest.mark.slow
def test_minilm_from_text_in_a_fresh_process(minilm_dir, tmp_path, one_device):
    export = export_savedmodel(
        tmp_path / "text", checkpoint=minilm_dir, outputs=[UNIT, LAST], max_seq_length=32
    )
    result = served(export, tmp_path, text=np.array([t.encode() for t in TEXTS], object))
    assert result.keys() == {"unit", "last", "input_word_ids", "input_mask"}

    batch = BertTextInput.from_checkpoint(minilm_dir, max_seq_length=32)(TEXTS)
    for name in ("input_word_ids", "input_mask"):
        np.testing.assert_array_equal(result[name], batch[name])
    layer = BertFeatures.from_checkpoint(minilm_dir, [UNIT, LAST])(batch)
    extractor = FeatureExtractor.from_checkpoint(
        minilm_dir, outputs=[UNIT, LAST], max_seq_length=32, device="cpu"
    )
    np.testing.assert_allclose(result["unit"], layer["unit"], rtol=0, atol=1e-6)
    for row, record in enumerate(extractor(TEXTS)):
        np.testing.assert_allclose(result["unit"][row], record.features["unit"], rtol=0, atol=1e-6)
        # Token vectors are as long as 10: the contract for them is 1e-5.
        tokens = record.features["last"]
        np.testing.assert_allclose(result["last"][row, : len(tokens)], tokens, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_toy_ids_in_a_fresh_process(toy, toy_ids, batch, tmp_path):
    result = served(toy_ids, tmp_path, **batch)
    assert result.keys() == {"default", "pooled_output", "sequence_output", "mean"}
    outputs = [LAST, MEAN, {"name": "pooled", "level": "sequence", "pooling": "pooler"}]
    layer = BertFeatures.from_checkpoint(toy, outputs)(batch)
    for name, same in [("sequence_output", "last"), ("mean", "mean"), ("default", "pooled")]:
        np.testing.assert_allclose(result[name], layer[same], rtol=0, atol=1e-6)


# An encoder of TF-Hub's form.


@pytest.fixture(scope="module")
def hub():
    import tensorflow_hub

    return tensorflow_hub


def test_ids_equal_the_numpy_reference(hub, toy_ids, weights, batch):
    encoder = hub.load(str(toy_ids))
    result = encoder(constants(batch))
    states = NumpyEncoder(TOY, weights)(*(batch[name] for name in IDS))
    real = batch["input_mask"][:, :, None]
    assert len(result["encoder_outputs"]) == TOY.num_hidden_layers
    for got, wanted in zip(result["encoder_outputs"], states[1:], strict=True):
        np.testing.assert_allclose(got * real, wanted * real, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(result["sequence_output"], result["encoder_outputs"][-1])
    pooled = NumpyEncoder(TOY, weights).pooled(states[-1])
    np.testing.assert_allclose(result["pooled_output"], pooled, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(result["default"], result["pooled_output"])
    np.testing.assert_array_equal(
        encoder(constants(batch), training=False, mask=None)["default"], result["default"]
    )


def test_hub_interface(hub, toy_ids, weights):
    encoder = hub.load(str(toy_ids))
    names = {v.name: tuple(v.shape) for v in encoder.variables}
    assert names["word_embeddings/embeddings:0"] == (30, 8)
    assert names["transformer/layer_2/self_attention/query/kernel:0"] == (8, 2, 4)
    assert names["transformer/layer_2/self_attention/attention_output/kernel:0"] == (2, 4, 8)
    assert names["transformer/layer_0/self_attention_layer_norm/gamma:0"] == (8,)
    assert names["transformer/layer_0/intermediate/kernel:0"] == (8, 16)
    assert names["pooler_transform/kernel:0"] == (8, 8)
    assert len(names) == len(weights)
    assert {v.name for v in encoder.trainable_variables} == names.keys()
    assert list(encoder.regularization_losses) == []
    assert bool(encoder.do_lower_case) is True
    vocab = tf.io.read_file(encoder.vocab_file.asset_path).numpy().decode()
    assert vocab.split() == TOY_VOCAB


def test_training_drops_out_and_gradients_reach_every_variable(hub, toy_ids, batch):
    encoder = hub.load(str(toy_ids))
    inputs = constants(batch)
    plain = encoder(inputs)["sequence_output"]
    first, second = (encoder(inputs, training=True)["sequence_output"] for _ in range(2))
    assert np.abs(first - plain).max() > 1e-3
    assert np.abs(first - second).max() > 1e-3
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(encoder(inputs, training=True)["default"] ** 2)
    gradients = tape.gradient(loss, encoder.trainable_variables)
    assert all(g is not None and np.any(tf.convert_to_tensor(g)) for g in gradients)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:tf_keras")
@pytest.mark.parametrize("trainable", [True, False])
def test_hub_keras_layer_in_tf_keras(hub, toy_ids, batch, weights, trainable):
    import tf_keras

    layer = hub.KerasLayer(str(toy_ids), trainable=trainable)
    inputs = {name: tf_keras.Input((None,), dtype=tf.int32, name=name) for name in IDS}
    pooled = layer(inputs)["pooled_output"]
    model = tf_keras.Model(inputs, tf_keras.layers.Dense(1)(pooled))
    assert len(model.trainable_weights) == 2 + len(weights) * trainable
    before = layer.get_weights()
    model.compile("sgd", "mse")
    model.fit(constants(batch), np.ones([3, 1]), verbose=0)
    moved = [np.any(a != b) for a, b in zip(before, layer.get_weights(), strict=True)]
    assert any(moved) == trainable


def test_rows_that_are_too_long_are_refused(hub, toy_ids):
    inputs = {name: tf.ones([1, 25], tf.int32) for name in IDS}
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="longer than the 24 tokens of this model"
    ):
        hub.load(str(toy_ids)).signatures["serving_default"](**inputs)


def test_hub_keras_layer_takes_texts(hub, toy_text):
    layer = hub.KerasLayer(str(toy_text))
    assert layer(tf.constant(["the a b", "no"]))["mean"].shape == (2, 8)


# An export is a checkpoint too.


@pytest.mark.parametrize(("signature", "hidden_act"), [("text", "gelu_erf"), ("ids", "gelu_tanh")])
def test_export_reads_back_as_the_same_checkpoint(toy, tmp_path, weights, signature, hidden_act):
    export = export_savedmodel(
        tmp_path / "x", signature=signature, checkpoint=toy, layers=[0], hidden_act=hidden_act
    )
    found = find_checkpoint(export)
    assert found.config == TOY.model_copy(update={"hidden_act": hidden_act})
    assert (found.do_lower_case, has_pooler(found)) == (True, True)
    assert found.vocab_file.read_text().split() == TOY_VOCAB
    read = read_weights(found, pooler=True)
    assert read.keys() == weights.keys()
    for name, value in weights.items():
        np.testing.assert_array_equal(read[name], value)
    told = (export / "saved_model.pb").read_bytes()
    assert str(tmp_path).encode() not in told
    assert b"/tmp" not in told


def test_ids_without_a_vocabulary(tmp_path, weights, caplog):
    folder = write_directory(tmp_path / "toy", TOY, TOY_VOCAB, weights, kind="tf1")
    (folder / "vocab.txt").unlink()
    export = export_savedmodel(tmp_path / "x", signature="ids", checkpoint=folder)
    assert "the export tells no vocabulary and casing" in caplog.text
    assert {p.name for p in (export / "assets").iterdir()} == {"bert_config.json"}
    with pytest.raises(ConfigError, match="output 'mean' leaves out"):
        export_savedmodel(tmp_path / "y", signature="ids", checkpoint=folder, outputs=[MEAN])
    with pytest.raises(CheckpointError, match=r"no vocab\.txt lies beside"):
        export_savedmodel(tmp_path / "y", checkpoint=folder, layers=[0])


# Without a pooler.


def test_ids_without_a_pooler(no_pooler, tmp_path, batch, caplog):
    with pytest.raises(CheckpointError, match="no pooler, so there is no pooled_output, nor a def"):
        export_savedmodel(tmp_path / "x", signature="ids", checkpoint=no_pooler)
    export = export_savedmodel(
        tmp_path / "x", signature="ids", checkpoint=no_pooler, outputs=[MEAN]
    )
    assert "has no pooler: no pooled_output and no default in the export" in caplog.text
    loaded = load_export(export)
    assert loaded.outputs == ("encoder_outputs", "mean", "sequence_output")
    assert loaded(batch, "mean").shape == (3, 8)
    pooled = {"level": "sequence", "pooling": "pooler"}
    with pytest.raises(CheckpointError, match="has no pooler"):
        export_savedmodel(tmp_path / "y", checkpoint=no_pooler, outputs=[pooled])


# The reader.


def test_load_export_of_text(toy, toy_text):
    export = load_export(toy_text)
    assert export.signature == "text"
    assert export.outputs == ("input_mask", "input_word_ids", "last", "mean")
    assert export.tokens == tuple(TOY_VOCAB)
    texts = ["the a b", "no it is not this . " * 4]
    result = export(texts)
    assert [export.tokens[i] for i in result["input_word_ids"][0][:5]] == [
        "[CLS]", "the", "a", "b", "[SEP]",
    ]  # fmt: skip
    assert result["input_mask"].sum(axis=1).tolist() == [5, 12]
    np.testing.assert_allclose(
        export(texts, "mean")[0], result["last"][0, 1:4].mean(axis=0), rtol=0, atol=1e-6
    )
    alone = export(texts[:1])
    assert alone["last"].shape == (1, 5, 8)  # as long as the longest row, not as max_seq_length
    np.testing.assert_allclose(alone["last"][0], result["last"][0, :5], rtol=0, atol=1e-5)
    assert export([])["mean"].shape == (0, 8)
    assert export(["\ud800"])["mean"].shape == (1, 8)


def test_load_export_of_ids(toy_ids, batch):
    export = load_export(toy_ids)
    assert export.signature == "ids"
    assert export.outputs == (
        "default", "encoder_outputs", "mean", "pooled_output", "sequence_output",
    )  # fmt: skip
    assert [a.shape for a in export(batch, "encoder_outputs")] == [(3, 9, 8)] * 3


def test_what_the_reader_refuses(toy_text, toy_ids, tmp_path):
    with pytest.raises(
        ConfigError,
        match=r"no output 'layer_output_2' in .*; it has input_mask, input_word_ids, last, mean",
    ):
        load_export(toy_text)(["a"], output="layer_output_2")
    with pytest.raises(InputError, match="the texts are str; allowed: a list of strings"):
        load_export(toy_text)("a")
    with pytest.raises(InputError, match="this export takes a dict of input_word_ids"):
        load_export(toy_ids)(["a"])
    with pytest.raises(OutputError, match=r"is no export: it has no saved_model\.pb"):
        load_export(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes(b"nothing of the kind")
    with pytest.raises(OutputError, match="cannot be read as an export"):
        load_export(tmp_path)
    (tmp_path / "plain").mkdir()
    tf.saved_model.save(tf.train.Checkpoint(), str(tmp_path / "plain"))
    with pytest.raises(OutputError, match="cannot be read as an export"):
        load_export(tmp_path / "plain")


def test_outputs_of_a_fixed_length(toy, tmp_path):
    last = {"name": "sep", "level": "sequence", "pooling": "last", "layers": [-1]}
    export = load_export(
        export_savedmodel(tmp_path / "x", checkpoint=toy, outputs=[last, LAST], max_seq_length=12)
    )
    result = export(["the a b"])
    assert result["last"].shape == (1, 12, 8)
    np.testing.assert_allclose(result["sep"], result["last"][:, 4], rtol=0, atol=1e-6)


# Where it is written.


def test_an_existing_directory_is_kept(toy, toy_text, tmp_path):
    to = tmp_path / "x"
    to.mkdir()
    (to / "precious").write_text("data")
    with pytest.raises(OutputError, match="x exists; pass --overwrite to replace it"):
        export_savedmodel(to, checkpoint=toy)
    with pytest.raises(OutputError, match="x holds no SavedModel, and is not replaced"):
        export_savedmodel(to, checkpoint=toy, overwrite=True)
    (to / "precious").rename(tmp_path / "file")
    with pytest.raises(OutputError, match="file is not a directory"):
        export_savedmodel(tmp_path / "file", checkpoint=toy, overwrite=True)
    with pytest.raises(OutputError, match="holds the checkpoint that is to be exported"):
        export_savedmodel(toy_text, checkpoint=toy_text, overwrite=True)
    assert (tmp_path / "file").read_text() == "data"


@pytest.mark.slow
def test_overwrite_replaces_an_export(toy, tmp_path):
    to = tmp_path / "x"
    export_savedmodel(to, checkpoint=toy, outputs=[LAST])
    export_savedmodel(to, checkpoint=toy, outputs=[MEAN], overwrite=True)
    assert "mean" in load_export(to).outputs
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


@pytest.mark.slow
def test_a_failure_leaves_what_was_there(toy, tmp_path, monkeypatch):
    to = tmp_path / "x"
    export_savedmodel(to, checkpoint=toy, outputs=[LAST])

    def full_disk(obj, path, signatures):
        del obj, signatures
        tf.io.gfile.makedirs(path)
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", full_disk)
    with pytest.raises(OutputError, match=r"cannot write .*x: .*No space left on device"):
        export_savedmodel(to, checkpoint=toy, outputs=[MEAN], overwrite=True)
    with pytest.raises(OutputError, match="cannot write"):
        export_savedmodel(tmp_path / "y", checkpoint=toy, outputs=[MEAN])
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    assert "last" in load_export(to).outputs


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"signature": "words"}, "signature is 'words'; allowed: 'text', 'ids'"),
        ({"layers": [3]}, r"layer 3 is outside \[-3, 2\]"),
        ({"outputs": [{"level": "sequence", "pooling": "x"}]}, "pooling is 'x'; allowed for level"),
        ({"outputs": [{"name": "w", "level": "word", "layers": [0]}]}, "output 'w' is of words"),
        ({"outputs": [{**LAST, "name": "input_mask"}]}, "an output is named 'input_mask'"),
        ({"signature": "ids", "outputs": [{**LAST, "name": "default"}]}, "is named 'default'"),
        (
            {"signature": "ids", "outputs": [{**MEAN, "pooling": "last"}]},
            "has pooling 'last', which rows of any length do not allow",
        ),
        ({"signature": "ids", "max_seq_length": 8}, "it is for signature 'text', an export of ids"),
        ({"layers": [0], "max_seq_length": 25}, "max_seq_length is 25; allowed: 3 to 24"),
        ({"layers": [0], "max_seq_length": 2}, "max_seq_length is 2; allowed: 3 to 24"),
    ],
)
def test_settings_that_are_refused(toy, tmp_path, settings, message):
    with pytest.raises(ConfigError, match=message):
        export_savedmodel(tmp_path / "x", checkpoint=toy, **settings)
    assert not list(tmp_path.iterdir())


# The command line.


def run(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


def test_command_line(toy, tmp_path):
    to = tmp_path / "x"
    specs = [
        "--output-spec", 'name = "mean", level = "sequence", special_tokens = false',
        "--output-spec", 'name = "t", layers = [0]',
    ]  # fmt: skip
    options = ["--to", to, "--signature", "text", "--checkpoint", toy, "--layers=-1"]
    result = run(*options, *specs, "--max-seq-length", 8)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"wrote {to} (")
    export = load_export(to)
    assert export.outputs == ("input_mask", "input_word_ids", "mean", "t")
    assert export(["a " * 20], "input_mask").tolist() == [[1] * 8]
    assert json.loads((to / "assets" / "bert_config.json").read_text())["hidden_act"] == "gelu"
    again = run(*options)
    assert again.exit_code == 1
    assert again.stderr.strip() == f"bert-features: {to} exists; pass --overwrite to replace it"
    assert run(*options, "--overwrite").exit_code == 0


@pytest.mark.slow
def test_command_line_where_keras_is_to_run_on_jax(toy, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "bert_features", "export", "--to", str(tmp_path / "out"),
         "--signature", "ids", "--checkpoint", str(toy)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "KERAS_BACKEND": "jax"},
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "saved_model.pb").exists()


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--signature", "words"], 2, "'words' is not one of 'text', 'ids'"),
        (["--signature", "text", "--layers=3"], 2, r"layer 3 is outside"),
        (["--signature", "text", "--layers=1,,2"], 2, "separate the entries"),
        (["--signature", "text", "--output-spec", "nonsense"], 2, "is not the inside of a TOML"),
        (["--signature", "text", "--checkpoint", "nowhere"], 1, "there is no checkpoint 'nowhere'"),
        (["--signature", "text", "--layers=0", "--cased"], 1, "contradicts"),
    ],
)
def test_command_line_failures(toy, tmp_path, options, status, message):
    result = run("--checkpoint", toy, "--to", tmp_path / "x", *options)
    assert result.exit_code == status
    assert message in result.stderr
    assert not list(tmp_path.iterdir())

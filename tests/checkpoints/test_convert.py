"""Converting checkpoints: what is read from the copy is what is read from the source."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file
from typer.testing import CliRunner

from bert_features.checkpoints import convert as module
from bert_features.checkpoints.convert import TARGETS, config_values, convert
from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import read_weights
from bert_features.cli import app
from bert_features.config.bert_config import ACTIVATIONS, BertConfig
from bert_features.errors import CheckpointError, OutputError
from bert_features.export.checks import Options, check_source
from bert_features.layers import BertFeatures
from tests import multi_vector, sparse_encoder
from tests.reference.sentence_transformers_folder import write_settings
from tests.reference.tf1_checkpoint import huggingface_weights, write_directory
from tests.toy import TOY, TOY_VOCAB, random_weights
from tests.weights import assert_same

ODD = {"layer_norm_eps": 3e-7, "hidden_dropout_prob": 0.0, "initializer_range": 0.1}
WEIGHTS = random_weights(TOY)


@pytest.fixture
def write_source(tf1, safetensors, tmp_path):
    """Writes the checkpoint `in` of a kind, with an odd config, and its casing if that is known."""

    def write(*, kind, casing=True):
        folder = shutil.copytree({"tf1": tf1, "safetensors": safetensors}[kind], tmp_path / "in")
        path = folder / {"tf1": "bert_config.json", "safetensors": "config.json"}[kind]
        path.write_text(json.dumps(json.loads(path.read_text()) | ODD))
        if casing is not None:
            (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": casing}))
        return folder

    return write


def assert_same_checkpoint(left, right):
    assert left.config == right.config
    assert left.do_lower_case == right.do_lower_case
    assert left.vocab_file.read_bytes() == right.vocab_file.read_bytes()
    assert_same(read_weights(left, pooler=True), read_weights(right, pooler=True))


@pytest.mark.parametrize("hidden_act", ["gelu_tanh", "gelu_erf"])
@pytest.mark.parametrize(
    ("kind", "way"), [("tf1", ["safetensors", "tf1"]), ("safetensors", ["tf1", "safetensors"])]
)
def test_there_and_back(write_source, tmp_path, kind, way, hidden_act):
    folder = write_source(kind=kind, casing=False)
    source = checkpoint = find_checkpoint(folder, hidden_act=hidden_act)
    for i, to in enumerate(way):
        checkpoint = find_checkpoint(convert(checkpoint, tmp_path / str(i), to=to))
        assert checkpoint.kind == to
        assert_same_checkpoint(checkpoint, source)
    assert checkpoint.family == source.family
    assert_same(read_weights(checkpoint, pooler=True), WEIGHTS)


def test_from_tf_hub(saved_model, tmp_path):
    source = find_checkpoint(saved_model)
    for to in TARGETS:
        assert_same_checkpoint(find_checkpoint(convert(source, tmp_path / to, to=to)), source)


POOLING = {"modes": ["cls", "max"], "normalize": True, "include_prompt": False, "similarity": "dot"}
POOLING |= {"prompts": {"q": "this is "}, "default_prompt_name": "q", "do_lower_case": True}


def settings_of(folder):
    """The settings of sentence-transformers, wherever their files are."""
    found = find_checkpoint(folder).sentence_transformers
    return found and dataclasses.replace(found, transformer_path="", files=())


@pytest.mark.parametrize("inner", ["", "0_Transformer"])
@pytest.mark.parametrize("to", TARGETS)
def test_the_settings_of_sentence_transformers_are_kept(safetensors, tmp_path, to, inner):
    folder = shutil.copytree(safetensors, tmp_path / "in" / inner)
    write_settings(tmp_path / "in", **POOLING)
    if inner:
        modules = json.loads((tmp_path / "in" / "modules.json").read_text())
        modules[0]["path"] = inner
        (tmp_path / "in" / "modules.json").write_text(json.dumps(modules))
    # The length is in the file of the tokenizer alone.
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 9, "do_lower_case": true}')
    (folder / "sentence_bert_config.json").unlink(missing_ok=True)
    source = settings_of(tmp_path / "in")
    assert (source.max_seq_length, source.pooling_modes) == (9, ("cls", "max"))
    for _ in range(2):  # the second time it is replaced
        convert(find_checkpoint(tmp_path / "in"), tmp_path / "out", to=to, overwrite=True)
        assert settings_of(tmp_path / "out") == source


def test_an_albert_of_equal_widths_gets_the_projection_that_transformers_wants(tmp_path):
    values = {**config_values(TOY, "google"), "num_hidden_groups": 2, "embedding_size": 8}
    google = BertConfig.from_dict(values, family="google")
    assert (google.model_type, google.projects_embeddings) == ("albert", False)
    weights = random_weights(google)
    TARGETS["safetensors"](google, weights, tmp_path)
    copy = find_checkpoint(tmp_path)
    found = read_weights(copy, pooler=True)
    np.testing.assert_array_equal(found.pop("embeddings_project/kernel"), np.eye(8))
    assert not found.pop("embeddings_project/bias").any()
    assert_same(found, weights)


def test_a_copy_refuses_the_poolings_that_the_source_refuses(copy, tmp_path):
    write_settings(copy, modes=["weightedmean"])
    out = convert(find_checkpoint(copy), tmp_path / "out", to="tf1")
    assert "weightedmean" in settings_of(out).unsupported
    (copy / "sentence_bert_config.json").write_text("[]")
    out = convert(find_checkpoint(copy), out, to="tf1", overwrite=True)
    assert "expected a JSON object" in settings_of(out).unsupported


def test_the_tf1_files_are_those_of_google(write_source, tmp_path):
    folder = write_source(kind="safetensors", casing=False)
    out = convert(find_checkpoint(folder, hidden_act="gelu_tanh"), tmp_path / "out", to="tf1")
    assert sorted(path.name for path in out.iterdir()) == [
        "bert_config.json",
        "bert_model.ckpt.data-00000-of-00001",
        "bert_model.ckpt.index",
        "tokenizer_config.json",
        "vocab.txt",
    ]
    assert json.loads((out / "bert_config.json").read_text())["hidden_act"] == "gelu"
    stored = tf.train.load_checkpoint(str(out / "bert_model.ckpt"))
    names = stored.get_variable_to_shape_map()
    wanted = {f"bert/{name}": value for name, value in WEIGHTS.items()}
    assert_same({name: stored.get_tensor(name) for name in names}, wanted)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:  # as google-research/bert does
        name = "bert/pooler/dense/bias"
        variable = tf.compat.v1.get_variable(name, shape=[8], use_resource=False)
        tf.compat.v1.train.Saver([variable]).restore(session, str(out / "bert_model.ckpt"))
        np.testing.assert_array_equal(session.run(variable), WEIGHTS["pooler/dense/bias"])


def test_the_safetensors_are_those_of_hugging_face(write_source, tmp_path):
    folder = write_source(kind="tf1", casing=None)
    out = convert(find_checkpoint(folder), tmp_path / "out", to="safetensors")
    values = json.loads((out / "config.json").read_text())
    assert (values["model_type"], values["hidden_act"]) == ("bert", "gelu_new")
    assert len({path.stat().st_mode for path in out.iterdir()}) == 1
    assert_same(load_file(out / "model.safetensors"), huggingface_weights(WEIGHTS, TOY))


@pytest.mark.parametrize("family", ["google", "huggingface"])
def test_every_activation_is_read_back(family):
    for form in set(ACTIVATIONS[family].values()):
        config = TOY.model_copy(update={**ODD, "hidden_act": form})
        written = json.loads(json.dumps(config_values(config, family)))
        assert BertConfig.from_dict(written, family=family) == config


@pytest.mark.parametrize(
    ("hidden_act", "refused"), [("gelu_erf", True), ("gelu_tanh", False), (None, True)]
)
def test_a_gelu_that_the_official_code_refuses_is_said(
    write_source, tmp_path, caplog, hidden_act, refused
):
    folder = write_source(kind="safetensors")  # gelu, which is the erf form there
    options = ["--hidden-act", hidden_act] if hidden_act else []
    ran = run(folder, tmp_path / "out", "--to", "tf1", *options)
    assert ran.exit_code == 0, ran.output
    line = "hidden_act gelu_erf, which google-research/bert's own code refuses"
    assert [line in said for said in caplog.messages] == [True] * refused
    assert find_checkpoint(tmp_path / "out").config.hidden_act == (hidden_act or "gelu_erf")


def test_no_pooler_is_invented(tmp_path):
    folder = write_directory(tmp_path / "in", TOY, TOY_VOCAB, WEIGHTS, pooler=False)
    source = find_checkpoint(folder)
    out = convert(source, tmp_path / "out", to="tf1")
    assert_same(read_weights(find_checkpoint(out)), read_weights(source))
    with pytest.raises(CheckpointError, match="has no pooler"):
        read_weights(find_checkpoint(out), pooler=True)


@pytest.mark.parametrize(
    ("write", "name", "heads"),
    [
        (sparse_encoder.write, "splade", "cls.predictions"),
        (multi_vector.write, "stanford", "linear"),
    ],
)
def test_heads_that_a_copy_lacks_are_named(tmp_path, caplog, write, name, heads):
    folder = write(name, tmp_path / "source")
    source, out = find_checkpoint(folder), tmp_path / "copy"
    layer = BertFeatures.from_checkpoint(folder, layers=[0])
    for made, make in (
        ("copy", lambda: convert(source, out, to="safetensors")),
        ("copy", lambda: layer.save_checkpoint(out, folder, overwrite=True)),
        ("export", lambda: check_source(source, Options(signature="ids", layers=(-1,)))),
    ):
        caplog.clear()
        make()
        assert caplog.text.count(f"the {made} has the encoder, not the heads {heads}") == 1
    caplog.clear()
    again = find_checkpoint(out)  # which has none
    convert(again, tmp_path / "again", to="safetensors")
    assert "not the heads" not in caplog.text


def test_an_unknown_casing(write_source, tmp_path, caplog):
    source = find_checkpoint(write_source(kind="tf1", casing=None))
    out = convert(source, tmp_path / "out", to="tf1")
    assert "casing is unknown" in caplog.text
    assert not (out / "tokenizer_config.json").exists()
    told = convert(source, tmp_path / "told", to="tf1", do_lower_case=False)
    assert find_checkpoint(told).do_lower_case is False


def test_a_casing_that_contradicts_and_a_vocabulary_of_another(write_source, tmp_path):
    source = find_checkpoint(write_source(kind="tf1", casing=True))
    with pytest.raises(CheckpointError, match="keeping case contradicts"):
        convert(source, tmp_path / "out", to="tf1", do_lower_case=False)
    (tmp_path / "in" / "vocab.txt").write_text("\n".join([*TOY_VOCAB, "more"]))
    with pytest.raises(CheckpointError, match="has 31 pieces"):
        convert(source, tmp_path / "out", to="tf1")
    assert not (tmp_path / "out").exists()


def test_a_write_that_fails_leaves_what_was_there(write_source, tmp_path, monkeypatch):
    source = find_checkpoint(write_source(kind="tf1"))
    out = convert(source, tmp_path / "out", to="tf1")
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def fail(config, weights, folder):
        (folder / "config.json").write_text("{")
        raise tf.errors.ResourceExhaustedError(None, None, "no space left\non device")

    monkeypatch.setitem(module.TARGETS, "safetensors", fail)
    for target in (out, tmp_path / "new"):
        with pytest.raises(OutputError, match=f"^cannot write {target}: No space left on device"):
            convert(source, target, to="safetensors", overwrite=True)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_overwriting(write_source, tmp_path):
    source = find_checkpoint(write_source(kind="tf1"))
    out = convert(source, tmp_path / "out", to="safetensors")
    with pytest.raises(OutputError, match="overwrite"):
        convert(source, out, to="tf1")
    assert_same_checkpoint(find_checkpoint(convert(source, out, to="tf1", overwrite=True)), source)
    assert not (out / "model.safetensors").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_overwriting_never_takes_anything_else(write_source, tmp_path):
    source = find_checkpoint(write_source(kind="tf1"))
    for folder in (tmp_path / "in", tmp_path):
        with pytest.raises(OutputError, match="holds the checkpoint's weights"):
            convert(source, folder, to="tf1", overwrite=True)
    out = convert(source, tmp_path / "out", to="tf1")
    for role, name in {"config": "bert_config.json", "vocab": "vocab.txt"}.items():
        found = find_checkpoint(tmp_path / "in", **{f"{role}_file": out / name})
        with pytest.raises(OutputError, match=f"{role}.*{name}"):
            convert(found, out, to="safetensors", overwrite=True)
        assert (out / name).exists()
    (tmp_path / "home").mkdir()
    (thesis := tmp_path / "home" / "thesis.tex").write_text("")
    for target in (thesis.parent, thesis):
        with pytest.raises(OutputError, match=r"thesis\.tex"):
            convert(source, target, to="tf1", overwrite=True)
    assert thesis.exists()


def run(*arguments):
    return CliRunner().invoke(app, ["convert", *map(str, arguments)])


def test_the_command(write_source, tmp_path):
    folder = write_source(kind="tf1", casing=None)
    out = tmp_path / "out"
    ran = run(folder, out, "--to", "safetensors", "--cased", "--hidden-act", "gelu_erf")
    assert (ran.exit_code, ran.stdout) == (0, f"wrote {out}\n"), ran.output
    found = find_checkpoint(out)
    assert (found.config.hidden_act, found.do_lower_case) == ("gelu_erf", False)
    assert run(folder, out, "--to", "safetensors").exit_code == 1
    assert run(folder, out, "--to", "safetensors", "--overwrite").exit_code == 0


@pytest.mark.slow
def test_to_savedmodel_and_back(tmp_path):
    """Bit for bit, and `hub.load`'s own way of reading it is test_export's matter."""
    config = TOY.model_copy(update={"num_hidden_layers": 1})  # each takes its time to trace
    weights = random_weights(config)
    source = write_directory(tmp_path / "in", config, TOY_VOCAB, weights, kind="tf1")
    write_settings(source, **POOLING)
    ran = run(source, tmp_path / "hub", "--to", "savedmodel", "--uncased")
    assert ran.exit_code == 0, ran.output
    back = run(tmp_path / "hub", tmp_path / "back", "--to", "tf1")
    assert back.exit_code == 0, back.output
    found = find_checkpoint(tmp_path / "back")
    assert found.config == config
    assert settings_of(tmp_path / "hub") == settings_of(tmp_path / "back") == settings_of(source)
    assert_same(read_weights(found, pooler=True), weights)

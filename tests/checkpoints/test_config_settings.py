"""Settings of config.json that deviate: what transformers computes with them, or one error."""

import json
import logging

import numpy as np
import pytest

from bert_features.checkpoints.convert import convert
from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import has_head, read_weights
from bert_features.checkpoints.tokenizer import make_tokenizer
from bert_features.config.output_specs import plan_outputs
from bert_features.config.outputs import OutputConfig
from bert_features.encoder.forms import traced_for
from bert_features.encoder.step import DeviceStep
from bert_features.errors import CheckpointError
from bert_features.layers import BertFeatures, BertTextInput
from tests.reference.numpy_encoder import NumpyEncoder
from tests.reference.settings_cases import CASES, DATA, IDS, TYPES, UNSEEN, write
from tests.toy import TOY_VOCAB
from tests.weights import assert_same

OUTPUTS = [
    OutputConfig.of({"name": "t", "level": "token", "layers": [-1]}),
    OutputConfig(kind="masked_lm", top_k=30, name="m"),
]
BATCH = {
    "input_word_ids": np.array([IDS], np.int32),
    "input_mask": np.ones((1, len(IDS)), np.int32),
    "input_type_ids": np.array([TYPES], np.int32),
}


def reference(name):
    with np.load(DATA / "settings.npz") as stored:
        return stored[f"{name}.states"], stored[f"{name}.logits"].astype(np.float64)


def compute(checkpoint, device="cpu"):
    """The last layer [S, H], and the log-probabilities of each piece [S, V]."""
    config, weights = checkpoint.config, read_weights(checkpoint, head=True)
    step = DeviceStep(config, weights, plan_outputs(OUTPUTS, config))
    with traced_for(device):
        got = step.step([variable.value for variable in step.weights], BATCH)
    ids, values = np.asarray(got["m_ids"])[0], np.asarray(got["m"])[0]
    by_piece = np.empty_like(values)
    np.put_along_axis(by_piece, ids, values, -1)
    return np.asarray(got["t"])[0], by_piece


@pytest.mark.parametrize("name", sorted(CASES.keys() - UNSEEN.keys()))
def test_each_setting_means_the_same_as_to_transformers(name, tmp_path):
    write(name, tmp_path)
    states, logits = reference(name)
    got, by_piece = compute(find_checkpoint(tmp_path))
    np.testing.assert_allclose(got, states, rtol=0, atol=2e-5)
    want = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    np.testing.assert_allclose(by_piece, want, rtol=0, atol=5e-5)


def test_a_window_of_one_token_on_a_tpu(tmp_path):
    write("modernbert_window_of_one", tmp_path)
    got, _ = compute(find_checkpoint(tmp_path), "tpu")
    np.testing.assert_allclose(got, reference("modernbert_window_of_one")[0], rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("device", "choices"), [("cpu", {}), ("cpu", {"row_limit": 4}), ("tpu", {})]
)
@pytest.mark.parametrize("name", UNSEEN)
def test_tokens_that_attend_to_nothing(name, device, choices, tmp_path):
    """Their attention is zero, whatever its form."""
    write(name, tmp_path)
    found, mask = find_checkpoint(tmp_path), BATCH["input_mask"].copy()
    mask[:, len(IDS) - UNSEEN[name] :] = 0
    weights = read_weights(found)
    encoder = DeviceStep(found.config, weights, plan_outputs(OUTPUTS[:1], found.config)).encoder
    encoder.unseen = True
    with traced_for(device, **choices):
        got = encoder(BATCH | {"input_mask": mask})["sequence_output"]
    wanted = reference(name)[0]
    np.testing.assert_allclose(np.asarray(got)[0], wanted, rtol=0, atol=2e-5)
    by_numpy = NumpyEncoder(found.config, weights)(BATCH["input_word_ids"], mask, None)[-1]
    np.testing.assert_allclose(by_numpy[0], wanted, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", CASES)
def test_a_copy_has_the_same_config_and_weights(name, tmp_path):
    write(name, tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(TOY_VOCAB) + "\n")
    found = find_checkpoint(tmp_path)
    copy = find_checkpoint(convert(found, tmp_path / "copy", to="safetensors", do_lower_case=True))
    assert copy.config == found.config
    assert_same(read_weights(copy), read_weights(found))


def test_the_google_form_of_a_config_beside_safetensors(tmp_path):
    """The kind of the weights decides, not the name of the config."""
    write("no_model_type", tmp_path)
    (tmp_path / "config.json").rename(tmp_path / "bert_config.json")
    found = find_checkpoint(tmp_path)
    assert (found.family, found.config.hidden_act) == ("huggingface", "gelu_erf")


def test_rows_of_a_model_with_one_type(tmp_path):
    """The tokenizer and the layer for texts make no type 1, which the model does not have."""
    folder = tmp_path / "uncased"
    folder.mkdir()
    write("one_type", folder)
    (folder / "vocab.txt").write_text("\n".join(TOY_VOCAB) + "\n")
    assert not make_tokenizer(find_checkpoint(folder)).frame.has_types
    texts = BertTextInput.from_checkpoint(folder, max_seq_length=8)
    texts = BertTextInput.from_config(texts.get_config())
    rows = texts(("jack", "jack"))
    assert not rows["input_type_ids"].numpy().any()
    assert rows["input_mask"].numpy().sum() > 4
    layer = BertFeatures.from_checkpoint(folder, [OUTPUTS[0].model_dump()])
    assert np.isfinite(layer({k: v[None] for k, v in rows.items()})["t"]).all()


def test_unknown_keys_are_logged_once(tmp_path, caplog):
    write("one_type", tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    stray = {"emb_size": 312, "rotary": 0, "embedding_size": 3, "num_labels": 3}
    (tmp_path / "config.json").write_text(json.dumps(values | stray))
    with caplog.at_level(logging.INFO, "bert_features"):
        find_checkpoint(tmp_path)
        find_checkpoint(tmp_path)
    (line,) = [line for line in caplog.messages if "unknown keys" in line]
    assert line.endswith("not used: ['emb_size', 'embedding_size', 'rotary']")


def test_an_unknown_activation_of_the_head_matters_only_to_the_head(tmp_path):
    write("modernbert_head", tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(values | {"classifier_activation": "mish"}))
    found = find_checkpoint(tmp_path)
    read_weights(found)
    assert has_head(found)
    with pytest.raises(CheckpointError, match=r"classifier_activation.*'mish'; allowed: gelu"):
        compute(found)

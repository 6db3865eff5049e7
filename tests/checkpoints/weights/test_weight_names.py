"""The tables of names: one to one, and complete for a real BERT-base."""

from pathlib import Path

import pytest

from bert_features.checkpoints.weights import weight_names
from bert_features.checkpoints.weights.encoder_names import sort_names
from bert_features.checkpoints.weights.weight_names import is_ignored, split_name, weight_shapes
from bert_features.config.bert_config import BertConfig
from tests.reference.tf1_checkpoint import huggingface_weights
from tests.toy import TOY, random_weights


def test_every_name_of_a_real_bert_base_is_accounted_for(data):
    lines = (data / "bert_base_tf1_names.txt").read_text().splitlines()
    rows = [line.partition(" ") for line in lines]
    stored = {name: [int(n) for n in shape.split("x") if n] for name, _, shape in rows}
    config = BertConfig(vocab_size=stored["bert/embeddings/word_embeddings"][0])
    sorted_names = sort_names(stored, "tf1", Path("x"), config)
    assert (sorted_names.prefix, sorted_names.unknown) == ("bert/", [])
    shapes = {name: tuple(stored[at]) for name, at in sorted_names.weights.items()}
    assert shapes == weight_shapes(config)
    ignored = {name: is_ignored(name) for name in stored if not name.startswith("bert/")}
    assert ignored["global_step"] == "optimizer"
    assert {name for name, what in ignored.items() if what is None} == set(sorted_names.heads)
    assert "cls/predictions/output_bias" in sorted_names.heads


@pytest.mark.parametrize(
    ("kind", "name", "split"),
    [
        ("safetensors", "pooler.dense.bias", ("", "pooler/dense/bias")),
        ("safetensors", "a.bert.pooler.dense.bias", ("a.bert.", "pooler/dense/bias")),
        (
            "safetensors",
            "layer.7.encoder.layer.3.output.LayerNorm.gamma",  # the prefix has a number too
            ("layer.7.", "encoder/layer_3/output/LayerNorm/gamma"),
        ),
        ("safetensors", "bert/pooler/dense/bias", None),
        ("safetensors", "apooler.dense.bias", None),
        ("tf1", "module/bert/pooler/dense/bias", ("module/bert/", "pooler/dense/bias")),
        ("tf1", "bert/pooler/dense/bias/adam_m", None),
        ("tf2", "bert_model/pooler_transform/bias", ("", "pooler/dense/bias")),
        ("safetensors", "a." * 10**5 + "pooler.dense.bias", ("a." * 10**5, "pooler/dense/bias")),
    ],
)
def test_a_name_is_a_prefix_and_a_weight(kind, name, split):
    assert split_name(name, kind, "bert") == split


def test_the_tables_of_names_are_one_to_one():
    rows = weight_names.weights(TOY, pooler=True)
    for names in ([r.canonical for r in rows], [r.huggingface for r in rows]):
        assert len(set(names)) == len(rows) == 5 + 3 * 16 + 2
    assert huggingface_weights(random_weights(TOY), TOY).keys() == {r.huggingface for r in rows}

"""inspect: the facts of a checkpoint, and the signature of an export."""

import json

import pytest

from bert_features import export_savedmodel
from bert_features.checkpoints.find import find_checkpoint
from tests import families, sparse_encoder
from tests.cli.command_line import run
from tests.toy import TOY, random_weights


def test_inspect(minilm_dir, toy_of_unknown_casing):
    toy = toy_of_unknown_casing
    rows = dict(line.split(maxsplit=1) for line in run("inspect", "minilm").stdout.splitlines())
    assert rows["family"] == "huggingface (the config has model_type)"
    assert rows["casing"] == "uncased"
    assert rows["hidden_act"] == "gelu_erf"
    assert rows["num_hidden_layers"] == "6"
    assert rows["parameters"] == "22,713,216"
    rows = dict(line.split(maxsplit=1) for line in run("inspect", toy).stdout.splitlines())
    assert (rows["format"], rows["pooler"]) == ("tf1", "yes")
    assert rows["family"] == "google (the weights are tf1)"
    assert rows["casing"].startswith("unknown; pass --uncased")
    assert rows["hidden_act"] == find_checkpoint(toy).config.hidden_act == "gelu_tanh"


def test_json(toy, toy_of_unknown_casing):
    result = run("inspect", toy, "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    config = find_checkpoint(toy).config.model_dump(mode="json")
    assert facts == {
        "checkpoint": str(toy),
        "weights": str(find_checkpoint(toy).weights_path),
        "format": "tf1",
        "family": "google",
        "family_evidence": "the weights are tf1",
        "unknown_config_keys": [],
        "vocabulary": f"{toy}/vocab.txt",
        "casing": "uncased",
        "tokenizer_rules": {},
        "added_tokens": [],
        "parameters": sum(weight.size for weight in random_weights(TOY).values()),
        "pooler": True,
        "masked_lm_head": False,
        "sparse": None,
        "multi_vector": None,
        "config": config,
        "signature": None,
    }
    described = dict(line.split(maxsplit=1) for line in run("inspect", toy).stdout.splitlines())
    assert described["parameters"] == f"{facts['parameters']:,}"
    assert json.loads(run("inspect", families.DATA / "bert", "--json").stdout)["masked_lm_head"]
    unknown = json.loads(run("inspect", toy_of_unknown_casing, "--json").stdout)
    assert unknown["casing"] is None


def test_how_sparse_vectors_are_made(tmp_path):
    folder = sparse_encoder.write("splade", tmp_path / "splade")
    facts = json.loads(run("inspect", folder, "--json").stdout)
    assert facts["sparse"] == {"pooling": "max", "top_k": None, "queries": "a model"}
    lines = [" ".join(line.split()) for line in run("inspect", folder).stdout.splitlines()]
    assert {"sparse pooling max", "sparse top_k all", "sparse queries a model"} <= {*lines}
    folder = sparse_encoder.write("inference_free", tmp_path / "idf")
    facts = json.loads(run("inspect", folder, "--json").stdout)
    assert facts["sparse"]["queries"] == "a table of weights"
    config = folder / "document_1_SpladePooling" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"pooling_strategy": "mean"}))
    facts = json.loads(run("inspect", folder, "--json").stdout)
    assert "pooling_strategy is 'mean'" in facts["sparse"]["unsupported"]


@pytest.mark.slow
def test_an_export_shows_its_signature(toy, tmp_path):
    mean = {"name": "mean", "level": "sequence", "layers": [-1]}
    to = export_savedmodel(tmp_path / "export", checkpoint=toy, outputs=[mean])
    lines = run("inspect", to).stdout.splitlines()
    assert [" ".join(line.split()) for line in lines if line.startswith(("input ", "output "))] == [
        "input text string [any]",
        "output input_mask int32 [any, any]",
        "output input_word_ids int32 [any, any]",
        "output mean float32 [any, 8]",
    ]
    facts = json.loads(run("inspect", to, "--json").stdout)
    assert (facts["format"], facts["casing"]) == ("tf2", "uncased")
    assert facts["signature"]["inputs"] == [{"name": "text", "dtype": "string", "shape": [None]}]
    assert facts["signature"]["outputs"][-1] == {
        "name": "mean", "dtype": "float32", "shape": [None, 8],
    }  # fmt: skip

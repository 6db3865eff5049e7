"""inspect: the facts of a checkpoint."""

from bert_features.checkpoints.find import find_checkpoint
from tests.cli.command_line import run


def test_inspect(minilm_dir, toy_of_unknown_casing):
    toy = toy_of_unknown_casing
    rows = dict(line.split(maxsplit=1) for line in run("inspect", "minilm").stdout.splitlines())
    assert rows["family"] == "huggingface"
    assert rows["casing"] == "uncased"
    assert rows["hidden_act"] == "gelu_erf"
    assert rows["num_hidden_layers"] == "6"
    assert rows["parameters"] == "22,713,216"
    rows = dict(line.split(maxsplit=1) for line in run("inspect", toy).stdout.splitlines())
    assert (rows["family"], rows["format"], rows["pooler"]) == ("google", "tf1", "yes")
    assert rows["casing"].startswith("unknown; pass --uncased")
    assert rows["hidden_act"] == find_checkpoint(toy).config.hidden_act == "gelu_tanh"
    assert run("inspect", "nowhere").exit_code == 1

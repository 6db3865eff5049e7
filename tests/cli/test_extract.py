"""extract: what it prints, what it writes, how it fails."""

import json
import re

import numpy as np
import pytest

from bert_features import read_features
from bert_features.text.tokenization import FullTokenizer
from bert_features.text.vocabulary import read_vocab
from tests.cli.command_line import SMALL, run
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, TOY_VOCAB, random_weights


def test_extract_prints_a_summary(toy, text, out):
    path = out / "o.parquet"
    result = run("extract", text, "-o", path, "--checkpoint", toy, "--layers=-1,embeddings", *SMALL)
    assert result.exit_code == 0, result.output
    rows = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert rows["examples"] == "3"
    assert rows["tokens"] == "21"
    assert rows["empty"] == "1 examples without text"
    assert rows["truncated"] == "0 examples, 0 tokens lost"
    assert rows["layers"] == "-1, embeddings (layer_output_0, layer_output_1, …)"
    assert rows["output"].startswith(f"{path} (")
    assert [len(r.tokens) for r in read_features(path)] == [14, 2, 5]


def test_json_lines_on_standard_output(toy, text, out, monkeypatch):
    """The lines are those of a file; the summary and the log go to standard error."""
    monkeypatch.chdir(out)
    options = ["--checkpoint", toy, "--layers=-1,-2", *SMALL]
    assert run("extract", text, "-o", "o.jsonl", *options).exit_code == 0
    result = run("extract", text, "-o", "-", "--ledger", "ledger", *options)
    assert result.exit_code == 0, result.output
    assert result.stdout == (out / "o.jsonl").read_text()
    assert "examples   3\n" in result.stderr
    assert f"output     standard output ({len(result.stdout) / 1e3:.1f} kB)\n" in result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["linex_index"] for line in lines] == [0, 1, 2]
    first = lines[0]["features"][3]
    assert first["token"] == "jack"
    assert [layer["index"] for layer in first["layers"]] == [-1, -2]
    values = first["layers"][0]["values"]
    assert len(values) == TOY.hidden_size
    assert values == [round(value, 6) for value in values]
    assert len((out / "ledger").read_text().splitlines()) == 3
    assert run("extract", text, "-o", "o.jsonl", *options).exit_code == 1  # it exists
    assert run("extract", text, "-o", "o.jsonl", *options, "--overwrite").exit_code == 0
    names = ["ledger", "o.jsonl", "o.jsonl.metadata.json"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert run("extract", text, "-o", "./-", "--format", "npz", *options).exit_code == 0
    assert len(read_features(out / "-", format="npz")) == 3


def test_a_share_on_standard_output(toy, text, out):
    options = ["--checkpoint", toy, "--layers=-1", *SMALL]
    result = run("extract", text, "-o", "-", "--shard", "1/2", *options)
    assert [json.loads(line)["linex_index"] for line in result.stdout.splitlines()] == [1]


def test_truncation_is_reported(toy, text, out):
    options = ["--checkpoint", toy, "--layers=-1", "--uncased", "--max-seq-length", "8"]
    result = run("extract", text, "-o", out / "o.parquet", *options)
    assert "layers     -1 (layer_output_0)\n" in result.stdout
    assert not re.search("^(speed|pad waste) ", result.stdout, re.MULTILINE)  # of a small run
    cures = "; to keep more, pass --long-text window or --max-seq-length 24\n"
    assert f"truncated  1 examples, 6 tokens lost{cures}" in result.stdout
    planned = run("plan", text, *options)
    assert f" 6 tokens lost{cures}" in planned.stdout


def test_unknown_tokens_are_reported(toy, out, tmp_path, caplog):
    text = tmp_path / "in.txt"
    text.write_text("漢 a b 字\n", encoding="utf-8")
    options = ["--checkpoint", toy, "--layers=-1", *SMALL]
    result = run("extract", text, "-o", out / "o.parquet", *options)
    share = "2 of 4 tokens (50.0%), without [CLS] and [SEP], are [UNK]"
    assert "tokens     6\n" in result.stdout
    assert f"unknown    {share}\n" in result.stdout
    assert f"{share}: the vocabulary " in caplog.text
    assert re.search(rf"unknown +{re.escape(share)}\n", run("plan", text, *options).stdout)


def test_features_that_are_not_finite_are_reported(out, tmp_path, caplog):
    weights = random_weights(TOY)
    weights["embeddings/LayerNorm/gamma"][:] = np.nan
    checkpoint = write_directory(tmp_path / "uncased_broken", TOY, TOY_VOCAB, weights)
    (tmp_path / "in.txt").write_text("a b\n")
    options = ["--checkpoint", checkpoint, "--layers=-1", *SMALL]
    result = run("extract", tmp_path / "in.txt", "-o", out / "o.parquet", *options)
    assert result.exit_code == 0
    assert "non-finite  1 examples have NaN or infinite values\n" in result.stdout
    assert "the features of 1 of 1 examples have NaN or infinite values" in caplog.text
    assert run("extract", tmp_path / "in.txt", "-o", out / "o.jsonl", *options).exit_code == 1


@pytest.mark.slow
def test_golden_values_through_the_command_line(data, minilm_dir, out):
    """From standard input, with the gelu of Hugging Face; tests/extraction has the other one."""
    cases = json.loads((data / "minilm_golden.json").read_text())["cases"]
    case = next(c for c in cases if c["hidden_act"] == "gelu_erf")
    path = out / "o.parquet"
    options = ["--layers=-1", "--hidden-act", "gelu_erf", "--batch-size", "1"]
    result = run("extract", "-", "-o", path, *options, stdin=case["text"].encode())
    assert result.exit_code == 0, result.output
    (record,) = read_features(path)
    mean = record.features["layer_output_0"].astype(np.float64).mean(axis=0)
    vector = mean / np.linalg.norm(mean)
    np.testing.assert_allclose(vector[:5], case["first_values"], rtol=0, atol=1e-5)


@pytest.fixture
def uncased_model(minilm_dir, tmp_path):
    """A folder with toy weights for the vocabulary of MiniLM."""
    vocab = read_vocab(minilm_dir / "vocab.txt")
    config = TOY.model_copy(update={"vocab_size": len(vocab), "max_position_embeddings": 64})
    return write_directory(tmp_path / "uncased_toy", config, vocab, random_weights(config))


@pytest.mark.slow
def test_no_line_of_the_declaration_is_lost(data_file, read_lines, uncased_model, out):
    lines = read_lines("udhr_300.txt")
    options = ["--checkpoint", uncased_model, "--layers=-1", "--max-seq-length", "64"]
    result = run("extract", data_file("udhr_300.txt"), "-o", out / "all.parquet", *options)
    assert result.exit_code == 0, result.output
    records = read_features(out / "all.parquet")
    assert len(records) == len(lines) == 305
    encodings = FullTokenizer(read_vocab(uncased_model / "vocab.txt")).encode(lines)
    for i, (record, encoding) in enumerate(zip(records, encodings, strict=True)):
        assert record.unique_id == i
        assert list(record.tokens) == ["[CLS]", *encoding.tokens[:62], "[SEP]"]
        assert record.features["layer_output_0"].shape == (len(record.tokens), 8)


def test_several_inputs(toy, out, monkeypatch):
    monkeypatch.chdir(out)
    for name, content in (("a.txt", "a b\n"), ("b.jsonl", '{"text": "it is"}\n' * 2)):
        (out / name).write_text(content)
    options = ["--checkpoint", toy, "--layers=-1", *SMALL]
    result = run("extract", "a.txt", "b.jsonl", "-o", "features/", *options)
    assert result.exit_code == 0, result.output
    assert read_features(out / "features").ids.tolist() == [0, 1, 2]
    assert run("extract", "[ab].*", "-o", "features/", *options).exit_code == 0

"""bert-features plot: each kind from its options to its file; errors in one line."""

import json
import shlex

import pytest

from bert_features import read_features
from tests.cli.command_line import run

ROWS = [("is this a ?", "x"), ("it is not .", "y"), ("the a b", "x"), ("no", "y"), ("this", "x")]
KINDS = {
    "similarity": ["is this it ?", "no it is not"],
    "attention": ["is this it ?", "no", "--layers=-1", "--heads", "0", "--level", "word"],
    "histogram": ["is this it ?", "--token", "this", "--layer=-1"],
    "word": ["this", "{csv}", "--label-field", "topic", "--layer", "embeddings"],
    "scatter": ["{csv}", "--label-field", "topic", "--layers=-1,-2"],
    "probe": ["{csv}", "--label-field", "topic", "--folds", "2", "--pooling", "mean,cls"],
}


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("text,topic\n" + "".join(f"{text},{label}\n" for text, label in ROWS))
    return path


def plot(toy, csv, kind, *options):
    arguments = [str(option).replace("{csv}", str(csv)) for option in options]
    return run("plot", kind, *arguments, "--checkpoint", toy)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "suffix"),
    [
        ("similarity", "svg"),
        ("attention", "svg"),
        ("histogram", "svg"),
        ("scatter", "svg"),
        ("word", "html"),
    ],
)
def test_each_kind_writes_a_file(toy, csv, out, kind, suffix):
    path = out / f"new.{suffix}"
    result = plot(toy, csv, kind, *KINDS[kind], "-o", path)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"{path}: ")
    assert "uncased_toy, 3 layers (0 to 2)" in path.read_text(encoding="utf-8")
    assert list(out.iterdir()) == [path]


@pytest.mark.slow
def test_the_probe_prints_its_scores_and_a_recommendation(toy, csv, out):
    result = plot(toy, csv, "probe", *KINDS["probe"], "-o", out / "new.svg")
    line, _, head, *rows, _, sentence = result.stdout.splitlines()
    assert line == f"{out / 'new.svg'}: 8 scores of 5 texts, 2 labels, 2 folds"
    assert (out / "new.svg").exists()
    assert head.split()[:5] == ["layer", "pooling", "accuracy", "std.", "error"]
    layers = [(layer, p) for layer in ("embeddings", "0", "1", "2") for p in ("mean", "cls")]
    layers += [("mix", "mean"), ("majority", "0.583")]
    assert [tuple(row.split()[:2]) for row in rows] == layers
    assert "baselines have 0.583 (majority)" in sentence


def test_the_probe_prints_a_command_that_runs(toy, out, monkeypatch):
    monkeypatch.chdir(out)
    rows = [f"{f'{word} ' * count},{word}" for word in ("this", "no") for count in range(1, 5)]
    (out / "my file.csv").write_text("\n".join(["body,topic", *rows]))
    options = ["--label-field", "topic", "--folds", "4", "--text-field", "body", "--uncased"]
    # The setting of a field that figures do not read, and this file does not have.
    (out / "ids.toml").write_text('id_field = "uid"\n')
    options += ["--layers=0", "--pooling", "mean", "--config", "ids.toml"]
    result = plot(toy, "", "probe", "my file.csv", *options, "-o", "new.svg")
    command = result.stdout.splitlines()[-1]
    assert command == (
        "bert-features extract 'my file.csv' -o features.parquet --layers=0 --level sequence "
        f"--pooling mean --checkpoint {toy} --uncased --text-field body"
    )
    assert run(*shlex.split(command)[1:]).exit_code == 0
    file = read_features(out / "features.parquet")
    assert [(f.layers, f.pooling) for f in file.features] == [((0,), "mean")]
    assert len(file) == 8


def test_the_report_of_a_probe_and_its_test(toy, csv, out):
    (test := out / "test.csv").write_text("text,topic\nthis,x\nno it,y\na b,x\nit not,y\n")
    options = ["{csv}", "--label-field", "topic", "--layers=0", "--pooling", "mean", "--folds", "2"]
    options += ["--test", test, "-o", out / "new.svg"]
    result = plot(toy, csv, "probe", *options, "--report", out / "new.json")
    assert result.exit_code == 0, result.output
    found = json.loads((out / "new.json").read_text())
    assert found["examples"] == "5 texts train, 4 texts test"
    assert (found["file"], found["test"]) == (str(csv), str(test))
    before = test.read_bytes()
    wrong = plot(toy, csv, "probe", *options, "--report", test, "--overwrite")
    assert "the test and the report are the same file" in wrong.stderr
    assert (wrong.exit_code, test.read_bytes()) == (1, before)


@pytest.mark.slow
def test_texts_of_a_word_may_be_options(toy, csv, out):
    texts = ["--text", "is this it", "--text", "this a b"]
    result = plot(toy, csv, "word", "this", *texts, "-o", out / "new.svg")
    assert result.stdout == f"{out / 'new.svg'}: 2 occurrences of 'this' in 2 texts\n"


def test_cka_reads_two_features_files(toy, csv, out):
    paths = [csv.with_name(f"{name}.npz") for name in "ab"]
    for path in paths:
        layers = "--layers=embeddings,all"
        assert run("extract", csv, "-o", path, layers, "--checkpoint", toy).exit_code == 0
    result = run("plot", "cka", *paths, "-o", out / "new.svg")
    assert result.stdout.startswith(f"{out / 'new.svg'}: CKA of 4 x 4 layers, 23 tokens; with ")
    assert (out / "new.svg").exists()

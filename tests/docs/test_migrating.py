"""docs/migrating.md: every new call runs, every setting and option exists, and vectors are right.

The vectors of the central calls are compared with a float64 NumPy encoder.
"""

import contextlib
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import typer.main
from typer.testing import CliRunner

from bert_features import ExtractConfig
from bert_features.cli import app
from tests.docs.oracle import close
from tests.reference.sentence_transformers_folder import write_linked

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "migrating.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\|(.*)\|$", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")
SECTIONS = {
    section.partition("\n")[0]: section for section in re.split(r"^## From ", PAGE, flags=re.M)[1:]
}
PYTHON = ["bert-as-service", "sentence-transformers", "flair"]


def read_column(section: str, name: str) -> list[list[str]]:
    """The code of each cell of the columns with this head."""
    found, column = [], None
    for row in ROW.finditer(BLOCK.sub("", section)):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row[1])]
        after = section[: section.index(row[0])].endswith("|\n")
        if not after:  # the first row of a table
            column = cells.index(name) if name in cells else None
        elif column is not None and not set(cells[column]) <= set("-"):
            found.append([code.replace(r"\|", "|") for code in CODE.findall(cells[column])])
    return found


def read_setup(name: str) -> str:
    return "".join(code for kind, code in BLOCK.findall(SECTIONS[name]) if kind == "python")


def read_settings(code: str) -> dict[str, object]:
    """Keywords, as a call has them."""
    return eval(f"dict({code})")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, minilm_dir) -> Path:
    """A folder with what the page names: texts, a TF1 checkpoint, one of sentence-transformers."""
    folder = tmp_path_factory.mktemp("migrating")
    (folder / "texts.txt").write_text("  Is this Jacksonville? ||| No, it is not. \nA bank.\n")
    official = folder / "uncased_L-12_H-768_A-12"
    converted = CliRunner().invoke(app, ["convert", "minilm", str(official), "--to", "tf1"])
    assert converted.exit_code == 0, converted.output
    prompts = {"query": "query: "}
    write_linked(folder / "my-model", minilm_dir, normalize=True, length=256, prompts=prompts)
    return folder


@pytest.fixture
def namespace(request, folder, monkeypatch) -> dict[str, object]:
    """The variables of the section that the test names, once its Python has run."""
    monkeypatch.chdir(folder)
    variables: dict[str, object] = {}
    name = request.function.__name__.removeprefix("test_").replace("_", "-")
    exec(compile(read_setup(name), f"migrating.md, {name}", "exec"), variables)
    return variables


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def test_the_sections_are_these():
    assert list(SECTIONS) == ["extract_features.py", *PYTHON]
    assert [len(read_column(SECTIONS[name], "new call")) for name in PYTHON] == [6, 8, 5]
    assert [len(read_column(SECTIONS[name], "setting")) for name in PYTHON] == [14, 6, 5]


@pytest.mark.parametrize("name", PYTHON)
def test_settings_are_allowed(name):
    for cell in read_column(SECTIONS[name], "setting"):
        for code in cell:
            if "=" in code:
                assert ExtractConfig(**{"level": "sequence"} | read_settings(code)), code


def test_options_exist():
    options = {o for p in extract_command().params for o in [*p.opts, *p.secondary_opts]}
    cells = read_column(SECTIONS["extract_features.py"], "option")
    named = {code.partition(" ")[0].partition("=")[0] for cell in cells for code in cell}
    assert {name for name in named if name.startswith("--")} <= options
    assert len(cells) == 11


@pytest.fixture
def program(folder, monkeypatch) -> dict[str, object]:
    """The variables of the program that the names of the page are tried in."""
    monkeypatch.chdir(folder)
    variables: dict[str, object] = {}
    exec(compile(read_setup("extract_features.py"), "migrating.md, programs", "exec"), variables)
    return variables


@pytest.mark.slow
def test_every_line_of_imports_runs():
    lines = read_column(SECTIONS["extract_features.py"], "line here")
    assert len(lines) == 7
    for (line,) in lines:
        exec(line, {})


@pytest.mark.slow
@pytest.mark.release
def test_every_name_of_a_program_runs(program):
    section = SECTIONS["extract_features.py"]
    outside, inside = (
        part.partition("\n\n")[0] for part in section.split("| call | difference |")[1:]
    )
    assert (run_rows(outside, program), run_rows(inside, program, in_graph=True)) == (19, 6)


def run_rows(table: str, variables: dict[str, object], *, in_graph: bool = False) -> int:
    """Runs the call of each row; in a graph of TensorFlow 1 after `BertModel`."""
    calls = [CODE.findall(row[1])[0] for row in ROW.finditer(table) if "`" in row[1]]
    with contextlib.ExitStack() as stack:
        if in_graph:
            tf, modeling = variables["tf"], variables["modeling"]
            stack.enter_context(tf.Graph().as_default())
            input_ids = tf.placeholder(tf.int32, [None, 8])
            variables["input_ids"] = input_ids
            variables["model"] = modeling.BertModel(variables["config"], False, input_ids)
        for call in calls:
            eval(compile(call, f"migrating.md, {call}", "eval"), variables)
    return len(calls)


@pytest.mark.slow
def test_the_program_gives_the_official_vectors(program, oracle):
    """The `model_fn` of the page, on its two texts."""
    pair, single = program["estimator"].predict(program["input_fn"])
    assert (pair["unique_id"], single["unique_id"]) == (0, 1)
    close(single["last"][:5], oracle("A bank.")[6])


def extract_command():
    return typer.main.get_command(app).commands["extract"]


@pytest.mark.slow
def test_the_official_command(folder, monkeypatch, oracle):
    monkeypatch.chdir(folder)
    (command,) = (code for kind, code in BLOCK.findall(SECTIONS["extract_features.py"]) if not kind)
    files = (
        "--config-file {0}/bert_config.json --vocab-file {0}/vocab.txt --uncased --batch-size 32"
    )
    given = shlex.split(command.replace("\\\n", " "))[1:]
    result = CliRunner().invoke(
        app, [*given, *shlex.split(files.format("uncased_L-12_H-768_A-12")), "--device", "cpu"]
    )
    assert result.exit_code == 0, result.output
    pair, single = map(json.loads, (folder / "features.jsonl").read_text().splitlines())
    assert (pair["linex_index"], single["linex_index"]) == (0, 1)
    assert [f["token"] for f in pair["features"]].count("[SEP]") == 2
    states = oracle("A bank.")
    for token, vectors in zip(single["features"], states.transpose(1, 0, 2), strict=True):
        assert [layer["index"] for layer in token["layers"]] == [-1, -2, -3, -4]
        values = np.array([layer["values"] for layer in token["layers"]], np.float32)
        close(values, vectors[[6, 5, 4, 3]])


@pytest.mark.slow
def test_bert_as_service(namespace, oracle):
    run_calls("bert-as-service", namespace)
    extractor, texts = namespace["extractor"], namespace["texts"]
    layers = [oracle(text)[5] for text in texts]
    close(extractor.encode(texts), np.stack([layer.mean(axis=0) for layer in layers]))
    close(extractor.encode([""])[0], oracle("")[5].mean(axis=0))
    assert extractor.encode([]).shape == (0, 384)


@pytest.mark.slow
@pytest.mark.release
def test_sentence_transformers(namespace, oracle):
    run_calls("sentence-transformers", namespace)
    model, sentences = namespace["model"], namespace["sentences"]
    means = np.stack([oracle(text)[6].mean(axis=0) for text in sentences])
    close(model.encode(sentences), unit(means))
    asked = [f"query: {text}" for text in sentences]
    close(model.encode(sentences, prompt_name="query"), model.encode(asked))
    short = type(model).from_checkpoint(
        "my-model", level="sequence", pooling="auto", dim=64, normalize=True
    )
    close(short.encode(sentences), unit(means[:, :64]))


@pytest.mark.slow
@pytest.mark.release
def test_flair(namespace, oracle):
    run_calls("flair", namespace)
    embedding, words = namespace["embedding"], namespace["words"]
    counts = [len(oracle.tokenizer.tokenize(word)) for word in words]
    assert max(counts) > 1
    ends = 1 + np.cumsum(counts)  # behind [CLS]
    states = oracle(*words)
    close(embedding.encode([words]).values[0], states[6][ends - counts])
    close(namespace["document"].encode(" ".join(words)), states[6][0])
    (all_layers,) = (
        cell[0] for cell in read_column(SECTIONS["flair"], "setting") if "embeddings" in cell[0]
    )
    mean = type(embedding).from_checkpoint(
        "minilm", level="word", pooling="last", **read_settings(all_layers)
    )
    close(mean.encode([words]).values[0], states.mean(axis=0)[ends - 1])


def run_calls(name: str, variables: dict[str, object]) -> None:
    for code, *_ in read_column(SECTIONS[name], "new call"):
        if f" = {code}\n" in read_setup(name):
            continue  # it has run
        result = eval(compile(code, f"migrating.md, {name}", "eval"), variables)
        assert result is not None, code

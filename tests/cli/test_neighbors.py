"""neighbors: the table, JSON lines, texts by their ids, and its errors."""

import json

import numpy as np
import pytest

from bert_features import read_features
from tests.cli.command_line import run

ROWS = [("a1", "is it ?"), ("b2", "no it is not ."), ("c3", "the a b")]


@pytest.fixture(scope="module")
def features(tmp_path_factory, toy):
    """A features file of texts and their pieces; `rows.jsonl` beside it is the input."""
    folder = tmp_path_factory.mktemp("neighbors")
    lines = [json.dumps({"key": key, "body": body}) for key, body in ROWS]
    (folder / "rows.jsonl").write_text("\n".join(lines))
    result = run(
        *("extract", folder / "rows.jsonl", "--output", folder / "f.parquet", "--checkpoint", toy),
        *("--id-field", "key", "--text-field", "body", "--max-seq-length", 16),
        *("--output-spec", 'name = "text", level = "sequence", layers = [-1]'),
        *("--output-spec", 'name = "piece", level = "token", layers = [-1]'),
    )
    assert result.exit_code == 0, result.output
    return folder / "f.parquet"


def test_a_table_of_texts(features):
    result = run(
        *("neighbors", features, "--feature", "text", "--query", "is it ?", "--query", "the a b"),
        *("--texts", features.with_name("rows.jsonl"), "--top", 2),
    )
    assert result.exit_code == 0, result.output
    first, second = result.stdout.split("\n\n")
    assert first.splitlines()[:3] == [
        "query: is it ?",
        "rank  similarity  id        text",
        "   1      1.0000  a1        is it ?",
    ]
    assert second.splitlines()[2] == "   1      1.0000  c3        the a b"
    assert len(second.splitlines()) == 4


OTHERS = {
    "another text": [*ROWS[:2], ("c3", "the a c")],
    "another order": [ROWS[1], ROWS[0], ROWS[2]],
    "fewer": ROWS[:2],
    "more": [*ROWS, ("d4", "it")],
    "other ids": [(key.upper(), body) for key, body in ROWS],
}


def write_rows(path, rows):
    path.write_text("\n".join(json.dumps({"key": key, "body": body}) for key, body in rows))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("place", ["a file", "a folder"])
def test_the_texts_of_another_input_are_refused(features, toy, tmp_path, caplog, place):
    source = features
    if place == "a folder":
        source = tmp_path / "folder"
        result = run(
            *("extract", features.with_name("rows.jsonl"), "--output", f"{source}/"),
            *("--checkpoint", toy, "--shard-examples", 2, "--max-seq-length", 16),
            *("--id-field", "key", "--text-field", "body", "--layers=-1", "--level", "sequence"),
        )
        assert result.exit_code == 0, result.output
    arguments = ["neighbors", source, "--query-id", "c3", "--top", 1]
    arguments += ["--feature", "text"] if place == "a file" else []
    for rows in OTHERS.values():
        path = write_rows(tmp_path / "others.jsonl", rows)
        result = run(*arguments, "--texts", path)
        assert (result.exit_code, result.stdout) == (1, "")
        assert f"others.jsonl: these are not the texts that {source} was made fr" in result.stderr
    result = run(*arguments, "--texts", features.with_name("rows.jsonl"))
    assert result.exit_code == 0, result.output
    assert "is it ?" in result.stdout or "no it is not ." in result.stdout


def test_a_query_by_id_needs_no_checkpoint(features, monkeypatch):
    monkeypatch.delattr("bert_features.neighbors.searchers.embed")
    result = run(
        *("neighbors", features, "--feature", "text", "--query-id", "c3", "--query-id", "a1"),
        *("--format", "jsonl", "--top", 1),
    )
    assert result.exit_code == 0, result.output
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(hit["query"], hit["rank"]) for hit in found] == [("c3", 1), ("a1", 1)]
    vectors = [record.features["text"] for record in read_features(features)]
    lengths = np.linalg.norm(vectors, axis=1)
    similarities = vectors @ np.transpose(vectors) / np.outer(lengths, lengths)
    np.fill_diagonal(similarities, -2)  # a text is no neighbor of itself
    for hit, row in zip(found, similarities[[2, 0]], strict=True):
        assert hit["id"] == ROWS[row.argmax()][0]
        assert hit["similarity"] == pytest.approx(row.max(), abs=1e-6)


def test_json_lines_of_tokens_from_standard_input(features):
    result = run(
        *("neighbors", features, "--feature", "piece", "--token", "not", "--query", "-"),
        *("--format", "jsonl", "--top", 1),
        stdin="no it is not .\n\n",
    )
    assert result.exit_code == 0, result.output
    (found,) = map(json.loads, result.stdout.splitlines())
    assert found.pop("similarity") == pytest.approx(1, abs=1e-5)
    assert found == {
        "query": "no it is not .",
        "rank": 1,
        "id": "b2",
        "record": 1,
        "position": 4,
        "token": "not",
        "context": "[CLS] no it is >>not<< . [SEP]",
    }

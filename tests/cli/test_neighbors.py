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


def test_a_query_by_id_needs_no_checkpoint(features, monkeypatch):
    monkeypatch.delattr("bert_features.neighbors.nearest.embed")
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


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--query", "it"], 2, "pass --feature, one of 'text', 'piece'"),
        (["--feature", "piece", "--query", "is it"], 2, "pass --token, a word of the query"),
        (["--feature", "text", "--query-id", "x"], 2, "the id 'x' is not in "),
        (["--feature", "piece", "--query-id", "a1"], 2, "each token; pass a query text"),
        (["--query", "it", "--query-id", "a1"], 2, "--query and --query-id are both set"),
        (["--query-id", "a1", "--token", "it"], 2, "of the file; leave --token out"),
        (["--query-id", "a1", "--checkpoint", "no"], 2, "of the file; leave --checkpoint out"),
        (["--feature", "text"], 2, "there is no query; pass --query TEXT or --query-id ID"),
        (["--feature", "text", "--query", "-"], 1, "there is no query; pass --query TEXT"),
        (["--feature", "text", "--query", "it", "--checkpoint", "/no"], 1, "no checkpoint '/no'"),
        (["--feature", "text", "--query", "it", "--texts", "/no.jsonl"], 1, "cannot read /no"),
    ],
)
def test_errors_are_one_line(features, arguments, status, message):
    result = run("neighbors", features, *arguments, stdin="")
    assert result.exit_code == status
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("bert-features: ")]
    assert message in line
    assert result.stdout == ""


def test_a_missing_file():
    result = run("neighbors", "/no/such.parquet", "--query", "x")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "cannot read /no/such.parquet: No such file or directory" in result.stderr

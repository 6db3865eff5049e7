"""JSON lines are those of the official script."""

import dataclasses
import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_features.errors import OutputError
from bert_features.formats import read_features
from bert_features.formats.jsonl import StreamWriter
from bert_features.formats.records import SPANS, Feature, FeatureBatch, Rows
from tests.formats.feature_files import EVERYTHING, MIXES, ONE, assert_same, make_batch, mix, write


def test_an_id_somewhere_in_a_line(tmp_path: Path) -> None:
    layers = [{"index": -1, "values": [0.5]}]
    features = [{"token": "[CLS]", "layers": layers}]
    long = "x" * 5000
    lines: list[dict[str, Any]] = [
        {"features": features, "linex_index": "b"},
        {"linex_index": long, "features": features},
    ]
    path = tmp_path / "f.jsonl"
    path.write_text("".join(json.dumps(line) + "\r\n" for line in lines))
    file = read_features(path)
    assert file.ids.tolist() == ["b", long]
    assert file.by_id(long).features["layer_output_0"].tolist() == [[0.5]]


@pytest.mark.parametrize("name", ["word", "sequence", "all"])
def test_jsonl_without_its_sidecar(tmp_path: Path, name: str) -> None:
    features = MIXES[name]
    batch = make_batch(features, [2, 1], id_type="str")
    path = tmp_path / "f.jsonl"
    write(path, "jsonl", features, batch, id_type="str")
    with_sidecar = list(read_features(path))
    (tmp_path / "f.jsonl.metadata.json").unlink()
    file = read_features(path)
    assert (file.metadata, file.id_type, len(file)) == ({}, "str", 2)
    assert {f.name: (f.level, f.width) for f in file.features} == {
        f.name: (f.level, f.width) for f in features
    }
    for received, expected in zip(file, with_sidecar, strict=True):
        order = [f.name for f in file.features]
        same = {n: expected.features[n] for n in order}
        assert_same(received, dataclasses.replace(expected, features=same))


def test_jsonl_is_the_official_line(tmp_path: Path) -> None:
    features = (
        Feature("layer_output_0", (-1,), "none", 2, "float32"),
        Feature("layer_output_1", ("embeddings",), "none", 1, "float32"),
        Feature("sum", (-2, -1), "sum", 1, "float32"),
    )
    columns = {
        "tokens": np.array(["[CLS]", "é"], object),
        "token_ids": np.array([101, 102], np.int32),
    }
    vectors = {
        "layer_output_0": np.array([[0.5, -1.25], [1 / 3, -0.0]], np.float32),
        "layer_output_1": np.array([[1e-7], [2e-6]], np.float32),
        "sum": np.array([[123456.789], [10.0]], np.float32),
    }
    batch = FeatureBatch(np.array([7]), levels={"token": Rows(np.array([0, 2]), columns, vectors)})
    path = tmp_path / "f.jsonl"
    write(path, "jsonl", features, batch)
    assert path.read_text(encoding="ascii") == (
        '{"linex_index": 7, "features": [{"token": "[CLS]", "layers": [{"index": -1, "values": '
        '[0.5, -1.25]}, {"index": "embeddings", "values": [0.0]}, {"index": "sum", "values": '
        '[123456.789062]}]}, {"token": "\\u00e9", "layers": [{"index": -1, "values": [0.333333, '
        '-0.0]}, {"index": "embeddings", "values": [2e-06]}, {"index": "sum", "values": [10.0]}]}'
        "]}\n"
    )


def test_jsonl_of_the_official_script_is_read(tmp_path: Path) -> None:
    """There is no sidecar then: the first line tells the features."""
    layers = [{"index": -1, "values": [0.5, 1.5]}, {"index": "embeddings", "values": [2.0, 3.0]}]
    layers.append({"index": "sum", "values": [4.0]})
    line = {"linex_index": 3, "features": [{"token": "[CLS]", "layers": layers}]}
    path = tmp_path / "official.json"
    path.write_text(json.dumps(line) + "\n" + json.dumps(line | {"linex_index": 4}) + "\n")
    file = read_features(path, format="jsonl")
    assert file.metadata == {}
    assert [(f.name, f.layers, f.width, f.dtype) for f in file.features] == [
        ("layer_output_0", (-1,), 2, "float32"),
        ("layer_output_1", ("embeddings",), 2, "float32"),
        ("sum", (), 1, "float32"),
    ]
    assert file.layers == [-1, "embeddings"]
    first, second = file
    assert (first.unique_id, second.unique_id) == (3, 4)
    np.testing.assert_array_equal(first.features["layer_output_1"], [[2.0, 3.0]])
    assert len(file) == 2  # counted
    assert file[-1].unique_id == 4


def test_only_layers_have_the_number_of_a_layer(tmp_path: Path) -> None:
    features = (
        Feature("layer_output_0", (-2,), "none", 3, "float32"),
        Feature("masked_lm", (-1,), "none", 2, "float32", kind="masked_lm"),
        Feature("masked_lm_ids", (-1,), "none", 2, "int32", kind="masked_lm"),
    )
    path = tmp_path / "f.jsonl"
    write(path, "jsonl", features, make_batch(features, [1]))
    sidecar = tmp_path / "f.jsonl.metadata.json"
    new = path.read_text()
    assert re.findall('"index": (.*?),', new)[:3] == ["-2", '"masked_lm"', '"masked_lm_ids"']
    assert read_features(path).layers == [-2, -1, -1]
    sidecar.unlink()
    names = {feature.name: feature.layers for feature in read_features(path).features}
    assert names == {"layer_output_0": (-2,), "masked_lm": (), "masked_lm_ids": ()}


def test_jsonl_of_words_and_sequences(tmp_path: Path) -> None:
    features = mix("word", "sequence")
    spans = np.array([[0, -1], [5, -1], [0, 1], [2, 0]], np.int32)
    columns = {"words": np.array(["naïve", "x"], object), **dict(zip(SPANS, spans, strict=True))}
    vectors = {"of words": np.array([[0.5, 1.0], [2.0, 0.0]], np.float32)}
    batch = FeatureBatch(
        np.array(['a"é'], object),
        {"sentence": np.array([[1 / 3, 0, 0, -1]], np.float32)},
        {"word": Rows(np.array([0, 2]), columns, vectors)},
    )
    path = tmp_path / "f.jsonl"
    write(path, "jsonl", features, batch, id_type="str")
    assert path.read_text(encoding="ascii") == (
        '{"linex_index": "a\\"\\u00e9", "words": [{"word": "na\\u00efve", "start": 0, "end": 5, '
        '"type_id": 0, "num_pieces": 2, "layers": [{"index": "of words", "values": [0.5, 1.0]}]}, '
        '{"word": "x", "start": -1, "end": -1, "type_id": 1, "num_pieces": 0, "layers": '
        '[{"index": "of words", "values": [2.0, 0.0]}]}], "sequence": [{"index": "sentence", '
        '"values": [0.333333, 0.0, 0.0, -1.0]}]}\n'
    )


@pytest.mark.parametrize(
    ("bad", "value"), [("layer_output_0", np.nan), ("of words", np.inf), ("sentence", -np.inf)]
)
def test_jsonl_says_where_a_value_is_not_finite(tmp_path: Path, bad: str, value: float) -> None:
    features = mix("token", "word", "sequence")
    batch = make_batch(features, [2, 2, 2])
    rows = batch.features[bad]
    rows[len(rows) // 3, 0] = value  # the first of example 1
    with pytest.raises(OutputError, match=f"{bad} of example 1 has a value that is not finite"):
        write(tmp_path / "f.jsonl", "jsonl", features, batch)
    assert list(tmp_path.iterdir()) == []


def test_the_lines_on_standard_output_are_those_of_a_file(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    batches = [make_batch(EVERYTHING, [2, 0, 3]), make_batch(EVERYTHING, [1])]
    write(tmp_path / "f.jsonl", "jsonl", EVERYTHING, *batches)
    writer = StreamWriter(EVERYTHING)
    for batch in batches:
        writer.write(batch)
    expected = (tmp_path / "f.jsonl").read_bytes()
    assert capfdbinary.readouterr().out == expected
    assert (writer.records, writer.bytes_written) == (4, len(expected))


def test_the_disk_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr(sys, "stdout", types.SimpleNamespace(buffer=full))
        said = "output: No space left on device; what is there is incomplete$"
        with pytest.raises(OutputError, match=said):
            StreamWriter(ONE).write(make_batch(ONE, [2]))

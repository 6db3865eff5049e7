"""JSON lines and TFRecords are read where they are wanted."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from bert_features.errors import OutputError
from bert_features.formats import IdType, read_features
from tests.formats.feature_files import (
    EVERYTHING,
    ONE,
    SIDECARS,
    SUFFIX,
    assert_all_same,
    expected_records,
    fit_sidecar,
    make_batch,
    read_all,
    write,
)


@pytest.mark.parametrize("format", ["jsonl", "tfrecord"])
def test_records_far_away_are_not_read(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"f{SUFFIX[format]}"
    batch = make_batch(EVERYTHING, [4, 4, 4, 4])
    write(path, format, EVERYTHING, batch)
    content = bytearray(path.read_bytes())
    offsets = read_features(path)._offsets  # type: ignore[attr-defined]
    middle = int(offsets[2] + offsets[3]) // 2
    content[middle] = ord("\\") if format == "jsonl" else content[middle] ^ 1
    path.write_bytes(content)
    fit_sidecar(path)  # else a change of such a small file is noticed as it is opened

    file = read_features(path)
    expected = list(expected_records(format, batch, features=EVERYTHING))
    assert_all_same([file[i] for i in (3, 0, 1)], [expected[i] for i in (3, 0, 1)])
    assert_all_same(file[:2], expected[:2])
    for far in (lambda: file[2], lambda: list(file[1:]), lambda: list(file)):
        with pytest.raises(OutputError, match=f"cannot read .* as {format}: it is damaged"):
            far()


@pytest.mark.parametrize("id_type", ["int", "str"])
@pytest.mark.parametrize("format", ["jsonl", "tfrecord"])
def test_ids_are_read_without_the_rest(
    tmp_path: Path, format: str, id_type: IdType, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"f{SUFFIX[format]}"
    batch = make_batch(EVERYTHING, [4, 0, 2], first_id=2**40, id_type=id_type)
    if id_type == "int":
        batch.unique_ids[1] = -(2**62)
    write(path, format, EVERYTHING, batch, id_type=id_type)
    file: Any = read_features(path)

    def refuse(*_: Any) -> None:
        raise AssertionError("an example was parsed")

    monkeypatch.setattr(type(file), "_parse", refuse)
    monkeypatch.setattr(json, "loads", lambda text: ast.literal_eval(text.decode()))
    assert file.ids.tolist() == batch.unique_ids.tolist()


@pytest.mark.parametrize("format", sorted(SIDECARS))
def test_a_file_cut_between_two_records(tmp_path: Path, format: str) -> None:
    whole, half = tmp_path / "whole", tmp_path / "half"
    batch = make_batch(ONE, [2, 2])
    write(whole, format, ONE, batch, batch)
    write(half, format, ONE, batch)
    whole.write_bytes(half.read_bytes())
    fit_sidecar(whole)
    with pytest.raises(OutputError, match="2 records where 4"):
        read_all(whole, format)

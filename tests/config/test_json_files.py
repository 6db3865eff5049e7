"""JSON files of a checkpoint: each hostile one is one error of one line."""

import pytest

from bert_features.config import json_files
from bert_features.config.json_files import read_json, read_json_object
from bert_features.errors import CheckpointError


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": "\xff"}', "is not JSON"),
        (b"[" * 100_000, "is nested too deeply"),
        (b'{"a": ' * 100_000 + b"1" + b"}" * 100_000, "is nested too deeply"),
        (b'{"vocab_size": ' + b"9" * 5000 + b"}", "holds an integer of too many digits"),
    ],
)
def test_what_is_refused(tmp_path, data, message):
    (tmp_path / "config.json").write_bytes(data)
    with pytest.raises(CheckpointError, match=message) as raised:
        read_json_object(tmp_path / "config.json")
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400


def test_a_file_without_an_end_is_not_read_whole(monkeypatch):
    monkeypatch.setattr(json_files, "MAX_BYTES", 1000)
    with pytest.raises(CheckpointError, match="/dev/zero has more than 1,000 bytes"):
        read_json("/dev/zero")


@pytest.mark.parametrize("name", ["absent", "x" * 300, "a\0b", "\ud800"])
def test_paths_that_cannot_be_read(tmp_path, name):
    with pytest.raises(CheckpointError, match="cannot read"):
        read_json(tmp_path / name)

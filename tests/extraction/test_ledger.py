"""The ledger: a line for each example, whole or not at all."""

import json
import signal
import subprocess
import sys

import pytest

from bert_features import extract, read_features
from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import OutputError
from bert_features.extraction.counts import ExampleCounts
from bert_features.extraction.ledger import Ledger
from tests.formats.feature_files import full_disk

SETTINGS = {"layers": (-1,), "max_seq_length": 6, "buckets": (), "batch_size": 4}


def test_what_was_kept_and_what_was_lost(toy, tmp_path):
    (tmp_path / "in.txt").write_text("a b\nthe jacksonville is not\n\na b ||| the is\n")
    config = ExtractConfig.of(
        {"checkpoint": toy, "do_lower_case": True, "level": "word", **SETTINGS}
    )
    summary = extract(
        config, tmp_path / "in.txt", tmp_path / "o.npz", ledger_path=tmp_path / "ledger.jsonl"
    )
    lines = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    fields = ("unique_id", "tokens_kept", "tokens_lost", "windows", "words", "words_lost")
    assert [tuple(line[name] for name in fields) for line in lines] == [
        (0, 2, 0, 1, 2, 0),
        (1, 4, 2, 1, 4, 2),
        (2, 0, 0, 1, 0, 0),
        (3, 3, 1, 1, 4, 1),
    ]
    assert all(line["words_vanished"] == 0 for line in lines)
    assert summary.counts.tokens_lost == sum(line["tokens_lost"] for line in lines)
    assert summary.counts.words == 10
    assert summary.counts.words_lost == 3


def test_an_existing_ledger_is_kept_unless_told(toy, tmp_path):
    (tmp_path / "in.txt").write_text("a\n")
    (tmp_path / "ledger").write_text("precious")
    config = ExtractConfig.of({"checkpoint": toy, "do_lower_case": True, **SETTINGS})
    arguments = (config, tmp_path / "in.txt", tmp_path / "o.parquet")
    with pytest.raises(OutputError, match="overwrite"):
        extract(*arguments, ledger_path=tmp_path / "ledger")
    assert (tmp_path / "ledger").read_text() == "precious"
    assert not (tmp_path / "o.parquet").exists()
    extract(*arguments, ledger_path=tmp_path / "ledger", overwrite=True)
    assert json.loads((tmp_path / "ledger").read_text())["tokens_kept"] == 1
    assert len(read_features(tmp_path / "o.parquet")) == 1


@pytest.mark.parametrize("ledger", ["o.jsonl", "o.jsonl.metadata.json", "./x/../o.jsonl"])
def test_the_output_and_its_sidecar_are_no_ledger(toy, tmp_path, ledger):
    (tmp_path / "in.txt").write_text("a\n")
    config = ExtractConfig.of({"checkpoint": toy, "do_lower_case": True, **SETTINGS})
    with pytest.raises(OutputError, match="output and the ledger"):
        extract(config, tmp_path / "in.txt", tmp_path / "o.jsonl", ledger_path=tmp_path / ledger)
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_it_is_written_where_it_was_begun(tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    ledger = Ledger("ledger")
    monkeypatch.chdir("there")
    _fill(ledger, 1)
    assert {path.name for path in tmp_path.iterdir()} == {"there", "ledger"}


# One line is written as the file is closed, many before.
@pytest.mark.parametrize("count", [1, 20_000])
def test_a_full_disk(tmp_path, count):
    ledger = Ledger(tmp_path / "ledger")
    message = r"^cannot write the ledger .*: File too large; nothing was left behind$"
    with full_disk(10), pytest.raises(OutputError, match=message):
        _fill(ledger, count)
    assert list(tmp_path.iterdir()) == []


def _fill(ledger, count):
    with ledger:
        for _ in range(count):
            ledger(ExampleCounts("an id", 1, 0))


KILLED = """
import os, signal, sys
from bert_features.extraction.counts import ExampleCounts
from bert_features.extraction.ledger import Ledger
from bert_features.formats import open_writer
from bert_features.formats.records import Feature

ledger = Ledger(sys.argv[1] + "/ledger")
ledger(ExampleCounts(0, 1, 0))
feature = Feature("f", (-1,), "none", 3, "float32")
writer = open_writer(sys.argv[1] + "/o.jsonl", format="jsonl", features=[feature], metadata={})
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_next_run_removes_what_a_killed_one_left(toy, tmp_path, caplog):
    """The hidden folders of output and ledger; the log names each."""
    out = tmp_path / "out"
    out.mkdir()
    killed = subprocess.run([sys.executable, "-c", KILLED, str(out)], check=False)
    assert killed.returncode == -signal.SIGKILL
    left = sorted(out.iterdir())
    assert [path.name.rsplit(".", 2)[0] for path in left] == [".ledger", ".o.jsonl"]
    (tmp_path / "in.txt").write_text("a\n")
    config = ExtractConfig.of({"checkpoint": toy, "do_lower_case": True, **SETTINGS})
    caplog.set_level("INFO", logger="bert_features")
    extract(config, tmp_path / "in.txt", out / "o.jsonl", ledger_path=out / "ledger")
    messages = [f"removed {path}, which a killed run had left" for path in left]
    assert [message for message in caplog.messages if "removed" in message] == messages
    names = ["ledger", "o.jsonl", "o.jsonl.metadata.json"]
    assert sorted(path.name for path in out.iterdir()) == names

"""--metrics: read back by prometheus_client's own parser."""

import importlib.util
import re
import shutil
import socket

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

import bert_features
from bert_features.cli import metrics as module
from bert_features.cli.metrics import RunMetrics, publishing
from bert_features.errors import ConfigError, MissingExtraError, OutputError
from bert_features.extraction.counts import Counts
from bert_features.monitor.run import State
from bert_features.monitor.stages import STAGES
from tests.cli.command_line import SMALL, run
from tests.clocks import stop_clock


def parse(text):
    """Name -> value, or label -> value of a metric with one label."""
    values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if len(sample.labels) == 1:
                (label,) = sample.labels.values()
                values.setdefault(sample.name, {})[label] = sample.value
            else:
                values[sample.name] = sample.labels or sample.value
    return values


def metrics_of(path):
    values = parse(path.read_text())
    return {name.removeprefix("bert_features_"): value for name, value in values.items()}


@pytest.fixture
def begun():
    metrics = RunMetrics()
    metrics.monitor.begin("toy", "tensorflow, cpu, float32")
    return metrics


def test_the_file_has_the_numbers_of_the_summary(toy, text, out):
    path = out / "m.prom"
    options = ["--checkpoint", toy, "--layers=-1", *SMALL, "--metrics", path]
    result = run("extract", text, "-o", out / "o.parquet", *options)
    assert result.exit_code == 0, result.output
    found = metrics_of(path)
    assert (found["examples_total"], found["tokens_total"]) == (3, 21)
    assert found["computed_tokens_total"] == 56
    assert found["lost_tokens_total"] == 0
    assert found["input_examples"] == 3
    assert found["finished"] == 1
    assert set(found["stage_busy_seconds_total"]) == set(STAGES)
    assert all(value > 0 for value in found["stage_busy_seconds_total"].values())
    assert found["lead_seconds_total"]["device"] > 0
    assert found["running_batches"] == found["unwritten_bytes"] == found["prepared_windows"] == 0
    assert found["info"] == {
        "version": bert_features.__version__,
        "checkpoint": toy,
        "runtime": "tensorflow",
        "device": "cpu",
        "precision": "float32",
    }
    assert "shards" not in found
    assert sorted(path.name for path in out.iterdir()) == ["m.prom", "o.parquet"]


def test_a_folder_has_its_shards(toy, text, out, tmp_path):
    path = tmp_path / "m.prom"
    options = ["--checkpoint", toy, "--layers=-1", *SMALL, "--shard-examples=2", "--metrics", path]
    for _ in range(2):  # the second time there is nothing to do
        assert run("extract", text, "-o", f"{out}/o/", *options).exit_code == 0
        found = metrics_of(path)
        assert (found["shards"], found["finished_shards"], found["finished"]) == (2, 2, 1)
        assert found["examples_total"] == 3


def test_the_file_is_written_now_and_then(begun, out, monkeypatch):
    path = out / "m.prom"
    move = stop_clock(monkeypatch, module)
    with publishing(begun, str(path)):
        for tokens, written in ((5, 5), (6, 5), (7, 7)):
            begun.update(Counts(tokens=tokens), State())
            assert metrics_of(path)["tokens_total"] == written
            move(6)
        begun.update(Counts(tokens=8), State())
    assert metrics_of(path)["tokens_total"] == 8
    assert list(out.iterdir()) == [path]


def test_a_folder_that_goes_ends_no_run(begun, out, caplog):
    with publishing(begun, str(out / "m.prom")):
        shutil.rmtree(out)
        begun.update(Counts(tokens=5), State())
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"cannot write the metrics file {out / 'm.prom'}: No such file" in caplog.text


def test_a_run_that_does_not_begin_leaves_the_file_as_it_was(text, out):
    path = out / "m.prom"
    path.write_text("# HELP bert_features_examples_total Of the last run.\n")
    result = run("extract", text, "-o", out / "o.npz", "--layers=-99", "--metrics", path)
    assert result.exit_code == 2
    assert "Of the last run" in path.read_text()


def refused(error, target, message, written=()):
    with pytest.raises(error, match=re.escape(message)), publishing(RunMetrics(), target, written):
        pytest.fail("the run began")


def test_a_port_in_use_is_refused_before_the_run():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        text = f"cannot serve metrics at 127.0.0.1:{port}: Address already in use; pass another"
        refused(OutputError, str(port), text)
        refused(OutputError, f"127.0.0.1:{port}", text)


@pytest.mark.parametrize(
    ("host", "status"), [("localhost", 200), ("127.0.0.1", 200), ("evil.example:80", 421)]
)
def test_a_port_of_this_machine_answers_to_its_names_alone(host, status, begun, caplog):
    caplog.set_level("INFO")
    with publishing(begun, "0"):
        (address,) = re.findall(r"http://\S+", caplog.text)
        answer = requests.get(address, headers={"Host": host}, timeout=20)
    assert answer.status_code == status
    assert ("bert_features_finished" in answer.text) == (status == 200)


def test_a_port_that_does_not_exist_is_refused(text, out):
    for address in ("70000", "localhost:99999"):
        refused(ConfigError, address, f"metrics is '{address}'; allowed: a port of 0 to 65535")
    result = run("extract", text, "-o", out / "o.npz", "--metrics", "70000")
    assert result.exit_code == 2
    assert "--metrics is '70000'" in result.stderr


def test_files_that_cannot_be_written_are_refused(out, tmp_path):
    precious = tmp_path / "texts.txt"
    precious.write_text("a text\n")
    refused(OutputError, str(precious), "exists and holds no metrics of a run; name another file")
    assert precious.read_text() == "a text\n"
    refused(OutputError, f"{out}/absent/m.prom", f"there is no folder {out}/absent; create it")
    refused(OutputError, str(out), "is a directory; name a file in it")
    ledger = [("the ledger", out / "m.prom")]
    refused(OutputError, f"{out}/m.prom", "ledger and the metrics file are the same file", ledger)
    assert list(out.iterdir()) == []


def test_without_prometheus_client_the_extra_is_named(out, monkeypatch):
    find = importlib.util.find_spec
    absent = "prometheus_client"
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == absent else find(name, *a)
    )
    refused(MissingExtraError, f"{out}/m.prom", "prometheus_client is not installed")
    refused(MissingExtraError, "0", "[metrics]")

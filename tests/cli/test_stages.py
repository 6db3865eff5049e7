"""The table of stages, and the advice, which must be true of the run."""

import re

import pytest

from bert_features.cli import stages as module
from bert_features.cli.stages import RunFacts, advise, describe_stages
from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import ConfigError
from bert_features.monitor.run import RunMonitor
from bert_features.monitor.stages import STAGES, StageTimes

LED = dict.fromkeys(("input", "device", "assemble", "write", "files"), 0.0)
BUSY = dict.fromkeys(STAGES, 0.0)
TIMES = {
    "read": StageTimes({**BUSY, "read": 16.0}, {**LED, "input": 16.0, "device": 4.0}),
    "tokenize": StageTimes({**BUSY, "tokenize": 16.0}, {**LED, "input": 16.0, "device": 4.0}),
    "batch": StageTimes({**BUSY, "batch": 16.0}, {**LED, "input": 16.0, "device": 4.0}),
    "device": StageTimes({**BUSY, "device": 16.0}, {**LED, "input": 4.0, "device": 16.0}),
    "assemble": StageTimes({**BUSY, "assemble": 16.0}, {**LED, "assemble": 16.0, "device": 4.0}),
    "write": StageTimes({**BUSY, "write": 16.0}, {**LED, "write": 16.0, "device": 4.0}),
}
VECTORS = {"level": "sequence", "dtype": "float16"}


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """A CPU of 4 cores."""

    def share_out(count, device):
        if count > 4:
            raise ConfigError("too many")

    monkeypatch.setattr(module, "share_out", share_out)


NEARER, ACTORS = "compute nearer to the store", "let Ray have more --ray-actors"


def facts_of(
    settings=(),
    inputs=("in.txt",),
    output="out.npz",
    on_ray=False,
    processes=1,
    tokens=1000,
    pad_waste=0.39,
    **run,
):
    monitor = RunMonitor(**{"device": "cpu", "precision": "float32", **run})
    for process in range(processes):
        monitor.note(process, StageTimes())
    config = ExtractConfig.of(dict(settings))
    return RunFacts(config, inputs, output, monitor, tokens, on_ray, pad_waste)


def advice(stage, **run):
    said = advise(TIMES[stage], facts_of(**run))
    head = f"{stage}: the run waited for it 80% of its time; to go faster, "
    assert said.startswith(head)
    return said.removeprefix(head)


FOLDER = "write a folder (--output FOLDER/) and pass --processes 2"


@pytest.mark.parametrize(
    ("stage", "facts", "text"),
    [
        ("read", {}, f"put the input on a faster disk, or {FOLDER}"),
        ("read", {"inputs": ["-"]}, "speed up the program that writes to standard input"),
        ("read", {"inputs": ["A.TXT.GZ"]}, f"decompress the input first, or {FOLDER}"),
        ("read", {"inputs": ["gs://b/c"]}, f"copy the input to a local disk first, or {FOLDER}"),
        ("tokenize", {}, FOLDER),
        ("tokenize", {"shards": 9, "processes": 2}, "pass --processes 4"),
        ("tokenize", {"shards": 9, "processes": 4}, "use a machine with faster CPU cores"),
        (
            "device",
            {"device": "tpu", "precision": "bfloat16"},
            "use more or faster TPUs, take lower --layers (blocks above the highest are not "
            "computed), or take a smaller --checkpoint",
        ),
        *(
            (
                "device",
                {"settings": {"layers": ["embeddings"], name: value}, "pad_waste": 0.85},
                f"{change} (85% of what was computed is padding), use a GPU or a TPU, or take a "
                "smaller --checkpoint",
            )
            for name, value, change in (
                ("packing", False, "leave --no-packing out"),
                ("batch_tokens", 9999, "pass a smaller --batch-tokens"),
            )
        ),
        ("assemble", {"settings": VECTORS}, FOLDER),
        (
            "write",
            {},
            "pass --dtype float16 (half the bytes), take --level sequence if one vector for each "
            "text is enough, or write to a faster disk",
        ),
        ("write", {"settings": VECTORS}, "write to a faster disk"),
        (
            "write",
            {"settings": VECTORS, "output": "s3://b/o/", "on_ray": True},
            f"{NEARER}, or {ACTORS}",
        ),
        ("assemble", {"settings": VECTORS, "on_ray": True}, ACTORS),
    ],
)
def test_each_advice_fits_the_run(stage, facts, text):
    assert advice(stage, **facts) == text


def test_bfloat16_is_advised_only_where_it_is_known_to_be_faster():
    assert "bfloat16" not in advice("device")
    assert "bfloat16" in advice("device", device="gpu")


def test_the_table_has_a_row_for_each_stage():
    printed, limit = describe_stages(TIMES["tokenize"], facts_of())
    head, *rows = printed.splitlines()
    time = "of the time"
    assert re.split(r"\s{2,}", head) == ["stage", "busy", time, "waited for", time]
    assert [row.split()[0] for row in rows] == list(STAGES)
    assert rows[1].split() == ["tokenize", "16.0", "s", "80%", "16.0", "s", "80%"]
    assert rows[3].split() == ["device", "0.0", "s", "0%", "4.0", "s", "20%"]
    assert limit.startswith("limit      tokenize: the run waited for it 80% of its time; ")


@pytest.mark.parametrize("small", [{"processes": 5}, {"tokens": 999}])
def test_a_small_run_has_no_table_and_no_advice(small):
    facts = facts_of(**{"processes": 2} | small)
    assert describe_stages(TIMES["read"], facts) == []
    assert advise(TIMES["read"], facts) == ""

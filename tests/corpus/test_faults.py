"""Faults of a run into a folder, and what is left then; each was found by reading the code."""

import errno
import itertools
import json
import os
import pickle
import signal
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bert_features import extract, read_features
from bert_features.corpus import inputs, job
from bert_features.corpus.executor import Executor, Ready
from bert_features.corpus.inputs import look_up
from bert_features.corpus.status import read_status
from bert_features.corpus.worker import portable
from bert_features.errors import DeviceError, InputError, OutputError
from bert_features.machine.versions import find_versions
from bert_features.readers import registry
from bert_features.readers.examples import source_of
from bert_features.readers.parts import cut
from tests.cli.command_line import run as run_command
from tests.corpus.runs import extract_until, shards_of
from tests.recipes import make_recipe


def test_overwrite_keeps_what_is_there_until_the_new_run_can_begin(config, texts, tmp_path):
    extract(config(), texts, f"{tmp_path}/out/")
    before = shards_of(tmp_path / "out")
    with texts.open("ab") as file:
        file.write(b"\xff\n")
    with pytest.raises(InputError, match="line 21: byte 0xff"):
        extract(config(), texts, f"{tmp_path}/out/", overwrite=True)
    assert shards_of(tmp_path / "out") == before
    assert len(read_features(tmp_path / "out")) == 20


def test_overwrite_of_a_stopped_run_takes_nothing_of_it(config, texts, tmp_path):
    extract_until(13, config(layers=(-1,)), texts, f"{tmp_path}/out/")
    summary = extract(config(), texts, f"{tmp_path}/out/", overwrite=True)
    assert summary.before.examples == 0
    assert len(read_features(tmp_path / "out").features) == 2


def test_the_rows_of_a_parquet_file_are_compared(config, tmp_path):
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({"text": ["no", "the is"] * 10}), path)
    extract_until(7, config(), path, f"{tmp_path}/out/")
    size = path.stat().st_size
    pq.write_table(pa.table({"text": ["it", "the no"] * 10}), path)
    assert path.stat().st_size == size
    with pytest.raises(InputError, match="has changed since"):
        extract(config(), path, f"{tmp_path}/out/")


def test_an_object_that_was_replaced_has_another_stamp():
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/bucket/in.txt", b"a b\n")
    before = look_up("memory://bucket/in.txt")
    assert look_up("memory://bucket/in.txt") == before
    assert before.is_certain
    memory.pipe("/bucket/in.txt", b"b a\n")
    assert look_up("memory://bucket/in.txt") != before


def test_an_address_without_a_size_is_refused(monkeypatch):
    class Server:
        def info(self, name):
            return {"size": None}

    monkeypatch.setattr(inputs, "connect", lambda path, error: (Server(), "in.txt"))
    with pytest.raises(InputError, match="does not report its size"):
        look_up("https://example.org/in.txt")


def test_text_in_the_middle_is_not_taken_for_another_encoding(tmp_path):
    path = tmp_path / "in.txt"
    path.write_bytes(b"x" * 1000 + b"\n" + b"a\0\0b\n")
    for part in cut(source_of(path, None), 1):
        source = source_of(path, None)
        source = type(source)(source.path, source.input_format, part=part.part)
        assert len(list(registry.read(source))) == 1


def test_the_manifest_of_something_else_is_left_alone(config, texts, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "_manifest.json").write_text('{"a": 1}')
    (out / "part-00000-of-00005.csv").write_text("precious")
    for overwrite in (False, True):
        with pytest.raises(OutputError, match=r"holds other files \(_manifest\.json, part-"):
            extract(config(), texts, f"{out}/", overwrite=overwrite)
    assert len(list(out.iterdir())) == 2


@pytest.mark.parametrize("kept", [300, 1])
def test_a_damaged_manifest_can_be_overwritten(config, texts, tmp_path, kept):
    extract(config(), texts, f"{tmp_path}/out/")
    manifest = tmp_path / "out" / "_manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:kept])
    with pytest.raises(OutputError, match="it is damaged"):
        extract(config(), texts, f"{tmp_path}/out/")
    assert extract(config(), texts, f"{tmp_path}/out/", overwrite=True).counts.examples == 20


def test_an_input_that_fails_in_its_middle_costs_one_shard(config, texts, object_store, tmp_path):
    extract(config(), texts, f"{tmp_path}/whole/")
    name, address = "bucket/in.txt", "toy://bucket/in.txt"
    object_store.files[name] = texts.read_bytes()

    def fail(counts, total):
        if counts.examples > 6:
            object_store.failing[name] = OSError(errno.EIO, os.strerror(errno.EIO))
            object_store.fails_late.add(name)

    with pytest.raises(InputError, match=r"cannot read toy://bucket/in\.txt: Input/output"):
        extract(config(), address, f"{tmp_path}/out/", progress=fail)
    assert 0 < len(shards_of(tmp_path / "out")) < 4
    object_store.failing.clear()
    extract(config(), address, f"{tmp_path}/out/")
    assert shards_of(tmp_path / "out") == shards_of(tmp_path / "whole")


def test_a_clock_that_jumps_changes_nothing(config, texts, tmp_path, monkeypatch):
    extract(config(), texts, f"{tmp_path}/whole/")
    out, now = tmp_path / "out", time.time()
    jumps = itertools.cycle([now + 1e8, 0.0, now - 1e8])
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: next(jumps))
        patch.setattr(time, "time_ns", lambda: int(next(jumps) * 1e9))
        extract_until(13, config(), texts, f"{out}/")
        for path in out.rglob("*"):
            os.utime(path, (next(jumps), next(jumps)))
        assert read_status(out).finished_shards == 2
        summary = extract(config(), texts, f"{out}/")
    assert summary.before.examples == 12
    assert 0 <= summary.seconds < 1e4
    assert shards_of(out) == shards_of(tmp_path / "whole")


def test_overwrite_removes_no_file_of_another_run(config, texts, tmp_path):
    extract(config(), texts, f"{tmp_path}/out/")
    for name in ("part-00077-of-00004.parquet", "part-00000-of-00009.npz", "notes.txt"):
        (tmp_path / "out" / name).write_text("precious")
    extract(config(), texts, f"{tmp_path}/out/", overwrite=True)
    assert len(list((tmp_path / "out").iterdir())) == 4 + 1 + 3


@pytest.mark.usefixtures("quick")
def test_a_record_with_other_counts_is_refused(config, texts, tmp_path):
    extract_until(13, config(), texts, f"{tmp_path}/out/")
    record = tmp_path / "out" / ".finished" / "00001.json"
    record.write_text(record.read_text().replace('"words"', '"w\\u001b"'))
    with pytest.raises(
        OutputError, match=r"cannot resume .*out: its shards count w\\x1b, which thi"
    ):
        extract(config(), texts, f"{tmp_path}/out/")


@pytest.mark.parametrize("library", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_run_with_overwrite_says_how_to_go_on(texts, tmp_path, monkeypatch, library):
    """Whatever error a library makes of the interruption."""

    def interrupted(*arguments, **keywords):
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            raise library from None

    monkeypatch.setattr(job, "extract", interrupted)
    result = run_command("extract", texts, "-o", f"{tmp_path}/out/", "--overwrite")
    again = "finished shards are kept; the same command without --overwrite resumes the run"
    assert result.stderr == f"bert-features: interrupted by SIGTERM; {again}\n"
    assert result.exit_code == 143


def test_versions_of_jax_count_where_it_computes():
    pytest.importorskip("jax")
    assert "jax" not in find_versions("tensorflow")
    assert {"jax", "jaxlib"} <= find_versions("jax").keys()


def out_of_memory():
    np.empty(1 << 60, np.uint8)


def foreign():
    error = type("NotFoundError", (Exception,), {"__module__": "tensorflow.python.framework"})
    raise error("no kernel\nfor it")


@pytest.mark.parametrize(
    ("fail", "expected", "text"),
    [
        (out_of_memory, MemoryError, "Unable to allocate 1.00 EiB"),
        (foreign, DeviceError, "the device of a process failed: NotFoundError: no kernel"),
        (lambda: json.loads("{"), RuntimeError, "JSONDecodeError: Expecting property name"),
        (lambda: [][0], IndexError, "list index out of range"),
    ],
)
def test_errors_keep_their_meaning_in_another_process(fail, expected, text):
    try:
        fail()
    except Exception as error:
        found = pickle.loads(pickle.dumps(portable(error)))
    assert type(found) is expected
    assert str(found).startswith(text)
    assert "Traceback" in found.__notes__[0]


class Reports(Executor):
    """Workers that have loaded the model."""

    def __init__(self, *reports):
        super().__init__()
        self.reports = reports

    def _compute(self, shards):
        yield from self.reports

    def stop(self):
        """Nothing runs."""


def test_workers_on_other_devices_are_refused_and_other_processors_are_named(caplog):
    def run(*workers):
        reports = [Ready(make_recipe(arithmetic={"device": d}), name) for d, name in workers]
        Reports(*reports).run([], print, print, None)

    run(("cpu", "x86"), ("cpu", "x86"))
    assert not caplog.text
    run(("cpu", "x86"), ("cpu", "ARM"), ("cpu", "ARM"))
    assert caplog.text.count("on different processors (x86; ARM)") == 1
    with pytest.raises(DeviceError, match="device 'cpu' and 'gpu'"):
        run(("cpu", "x86"), ("gpu", "x86"))

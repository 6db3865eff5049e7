"""Several real processes that compute one run, and what becomes of it when they are killed."""

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bert_features import extract
from bert_features.config.extract_config import ExtractConfig
from bert_features.corpus.repair import repair
from bert_features.errors import ConfigError, DeviceError, InputError
from bert_features.formats.manifest import Manifest
from bert_features.monitor.run import RunMonitor
from tests.corpus.runs import is_alive, wait_for_shards, workers_of
from tests.corpus.test_job import shards_of

pytestmark = pytest.mark.slow

TEXTS = "a b\nthe jacksonville is not\n\nit is\n" * 1000
SETTINGS = {"do_lower_case": True, "max_seq_length": 8, "batch_size": 4, "layers": (-1,)}


@pytest.fixture(scope="module")
def cores():
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPU cores")


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "in.txt"
    path.write_text(TEXTS)
    return path


@pytest.fixture(scope="module")
def whole(toy, texts, tmp_path_factory):
    """The shards of a run of one process that nothing disturbed."""
    out = tmp_path_factory.mktemp("whole")
    extract(config_of(toy), texts, f"{out}/out/")
    return shards_of(out / "out")


def config_of(toy, **settings):
    return ExtractConfig.of({"checkpoint": toy, "shard_examples": 250, **SETTINGS, **settings})


def command(toy, texts, out, processes=2):
    """The same run in a process of its own."""
    options = ["--uncased", "--max-seq-length=8", "--batch-size=4", "--layers=-1"]
    options += ["--shard-examples=250", f"--processes={processes}", "--checkpoint", toy]
    line = [sys.executable, "-m", "bert_features", "extract", texts, "-o", f"{out}/", *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(line, **pipes, text=True, start_new_session=True)


def assert_only_whole_files(out):
    """Nothing is half-written, apart from hidden folders whose lock is free."""
    finished = {shard for shard, _ in Manifest.read(out).finished_shards()}
    names = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    assert {f"part-{shard:05d}-of-00016.parquet" for shard in finished} <= names


@pytest.mark.usefixtures("cores")
def test_two_processes_write_the_bytes_of_one(toy, texts, whole, tmp_path):
    seen, monitor = [], RunMonitor()

    def note(counts, total):
        seen.append((counts, total))
        lives.append((monitor.times().elapsed, monitor.finished_shards))

    lives = []
    out = f"{tmp_path}/two/"
    summary = extract(config_of(toy), texts, out, processes=2, progress=note, monitor=monitor)
    assert shards_of(tmp_path / "two") == whole
    assert summary.counts.examples == 4000
    assert all(total == 4000 for _, total in seen)
    assert max(counts.examples for counts, _ in seen) == 4000
    assert lives == sorted(lives)
    assert lives[-1] == (summary.stages.elapsed, 16)
    assert all(seconds > 0 for seconds in summary.stages.busy.values())
    assert sum(summary.stages.waited.values()) == pytest.approx(summary.stages.elapsed)
    assert (monitor.device, monitor.processes, monitor.shards) == ("cpu", 2, 16)


@pytest.mark.usefixtures("cores")
def test_an_error_in_a_process_is_the_error_of_the_run(toy, tmp_path):
    mine = tmp_path / "in.txt"
    mine.write_text(TEXTS)

    def change(counts, total):
        mine.write_text(TEXTS.replace("it is\n", "is it\n"))

    with pytest.raises(InputError, match=r"has changed since .* again with overwrite=True"):
        extract(config_of(toy), mine, f"{tmp_path}/out/", processes=2, progress=change)
    assert_only_whole_files(tmp_path / "out")


@pytest.mark.usefixtures("cores")
def test_a_process_that_cannot_begin_says_why(toy, texts, tmp_path):
    with pytest.raises(ConfigError, match=r"no GPU"):
        extract(config_of(toy, device="gpu"), texts, f"{tmp_path}/out/", processes=2)
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("cores")
def test_a_killed_process_ends_the_run_and_it_can_go_on(toy, texts, whole, tmp_path):
    out = tmp_path / "out"
    killed = []

    def kill(counts, total):
        if not killed and any((out / ".finished").iterdir()):
            killed.append(workers_of())
            os.kill(killed[0][0], signal.SIGKILL)

    with pytest.raises(DeviceError, match=r"a process of the run ended by SIGKILL, as the system"):
        extract(config_of(toy), texts, f"{out}/", processes=2, progress=kill)
    assert not any(is_alive(process) for process in killed[0])
    assert_only_whole_files(out)
    finished = len(list(Manifest.read(out).finished_shards()))
    assert 0 < finished < 16
    assert len(repair(out, processes=2)) == 16 - finished
    assert shards_of(out) == whole
    assert not list(out.glob(".part*"))


@pytest.mark.usefixtures("cores")
def test_a_process_that_is_killed_while_it_loads_ends_the_run(toy, texts, tmp_path):
    def kill():
        while len(workers_of()) < 2:
            time.sleep(0.05)
        first, second = workers_of()
        os.kill(second, signal.SIGSTOP)
        used = -1
        while used != (used := cpu_ticks(first)):  # until it is ready and waits
            time.sleep(1)
        os.kill(second, signal.SIGKILL)

    with ThreadPoolExecutor(1) as threads:
        killed = threads.submit(kill)
        with pytest.raises(DeviceError, match=r"a process of the run ended by SIGKILL"):
            extract(config_of(toy), texts, f"{tmp_path}/out/", processes=2)
        killed.result()
    assert not workers_of()


def cpu_ticks(process):
    """The CPU time of a process so far, in the kernel's unit."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.usefixtures("cores")
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_no_process_and_can_go_on(toy, texts, whole, tmp_path, ending):
    out = tmp_path / "out"
    run = command(toy, texts, out)
    wait_for_shards(out, run)
    children = workers_of(run.pid)
    assert len(children) == 2
    if ending == signal.SIGINT:  # Ctrl-C reaches all processes of the terminal
        os.killpg(run.pid, ending)
    else:
        run.send_signal(ending)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == (-9 if ending == signal.SIGKILL else 128 + ending)
    if ending != signal.SIGKILL:
        assert re.search(
            r"interrupted.*; finished shards are kept; the same command resumes the run", errors
        )
        assert not list(out.glob(".part*"))
    deadline = time.monotonic() + 20  # those of a killed run notice it at their next step
    while any(map(is_alive, children)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert_only_whole_files(out)

    summary = extract(config_of(toy), texts, out)
    assert 0 < summary.before.examples < 4000
    assert shards_of(out) == whole
    assert not list(out.glob(".part*"))


@pytest.mark.usefixtures("cores")
def test_a_program_needs_no_guard(toy, texts, whole, tmp_path):
    """The processes do not run the program again."""
    program = tmp_path / "program.py"
    program.write_text(
        "from bert_features import ExtractConfig, extract\n"
        f"config = ExtractConfig.of({SETTINGS | {'checkpoint': toy, 'shard_examples': 250}!r})\n"
        f"extract(config, {str(texts)!r}, {f'{tmp_path}/out/'!r}, processes=2)\n"
    )
    subprocess.run([sys.executable, program], check=True)
    assert shards_of(tmp_path / "out") == whole

"""Several processes that compute one run, and what becomes of it when they are killed."""

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
from bert_features.corpus.job import repair
from bert_features.errors import ConfigError, DeviceError, InputError
from bert_features.formats.manifest import Manifest
from bert_features.monitor.run import RunMonitor
from tests.corpus.runs import (
    DIFFERENT,
    EXAMPLES,
    MANY,
    SHARDS,
    computing_each,
    config_of,
    count_finished,
    is_alive,
    shards_of,
    stalled,
    wait_until,
    workers_of,
)
from tests.markers import of_release

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def cores():
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPU cores")


def assert_only_whole_files(out):
    """Nothing is half-written, apart from hidden folders whose lock is free."""
    finished = {shard for shard, _ in Manifest.read(out).finished_shards()}
    names = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    assert {f"part-{shard:05d}-of-{SHARDS:05d}.parquet" for shard in finished} <= names


@pytest.mark.slow
def test_two_processes_write_the_bytes_of_one(config, texts, tmp_path):
    """The only one of these tests whose processes have a model; they share what they know."""
    seen, lives, monitor = [], [], RunMonitor()

    def note(counts, total):
        seen.append((counts, total))
        lives.append(monitor.times().elapsed)

    out = f"{tmp_path}/two/"
    settings = config(dedupe=True)
    summary = extract(settings, texts, out, processes=2, progress=note, monitor=monitor)
    with computing_each():
        extract(settings, texts, f"{tmp_path}/one/")
    assert shards_of(tmp_path / "two") == shards_of(tmp_path / "one")
    assert summary.counts.examples == EXAMPLES
    # Each process may compute a text that the other is just computing.
    assert summary.counts.examples_reused >= EXAMPLES - 2 * DIFFERENT
    assert all(total == EXAMPLES for _, total in seen)
    assert max(counts.examples for counts, _ in seen) == EXAMPLES
    assert lives == sorted(lives)
    assert lives[-1] == summary.stages.elapsed
    assert all(seconds > 0 for seconds in summary.stages.busy.values())
    assert sum(summary.stages.waited.values()) == pytest.approx(summary.stages.elapsed)
    assert (monitor.device, monitor.processes, monitor.shards) == ("cpu", 2, 4)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_an_error_in_a_process_is_the_error_of_the_run(toy, many, tmp_path):
    mine = tmp_path / "in.txt"
    mine.write_text(many.read_text())

    def change(counts, total):
        mine.write_text(many.read_text().replace("it is\n", "is it\n"))

    with pytest.raises(InputError, match=r"has changed since .* run the same command again$"):
        extract(config_of(toy), mine, f"{tmp_path}/out/", processes=2, progress=change)
    assert_only_whole_files(tmp_path / "out")


@pytest.mark.usefixtures("quick")
def test_a_process_that_cannot_begin_says_why(toy, many, tmp_path):
    with pytest.raises(ConfigError, match=r"no gpu"):
        extract(config_of(toy, device="gpu"), many, f"{tmp_path}/out/", processes=2)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_killed_process_ends_the_run_and_it_can_go_on(toy, many, whole, tmp_path):
    out = tmp_path / "out"
    killed = []

    def kill(counts, total):
        if not killed and any((out / ".finished").iterdir()):
            killed.append(workers_of())
            os.kill(killed[0][0], signal.SIGKILL)

    with pytest.raises(DeviceError, match=r"a process of the run ended by SIGKILL, as the system"):
        extract(config_of(toy), many, f"{out}/", processes=2, progress=kill)
    assert not any(is_alive(process) for process in killed[0])
    assert_only_whole_files(out)
    assert 0 < (finished := count_finished(out)) < SHARDS
    assert len(repair(out, processes=2)) == SHARDS - finished
    assert shards_of(out) == whole
    assert not list(out.glob(".part*"))


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_process_that_is_killed_while_it_loads_ends_the_run(toy, many, tmp_path):
    def kill():
        wait_until(lambda: len(workers_of()) == 2)
        first, second = workers_of()
        os.kill(second, signal.SIGSTOP)
        used = -1
        while used != (used := cpu_ticks(first)):  # until it is ready and waits
            time.sleep(0.5)
        os.kill(second, signal.SIGKILL)

    with ThreadPoolExecutor(1) as threads:
        killed = threads.submit(kill)
        with pytest.raises(DeviceError, match=r"a process of the run ended by SIGKILL"):
            extract(config_of(toy), many, f"{tmp_path}/out/", processes=2)
        killed.result()
    assert not workers_of()


def cpu_ticks(process):
    """The CPU time of a process so far, in the kernel's unit."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("ending", [signal.SIGINT, of_release(signal.SIGKILL)])
def test_a_run_that_is_ended_leaves_no_process_and_can_go_on(toy, many, whole, tmp_path, ending):
    out = tmp_path / "out"
    with stalled(toy, many, out, "--processes=2") as run:
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
    # Those of a killed run notice it at their next step.
    wait_until(lambda: not any(map(is_alive, children)), seconds=20)
    assert_only_whole_files(out)

    summary = extract(config_of(toy), many, out)
    assert 0 < summary.before.examples < MANY
    assert shards_of(out) == whole
    assert not list(out.glob(".part*"))


@pytest.mark.slow
def test_a_program_needs_no_guard(toy, many, whole, tmp_path):
    """The processes do not run the program again."""
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from bert_features import extract\n"
        "from tests.corpus import quick, runs\n"
        "quick.install()\n"
        f"config = runs.config_of({toy!r})\n"
        f"extract(config, {str(many)!r}, {f'{tmp_path}/out/'!r}, processes=2)\n"
    )
    subprocess.run([sys.executable, program], check=True)
    assert shards_of(tmp_path / "out") == whole

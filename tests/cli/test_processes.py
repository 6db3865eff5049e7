"""Runs in processes of their own: what a terminal sees, how a run is ended, what it takes.

All are in one file, so that one process imports TensorFlow for them; see `tests/cli/forks.py`.
"""

import json
import os
import re
import resource
import signal
import time

import pytest

from bert_features import ExtractConfig, extract, read_features
from bert_features.monitor.stages import STAGES
from bert_features.text.vocabulary import read_vocab
from tests.cli.command_line import SMALL, program
from tests.cli.forks import call_in_fork, fork
from tests.cli.test_logs import read_lines as read_objects
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, random_weights

pytestmark = pytest.mark.slow


@pytest.mark.release
def test_a_reader_that_goes(toy, out, tmp_path):
    """As `| head -1`: the run ends without a word, and no ledger is left."""
    path = tmp_path / "long.txt"
    path.write_text("is this jacksonville ? no it is not .\n" * 20_000)
    pipe, said = tmp_path / "pipe", tmp_path / "said"
    os.mkfifo(pipe)
    options = ["--checkpoint", toy, "--layers=-1", "--ledger", out / "ledger", *SMALL]
    command = ["extract", path, "-o", "-", *options, "--buffer-mb", "1"]
    with fork(*command, stdout=pipe, stderr=said) as process:
        with pipe.open() as reader:
            assert json.loads(reader.readline())["linex_index"] == 0
        process.join(600)
        assert process.exitcode == 128 + signal.SIGPIPE
    progress = r"([\d,]+ (of [\d,]+ )?examples\b.*, .*\n)*"
    assert re.fullmatch(r"running on the CPU\n" + progress, said.read_text())
    assert list(out.iterdir()) == []


def test_a_terminal_sees_no_noise_and_the_exit_status(toy, text, out, tmp_path):
    """And what TensorFlow and Keras import for nothing is not imported."""
    at_exit = f"open({str(tmp_path / 'modules')!r}, 'w').write(' '.join(sys.modules))"
    site = f"import atexit, sys\natexit.register(lambda: {at_exit})"
    (tmp_path / "sitecustomize.py").write_text(site)
    path = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    options = ["--checkpoint", toy, "--layers=-1", *SMALL]
    env = {"PYTHONPATH": os.pathsep.join(path)}
    process = program("extract", text, "-o", out / "o.npz", *options, env=env)
    stdout, stderr = process.communicate(timeout=600)
    assert process.returncode == 0, stderr
    # A run that takes long, as on a busy machine, reports its progress too.
    progress = r"([\d,]+ (of [\d,]+ )?examples\b.*, .*\n)*"
    assert re.fullmatch(r"running on the CPU\n" + progress, stderr)
    assert stdout.startswith("examples   3\n")
    modules = {*(tmp_path / "modules").read_text().split()}
    assert "tensorflow" in modules
    assert not modules & {"IPython", "PIL", "jax", "matplotlib", "pandas", "scipy", "sklearn"}


def wait_for(condition, process):
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline
        assert process.is_alive()
        time.sleep(0.05)


def interrupt(process, sign, said, out):
    """Ends a command by a signal: it says so, and leaves nothing."""
    os.kill(process.pid, sign)
    process.join(600)
    assert process.exitcode == 128 + sign
    by = "" if sign == signal.SIGINT else f" by {sign.name}"
    line = f"bert-features: interrupted{by}; nothing was written"
    assert said.read_text().splitlines()[-1] == line
    assert list(out.iterdir()) == []


def test_interrupted_in_the_middle(toy, out, tmp_path):
    path, said = tmp_path / "long.txt", tmp_path / "said"
    path.write_text("is this jacksonville ? no it is not .\n" * 1_000_000)
    options = ["--checkpoint", toy, "--layers=-1", "--buffer-mb", "1", *SMALL]
    with fork("extract", path, "-o", out / "o.parquet", *options, stderr=said) as process:
        wait_for(lambda: any(p.stat().st_size for p in out.rglob("*") if p.is_file()), process)
        interrupt(process, signal.SIGINT, said, out)


def test_interrupted_while_waiting_for_input(toy, out, tmp_path):
    pipe, said = tmp_path / "pipe", tmp_path / "said"
    os.mkfifo(pipe)
    options = ["--checkpoint", toy, "--layers=-1", *SMALL]
    command = ["extract", "-", "-o", out / "o.parquet", *options]
    with fork(*command, stdin=pipe, stderr=said) as process, pipe.open("w") as texts:
        texts.write("is this\n")  # the ids' type is that of the first
        texts.flush()
        wait_for(lambda: list(out.iterdir()), process)
        time.sleep(1)  # until it waits
        interrupt(process, signal.SIGTERM, said, out)


def test_a_run_writes_objects_alone(toy, tmp_path):
    """--log-json, with warnings; the summary is an object."""
    (tmp_path / "in.txt").write_text("a b\n" * 5 + "漢 字\n" * 5, encoding="utf-8")
    said, printed = tmp_path / "said", tmp_path / "printed"
    options = ["--checkpoint", toy, "--layers=-1", *SMALL, "--log-json"]
    command = ["extract", tmp_path / "in.txt", "-o", tmp_path / "o.npz", *options]
    with fork(*command, stdout=printed, stderr=said) as process:
        process.join(120)
        assert process.exitcode == 0, said.read_text()
    lines = read_objects(said.read_text())
    assert [line["level"] for line in lines] == ["info", "warning"]
    assert "are [UNK]" in lines[1]["message"]
    summary = json.loads(printed.read_text())
    assert (summary["examples"], summary["tokens_unknown"]) == (10, 10)
    assert summary["output"] == str(tmp_path / "o.npz")
    assert set(summary["stages"]["busy_seconds"]) == set(STAGES)
    assert summary["stages"]["limiting"] in STAGES
    assert summary["stages"]["advice"] is None  # for ten texts


def note_peaks(text, output, checkpoint, noted):
    """Runs a job; notes the peak of its memory in MB as a quarter is done, and at the end."""
    peaks = []

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

    def note(counts, total):
        if counts.examples * 4 >= total and not peaks:
            peaks.append(peak())

    settings = {"checkpoint": checkpoint, "layers": [-1, -2, -3, "embeddings"], "buffer_mb": 4}
    settings |= {"max_seq_length": 64, "buckets": [64]}
    extract(ExtractConfig.of(settings), text, output, progress=note)
    noted.write_text(json.dumps([*peaks, peak()]))


@pytest.mark.release
def test_memory_does_not_grow_with_the_input(minilm_dir, read_lines, out, tmp_path):
    """Kept in memory, the features of the last three quarters would take more than the bound."""
    lines, bound = read_lines("udhr_300.txt") * 11, 100
    vocab = read_vocab(minilm_dir / "vocab.txt")
    sizes = {"vocab_size": len(vocab), "max_position_embeddings": 64, "hidden_size": 128}
    config = TOY.model_copy(update=sizes)
    model = write_directory(tmp_path / "uncased_wide", config, vocab, random_weights(config))
    (tmp_path / "in.txt").write_text("\n".join(lines), encoding="utf-8")
    call_in_fork(note_peaks, tmp_path / "in.txt", out / "o.npz", str(model), tmp_path / "noted")
    first, last = json.loads((tmp_path / "noted").read_text())
    assert len(read_features(out / "o.npz")) == len(lines)
    assert (out / "o.npz").stat().st_size * 3 / 4 > 1.5 * bound * 1e6
    assert last < first + bound

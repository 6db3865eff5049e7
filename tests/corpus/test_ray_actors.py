"""A run on a real Ray cluster of several processes: what is killed, lost, joined and resumed."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bert_features import extract
from bert_features.config.extract_config import ExtractConfig
from bert_features.corpus import ray_actors
from bert_features.errors import DeviceError
from bert_features.formats.manifest import Manifest
from tests.corpus.runs import is_alive, title_of, wait_for_shards
from tests.corpus.test_job import shards_of

pytestmark = [
    pytest.mark.slow,
    # Ray leaves its log files and sockets open, and its own modules use what is deprecated.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

EXAMPLES, SHARDS = 4000, 16
SETTINGS = {"do_lower_case": True, "max_seq_length": 8, "batch_size": 4, "layers": (-1,)}


class RayCluster:
    """A head without cores of its own, and nodes of one core, as processes of this machine."""

    def __init__(self):
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        self.address = self._cluster.address
        self.nodes = [self.add(), self.add()]

    def add(self):
        return self._cluster.add_node(num_cpus=1)

    def lose(self, node):
        """Ends a node without a word, as when a machine loses its power."""
        self.nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def actors(self, node):
        """The processes of a node that hold a model."""
        raylet = node.all_processes["raylet"][0].process.pid
        return [process for process in children_of(raylet) if "ShardActor" in title_of(process)]

    def all_actors(self):
        return [process for node in self.nodes for process in self.actors(node)]

    def shutdown(self):
        self._cluster.shutdown()


def children_of(process):
    return [
        int(child)
        for task in Path(f"/proc/{process}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]


@pytest.fixture(scope="module")
def cluster():
    cluster = RayCluster()
    yield cluster
    cluster.shutdown()


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "in.txt"
    path.write_text("a b\nthe jacksonville is not\n\nit is\n" * 1000)
    return path


@pytest.fixture(scope="module")
def whole(toy, texts, tmp_path_factory):
    """The shards of a run of one process without Ray."""
    out = tmp_path_factory.mktemp("whole") / "out"
    extract(config_of(toy), texts, f"{out}/")
    return shards_of(out)


def config_of(toy, **settings):
    return ExtractConfig.of({"checkpoint": toy, "shard_examples": 250, **SETTINGS, **settings})


def command(toy, texts, out, *options):
    """The same run in a process of its own."""
    line = [sys.executable, "-m", "bert_features", "extract", texts, "-o", f"{out}/"]
    line += ["--uncased", "--max-seq-length=8", "--batch-size=4", "--layers=-1"]
    line += ["--shard-examples=250", "--checkpoint", toy, *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(line, **pipes, text=True, start_new_session=True)


def count_finished(out):
    return len(list((out / ".finished").glob("*.json")))


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_killed_worker_costs_its_shard_alone(toy, texts, whole, cluster, tmp_path, caplog):
    out, stopped, killed, seen = tmp_path / "out", [], [], []

    def disturb(counts, total):
        seen.append((counts.examples, total))
        actors = cluster.all_actors()
        if not stopped and count_finished(out) >= 2:
            stopped.append(min(actors))  # the first
            os.kill(stopped[0], signal.SIGSTOP)
        elif stopped and not killed and len(actors) == 2:  # one more was asked for meanwhile
            killed.append(stopped[0])
            os.kill(stopped[0], signal.SIGKILL)

    summary = extract(config_of(toy), texts, f"{out}/", ray=cluster.address, progress=disturb)
    assert killed
    said = r"shard \d+ is computed again: the Ray actor died because its worker process has died$"
    assert re.search(said, caplog.text, re.MULTILINE)
    assert shards_of(out) == whole
    assert summary.counts.examples == EXAMPLES
    assert {total for _, total in seen} == {EXAMPLES}
    assert not list(out.glob(".part*"))
    wait_until(lambda: not cluster.all_actors())


def test_a_node_is_lost_and_another_joins(toy, texts, whole, cluster, tmp_path):
    out, joined, stopped, before = tmp_path / "out", [], [], []

    def disturb(counts, total):
        if not joined and count_finished(out) >= 2:
            cluster.lose(cluster.nodes[0])
            stopped.extend(cluster.all_actors())
            for process in stopped:
                os.kill(process, signal.SIGSTOP)
            joined.append(cluster.add())
            cluster.nodes += joined
            before.append(count_finished(out))
        elif stopped and count_finished(out) >= before[0] + 2:  # only the new node can have
            while stopped:
                os.kill(stopped.pop(), signal.SIGCONT)

    extract(config_of(toy), texts, f"{out}/", ray=cluster.address, ray_actors=2, progress=disturb)
    assert joined
    assert not stopped
    assert shards_of(out) == whole


def test_a_run_whose_driver_is_killed_goes_on(toy, texts, whole, cluster, tmp_path):
    out = tmp_path / "out"
    run = command(toy, texts, out, "--ray", cluster.address)
    wait_for_shards(out, run)
    actors = cluster.all_actors()
    assert actors
    run.kill()
    run.communicate()
    wait_until(lambda: not any(map(is_alive, actors)))
    assert len(list(Manifest.read(out).finished_shards())) < SHARDS

    summary = extract(config_of(toy), texts, out, ray=cluster.address)
    assert 0 < summary.before.examples < EXAMPLES
    assert shards_of(out) == whole
    assert not list(out.glob(".part*"))


def test_ctrl_c_removes_what_is_half_written(toy, texts, cluster, tmp_path):
    out = tmp_path / "out"
    run = command(toy, texts, out, "--ray", cluster.address, "--ray-actors=1")
    wait_for_shards(out, run)
    assert len(cluster.all_actors()) == 1
    os.killpg(run.pid, signal.SIGINT)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 128 + signal.SIGINT
    assert errors.endswith("finished shards are kept; the same command resumes the run\n")
    assert "ray" not in errors.lower()  # nothing of Ray's own on the terminal
    assert not list(out.glob(".part*"))
    wait_until(lambda: not cluster.all_actors())


def test_a_shard_that_is_lost_too_often_ends_the_run(toy, texts, cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_actors, "_TRIES", 2)
    killed = set()

    def kill(counts, total):
        if counts.examples:
            for process in set(cluster.all_actors()) - killed:
                killed.add(process)
                os.kill(process, signal.SIGKILL)

    config = config_of(toy, shard_examples=EXAMPLES)
    with pytest.raises(DeviceError, match=r"shard 0 \(4,000 examples of .*in\.txt\) was lost 2"):
        extract(config, texts, f"{tmp_path}/out/", ray=cluster.address, progress=kill)
    assert len(killed) == 2


def test_a_ray_of_its_own_ends_with_the_run(toy, texts, whole, tmp_path):
    import ray

    extract(config_of(toy), texts, f"{tmp_path}/out/", ray="local", ray_resources="CPU=1")
    assert shards_of(tmp_path / "out") == whole
    assert not ray.is_initialized()

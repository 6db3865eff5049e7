"""A run on a real Ray cluster of several processes: what is killed, lost, joined and resumed."""

import contextlib
import os
import re
import signal
import stat
import time
from pathlib import Path

import pytest

from bert_features import extract
from bert_features.corpus import ray_actors
from bert_features.corpus.executor import Progress
from bert_features.errors import DeviceError
from tests.corpus.runs import (
    MANY,
    SHARDS,
    children_of,
    config_of,
    count_finished,
    is_alive,
    shards_in,
    shards_of,
    stalled,
    title_of,
    wait_until,
)

pytestmark = [
    pytest.mark.slow,
    # Ray leaves its log files and sockets open, and its own modules use what is deprecated.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
quick = pytest.mark.usefixtures("quick")


class RayCluster:
    """A head and a node of one core each, as processes of this machine."""

    def __init__(self):
        from ray.cluster_utils import Cluster

        # A node that is lost is noticed after 1.5 s instead of 15.
        checks = {"health_check_period_ms": 500, "health_check_failure_threshold": 3}
        head = {"num_cpus": 1, "include_dashboard": False, "_system_config": checks}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.address = self._cluster.address
        self.nodes = [self._cluster.head_node]
        self.add()

    def add(self):
        self.nodes.append(self._cluster.add_node(num_cpus=1))

    def lose(self):
        """Ends the last node without a word, as when a machine loses its power."""
        self._cluster.remove_node(self.nodes.pop(), allow_graceful=False)

    def actors(self):
        """The processes of all nodes that hold a model."""
        raylets = [node.all_processes["raylet"][0].process.pid for node in self.nodes]
        processes = [process for raylet in raylets for process in children_of(raylet)]
        return [process for process in processes if "QuickActor" in title_of(process)]

    def shutdown(self):
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def cluster():
    cluster = RayCluster()
    yield cluster
    cluster.shutdown()


@quick
def test_a_killed_worker_costs_its_shard_alone(
    toy, many, whole, cluster, tmp_path, caplog, monkeypatch
):
    out, stopped, killed, seen, busy = tmp_path / "out", [], [], [], []
    follow = ray_actors.RayActors._follow

    def watch(self, actor, message):
        if isinstance(message, Progress):
            busy.append(message.worker)
        follow(self, actor, message)

    monkeypatch.setattr(ray_actors.RayActors, "_follow", watch)

    def disturb(counts, total):
        seen.append((counts.examples, total))
        if not stopped and shards_in(out) >= 2:
            stopped.append(busy[-1][1])  # of two, the other may still load and have no shard
            os.kill(stopped[0], signal.SIGSTOP)
        elif stopped and not killed and len(cluster.actors()) == 2:  # one more was asked for
            killed.append(stopped[0])
            os.kill(stopped[0], signal.SIGKILL)

    summary = extract(config_of(toy), many, f"{out}/", ray=cluster.address, progress=disturb)
    assert killed
    reason = r"the Ray actor died because its worker process has died \(node [\d.]+\)$"
    said = rf"shard \d+ is computed again: {reason}"
    assert re.search(said, caplog.text, re.MULTILINE)
    assert shards_of(out) == whole
    assert summary.counts.examples == MANY
    assert {total for _, total in seen} == {MANY}
    assert not list(out.glob(".part*"))
    wait_until(lambda: not cluster.actors())


@pytest.mark.release
@quick
def test_a_node_is_lost_and_another_joins(toy, many, whole, cluster, tmp_path):
    out, stopped, before = tmp_path / "out", [], []

    def disturb(counts, total):
        if not before and shards_in(out) >= 2:
            cluster.lose()
            stopped.extend(cluster.actors())
            for process in stopped:
                os.kill(process, signal.SIGSTOP)
            cluster.add()
            before.append(shards_in(out))
        elif stopped and shards_in(out) >= before[0] + 2:  # only the new node can have
            while stopped:
                os.kill(stopped.pop(), signal.SIGCONT)

    extract(config_of(toy), many, f"{out}/", ray=cluster.address, ray_actors=2, progress=disturb)
    assert before
    assert not stopped
    assert shards_of(out) == whole


@pytest.mark.release
@quick
def test_a_run_whose_driver_is_killed_goes_on(toy, many, whole, cluster, tmp_path):
    out = tmp_path / "out"
    with stalled(toy, many, out, "--ray", cluster.address) as run:
        actors = cluster.actors()
        assert actors
        run.kill()
    wait_until(lambda: not any(map(is_alive, actors)))
    assert count_finished(out) < SHARDS

    summary = extract(config_of(toy), many, out, ray=cluster.address)
    assert 0 < summary.before.examples < MANY
    assert shards_of(out) == whole
    assert not list(out.glob(".part*"))


@pytest.mark.release
@quick
@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_with_an_actor_that_waits_for_room(
    toy, many, cluster, tmp_path, signal_
):
    out = tmp_path / "out"
    with stalled(toy, many, out, "--ray", cluster.address, "--ray-actors=3") as run:
        begin = time.monotonic()
        os.killpg(run.pid, signal_)
        _, errors = run.communicate(timeout=60)
    assert time.monotonic() - begin < 3
    assert run.returncode == 128 + signal_
    assert errors.endswith("finished shards are kept; the same command resumes the run\n")
    assert "ray" not in errors.lower()  # nothing of Ray's own on the terminal
    assert not list(out.glob(".part*"))
    wait_until(lambda: not cluster.actors())


@pytest.mark.release
@quick
def test_a_shard_that_is_lost_too_often_ends_the_run(toy, many, cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_actors, "_TRIES", 2)
    killed = set()

    def kill(counts, total):
        if counts.examples:
            for process in set(cluster.actors()) - killed:
                killed.add(process)
                os.kill(process, signal.SIGKILL)

    config = config_of(toy, shard_examples=MANY)
    with pytest.raises(DeviceError, match=r"shard 0 \(1,200 examples of .*in\.txt\) was lost 2"):
        extract(config, many, f"{tmp_path}/out/", ray=cluster.address, progress=kill)
    assert len(killed) == 2


@pytest.mark.release
def test_a_ray_of_its_own_ends_with_the_run(config, texts, tmp_path):
    """Its actor has a model. No other machine reaches its ports, no other user its token."""
    import psutil  # Ray brings it
    import ray

    this, hosts = psutil.Process(), set()
    others = this.children(recursive=True)  # of the fixture's cluster

    def note_hosts(counts, total):
        for process in {this, *this.children(recursive=True)} - {*others}:
            with contextlib.suppress(psutil.NoSuchProcess):
                found = process.net_connections("tcp")
                hosts.update(each.laddr.ip for each in found if each.status == psutil.CONN_LISTEN)

    run = {"ray": "local", "ray_resources": "CPU=1", "ray_actors": 1}
    extract(config(), texts, f"{tmp_path}/one/")
    extract(config(), texts, f"{tmp_path}/out/", **run, progress=note_hosts)
    assert shards_of(tmp_path / "out") == shards_of(tmp_path / "one")
    assert not ray.is_initialized()
    assert {host.removeprefix("::ffff:") for host in hosts} == {"127.0.0.1"}
    assert stat.S_IMODE((Path.home() / ".ray" / "auth_token").stat().st_mode) == 0o600

"""The application on Ray Serve, as docs/serving.md starts it, on two nodes of this machine."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import requests

from bert_features import Client
from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import ConfigError, MissingExtraError
from bert_features.serving.run import config_with_outputs

TEXTS = ["The jackson is", "it", "", "no jackson ville ?"]
OUTPUTS = [{"name": "mean", "level": "sequence", "pooling": "mean", "layers": [-1]}]


def test_without_ray_serve_the_line_that_installs_it(monkeypatch):
    from bert_features.serving.on_ray import app

    monkeypatch.setitem(sys.modules, "ray.serve", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ray\[serve\]"):
        app({})


@pytest.mark.parametrize(
    "settings", [{"dtype": "int8"}, {"outputs": [OUTPUTS[0] | {"dtype": "int8"}]}]
)
def test_the_service_has_floats_only(toy, settings):
    config = ExtractConfig.of({"checkpoint": toy, **settings})
    with pytest.raises(ConfigError, match="dtype"):
        config_with_outputs(config)


@pytest.fixture
def cluster():
    """Two nodes of one core."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=1)
    yield cluster
    cluster.shutdown()


@pytest.fixture
def url(cluster, toy, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {"checkpoint": toy, "do_lower_case": True, "device": "cpu", "outputs": OUTPUTS}
    application = {
        "import_path": "bert_features.serving.on_ray:app",
        "args": {"replicas": 2, **settings},
    }
    file = tmp_path / "service.yaml"  # YAML takes JSON
    file.write_text(
        json.dumps(
            {
                "proxy_location": "HeadOnly",
                "http_options": {"host": "127.0.0.1", "port": port},
                "applications": [application],
            }
        )
    )
    command = [sys.executable, "-c", "from ray.serve.scripts import cli; cli()"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, "run", "--address", cluster.address, str(file)], stdout=log, stderr=log
        )
    try:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 300
        while not is_ready(url):
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.3)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def is_ready(url):
    with contextlib.suppress(requests.ConnectionError, requests.Timeout):
        return requests.get(f"{url}/readyz", timeout=60).status_code == 200
    return False


def parents_of_replicas():
    """The parent of each process that is a replica, by its number."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if b"ServeReplica:" in (folder / "cmdline").read_bytes():
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
                parents[int(folder.name)] = int(parent)
    return parents


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Ray leaves log files and sockets open
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_replicas_on_two_nodes_answer_with_the_vectors_of_the_extractor(cluster, url, extractor):
    nodes = {node.all_processes["raylet"][0].process.pid for node in cluster.list_all_nodes()}
    assert nodes == set(parents_of_replicas().values())
    for _ in range(4):
        answer = requests.post(f"{url}/v1/features", json={"texts": TEXTS}, timeout=60).json()
        given = [result["features"]["mean"] for result in answer["results"]]
        np.testing.assert_allclose(given, extractor.encode(TEXTS, "mean"), atol=1e-5)
    wrong = requests.post(f"{url}/v1/features", json={"texts": []}, timeout=60)
    assert wrong.json()["error"]["type"] == "invalid_request"


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_replica_that_is_killed_costs_a_client_no_request(cluster, url):
    nodes = {node.all_processes["raylet"][0].process.pid for node in cluster.list_all_nodes()}
    ours = [replica for replica, parent in parents_of_replicas().items() if parent in nodes]
    with Client(url) as client, ThreadPoolExecutor(8) as threads:
        requests = [threads.submit(client.encode, TEXTS) for _ in range(400)]
        requests[100].result()
        os.kill(ours[0], signal.SIGKILL)
        assert {request.result().shape for request in requests} == {(len(TEXTS), 8)}

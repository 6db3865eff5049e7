"""bert-features serve as users start it: replicas on Ray Serve, and how it ends."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import requests

TEXTS = ["The jackson is", "it", "", "no jackson ville ?", "a b the it is not this"]
TOKEN = "secret-token"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
OUTPUT = 'name = "mean", level = "sequence", pooling = "mean", layers = [-1]'


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(*arguments, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "bert_features", "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def wait_until(true, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if true():
            return True
        time.sleep(0.2)
    return False


class TestRefusals:
    def refuse(self, *arguments, status, **environment):
        process = start(*arguments, **environment)
        output, errors = process.communicate(timeout=120)
        assert (process.returncode, output, errors.count("\n")) == (status, "", 1), errors
        return errors

    def test_a_port_in_use(self, toy):
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = str(other.getsockname()[1])
            errors = self.refuse("--checkpoint", toy, "--port", port, status=1)
        assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in errors

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--port", "0"], "--port is 0; allowed: 1 to 65535"),
            (["--replicas", "0"], "--replicas is 0"),
            (["--max-texts", "0"], "--max-texts is 0; allowed: a number above 0"),
            (["--max-seconds", "inf"], "--max-seconds is inf; allowed: a number above 0"),
            (["--drain-seconds", "inf"], "--drain-seconds is inf; allowed: a number of 0 or more"),
            (["--token-file", "nowhere"], "cannot read the token file nowhere"),
            (["--output-spec", 'name = "tokens", layers = [-1]'], "reserved for a column"),
        ],
    )
    def test_wrong_settings(self, toy, arguments, message):
        status = 1 if "reserved" in message else 2
        assert message in self.refuse("--checkpoint", toy, *arguments, status=status)

    def test_a_token_that_is_too_short(self, toy):
        errors = self.refuse("--checkpoint", toy, status=2, BERT_FEATURES_TOKEN="short")
        assert "the token has 5 characters" in errors
        assert "short" not in errors.replace("shorter", "")


@pytest.fixture(scope="module")
def service(toy, tmp_path_factory):
    port = free_port()
    file = tmp_path_factory.mktemp("serve") / "token"
    file.write_text(f"{TOKEN}\n")
    process = start(
        *("--checkpoint", toy, "--uncased", "--port", str(port), "--replicas", "2"),
        *("--token-file", str(file), "--output-spec", OUTPUT, "--device", "cpu"),
    )
    address = f"http://127.0.0.1:{port}"
    try:
        assert wait_until(lambda: is_ready(address) or process.poll() is not None, 180)
        assert process.poll() is None, process.communicate()
        yield process, address
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
class TestReplicas:
    """One service; its tests follow each other, and the last one stops it."""

    def ask(self, address, texts):
        return requests.post(
            f"{address}/v1/features",
            json={"texts": texts, "tokens": False},
            headers=HEADERS,
            timeout=60,
        )

    def test_each_text_gets_its_vector(self, service, extractor):
        wanted = dict(zip(TEXTS, extractor.encode(TEXTS, "mean"), strict=True))
        _, address = service
        requested = [TEXTS[i % 5 : i % 5 + 1 + i % 3] for i in range(60)]
        with ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(lambda texts: self.ask(address, texts), requested))
        for texts, answer in zip(requested, answers, strict=True):
            given = [result["features"]["mean"] for result in answer.json()["results"]]
            np.testing.assert_allclose(given, [wanted[text] for text in texts], atol=1e-5)

    def test_the_metrics_are_those_of_all_replicas(self, service):
        _, address = service
        line = 'bert_features_requests_total{path="/v1/features",status="200"} 60.0'

        def metrics():
            text = requests.get(f"{address}/metrics", headers=HEADERS, timeout=10).text
            return text.splitlines()

        assert wait_until(lambda: line in metrics(), 10), metrics()

    def test_another_service_cannot_join_on_the_port(self, service, toy):
        port = service[1].rpartition(":")[2]
        other = start("--checkpoint", toy, "--uncased", "--port", port, "--output-spec", OUTPUT)
        _, errors = other.communicate(timeout=120)
        assert (other.returncode, errors.count("\n")) == (1, 1), errors
        assert f"cannot listen on 127.0.0.1:{port}" in errors

    def test_the_token_is_asked_for(self, service):
        _, address = service
        assert requests.get(f"{address}/v1/info", timeout=10).status_code == 401

    def test_a_replica_that_dies_is_replaced(self, service):
        process, address = service
        first, _ = replicas_of(process)
        os.kill(first, signal.SIGKILL)
        for _ in range(12):
            with contextlib.suppress(requests.ConnectionError):  # that of the replica that died
                self.ask(address, ["it"])
        assert wait_until(lambda: len(replicas_of(process) - {first}) == 2, 120)
        with ThreadPoolExecutor(6) as pool:
            statuses = pool.map(lambda i: self.ask(address, ["it"]).status_code, range(12))
        assert set(statuses) == {200}

    def test_requests_that_are_being_answered_are_answered_first(self, service):
        process, address = service
        statuses, stop = [], threading.Event()

        def ask_on():
            while not stop.is_set():
                try:
                    statuses.append(self.ask(address, TEXTS * 40).status_code)
                except requests.ConnectionError:
                    return  # it listens no more

        threads = [threading.Thread(target=ask_on) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(2)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        stop.set()
        for thread in threads:
            thread.join()
        assert process.returncode == 0, errors
        assert set(statuses) <= {200, 503}
        assert statuses.count(200) > 4
        assert TOKEN not in errors
        assert errors.splitlines()[-1].startswith("stopping; "), errors
        assert not is_ready(address)


def replicas_of(process):
    """The numbers of the processes of replicas, which are children of children of a process."""
    parents, replicas = {}, set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            number = int(folder.name)
            parents[number] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if b"ServeReplica:bert_features" in (folder / "cmdline").read_bytes():
                replicas.add(number)
    return {number for number in replicas if parents.get(parents[number]) == process.pid}


def is_ready(address):
    try:
        return requests.get(f"{address}/readyz", timeout=5).status_code == 200
    except requests.RequestException:
        return False

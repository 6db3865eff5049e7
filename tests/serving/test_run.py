"""bert-features serve as users start it: one process or several, and how it ends."""

import contextlib
import os
import re
import shutil
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

from tests.cli.command_line import run
from tests.corpus.runs import children_of, title_of, workers_of
from tests.markers import of_release

TEXTS = ["The jackson is", "it", "", "no jackson ville ?", "a b the it is not this"]
TOKEN = "secret-token"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
REPLACED = "a process of the service has ended; another one replaces it"
OUTPUT = 'name = "mean", level = "sequence", pooling = "mean", layers = [-1]'


class Program:
    """`bert-features serve` in a process of its own; a context manager."""

    def __init__(self, checkpoint, *arguments, **environment):
        self.port = free_port()
        self.checkpoint = checkpoint
        self.url = f"http://127.0.0.1:{self.port}"
        options = ["--checkpoint", checkpoint, "--uncased", "--output-spec", OUTPUT]
        options += ["--port", str(self.port), "--device", "cpu", *arguments]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bert_features", "serve", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "BERT_FEATURES_TOKEN": TOKEN, **environment},
        )

    def __enter__(self):
        self.lines = []
        while not any("serving " in line for line in self.lines):
            line = self.process.stderr.readline()
            assert line, self.lines
            self.lines.append(line)
        return self

    def __exit__(self, *exception):
        self.process.kill()
        self.process.communicate()

    def get(self, path):
        return requests.get(self.url + path, headers=HEADERS, timeout=60)

    def ask(self, texts, session=requests):
        body = {"texts": texts, "tokens": False}
        return session.post(f"{self.url}/v1/features", json=body, headers=HEADERS, timeout=60)

    def workers(self):
        """The numbers of the processes that hold the model."""
        return set(workers_of(self.process.pid))

    def end(self, number):
        """Its exit status, and the lines of its log from then on."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors.splitlines()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def damage(checkpoint):
    (weights,) = Path(checkpoint).glob("*.data-00000-of-00001")
    os.truncate(weights, 1000)


def wait_until(true, seconds=60):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


class TestRefusals:
    def refuse(self, *arguments, status):
        result = run("serve", *arguments)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (status, "", 1)
        return result.stderr

    @pytest.mark.parametrize("absent", ["orjson", "starlette"])
    def test_a_package_that_is_not_installed(self, absent):
        program = f"import sys; sys.modules[{absent!r}] = None; sys.argv[1:] = ['serve']"
        program += "; from bert_features.__main__ import main; main()"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert "the web server is not installed" in done.stderr
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)

    def test_a_token_that_is_too_short(self, toy, monkeypatch):
        monkeypatch.setenv("BERT_FEATURES_TOKEN", "Sh0rt")
        errors = self.refuse("--checkpoint", toy, status=2)
        assert "the token has 5 characters" in errors
        assert "Sh0rt" not in errors

    def test_a_model_that_cannot_be_loaded(self, toy, tmp_path):
        damage(mine := shutil.copytree(toy, tmp_path / "mine"))
        errors = self.refuse("--checkpoint", mine, "--uncased", "--port", free_port(), status=1)
        assert "is truncated or corrupt" in errors


@pytest.fixture(scope="module")
def service(toy, tmp_path_factory):
    mine = shutil.copytree(toy, tmp_path_factory.mktemp("mine") / "mine")
    with Program(mine, "--replicas", "2") as service:
        yield service


@pytest.mark.slow
class TestProcesses:
    """One service of two processes; its tests follow each other, and the last one stops it."""

    def test_each_text_gets_its_vector(self, service, extractor):
        wanted = dict(zip(TEXTS, extractor.encode(TEXTS, "mean"), strict=True))
        requested = [TEXTS[i % 5 : i % 5 + 1 + i % 3] for i in range(60)]
        with ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(service.ask, requested))
        for texts, answer in zip(requested, answers, strict=True):
            given = [result["features"]["mean"] for result in answer.json()["results"]]
            np.testing.assert_allclose(given, [wanted[text] for text in texts], atol=1e-5)

    def test_the_metrics_are_those_of_all_processes(self, service):
        lines = service.get("/metrics").text.splitlines()
        assert 'bert_features_requests_total{path="/v1/features",status="200"} 60.0' in lines

    def test_another_service_cannot_join_on_the_port(self, service, toy):
        result = run("serve", "--checkpoint", toy, "--uncased", "--port", service.port)
        assert result.exit_code == 1
        assert f"cannot listen on 127.0.0.1:{service.port}" in result.stderr

    def test_the_token_is_asked_for(self, service):
        assert requests.get(f"{service.url}/v1/info", timeout=10).status_code == 401

    def test_a_process_that_dies_is_replaced_as_often_as_it_takes_and_its_counts_stay(
        self, service
    ):
        before = service.workers()
        assert all("forkserver" in title_of(pid) for pid in before)
        damage(service.checkpoint)
        os.kill(min(before), signal.SIGKILL)
        for message in (REPLACED, "failed: .* is truncated or corrupt", REPLACED):
            assert re.search(message, service.process.stderr.readline())
        wait_until(lambda: len(service.workers() - before) == 1)
        assert service.ask(["it"]).status_code == 200
        metrics = service.get("/metrics").text
        (count,) = re.findall(r'requests_total{path="/v1/features",status="200"} (.+)', metrics)
        assert float(count) == 61
        assert "\nbert_features_running_requests 1.0\n" in metrics

    def test_requests_that_are_being_answered_are_answered_first(self, service):
        statuses, running = [], threading.Barrier(5)

        def ask_on():
            with requests.Session() as session:
                running.wait()
                with contextlib.suppress(requests.ConnectionError):  # it listens no more
                    while True:
                        statuses.append(service.ask(TEXTS * 40, session).status_code)

        with ThreadPoolExecutor(4) as pool:
            for _ in range(4):
                pool.submit(ask_on)
            running.wait()
            wait_until(lambda: len(statuses) >= 4)
            # As systemd does, to all processes; also that of which the workers are forks.
            for pid in {*children_of(service.process.pid), *service.workers()}:
                os.kill(pid, signal.SIGTERM)
            status, errors = service.end(signal.SIGTERM)
        assert status == 0
        assert set(statuses) == {200}
        failed = f"{REPLACED}|a process of the service failed"
        own = [line for line in errors if not re.search(failed, line)]
        assert own == ["stopping; a second Ctrl-C does not wait for running requests"]
        assert TOKEN not in "".join(service.lines)


@pytest.mark.slow
@pytest.mark.release
def test_one_replica_is_one_process(toy):
    with Program(toy) as service:
        assert service.ask(["it"]).status_code == 200
        assert not service.workers()
        status, errors = service.end(signal.SIGINT)
    assert (status, len(errors)) == (0, 1)


SUPERVISED = """
import logging, sys, time
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.serve_settings import ServeSettings
from bert_features.machine.quiet_tensorflow import claim_process
from bert_features.machine.shares import Share
from bert_features.serving import replicas, worker

class App:
    is_alive = True

    async def __call__(self, scope, receive, send):
        time.sleep(600)  # the event loop, which no request of the service holds up

def log():
    logging.basicConfig(format="%(message)s", level=logging.INFO)

replicas.STILL_SECONDS, replicas._MORE_SECONDS = 3, 0
worker.load_app = lambda config, settings: App()
if __name__ == "__main__":
    if "forks" in sys.argv:
        claim_process()
    log()
    settings = ServeSettings.of(port=int(sys.argv[1]), replicas=2, drain_seconds=1)
    job = replicas.Job(ExtractConfig(), settings, log)
    replicas.serve_in_processes(job, [Share()] * 2, lambda: logging.info("listening"))
"""


@pytest.fixture(params=["forks"])
def supervised(tmp_path, request):
    """The processes of a service without a model, whose event loops may stand for three seconds.

    On a busy machine one that is well may be given up too, and replaced.
    """
    (tmp_path / "supervised.py").write_text(SUPERVISED)
    port = free_port()
    command = [sys.executable, tmp_path / "supervised.py", str(port), request.param]
    options = {"stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(command, **options) as process:
        read_until(process, "listening")
        process.url = f"http://127.0.0.1:{port}"
        workers = workers_of(process.pid)
        yield process
        with contextlib.suppress(FileNotFoundError):  # it has ended
            workers += workers_of(process.pid)
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.kill()


def read_until(process, text):
    """Reads lines of its log, among them the stack of an event loop, until one has the text."""
    while text not in (line := process.stderr.readline()):
        assert line


def stop_event_loop(process):
    with pytest.raises(requests.Timeout):
        requests.get(process.url, timeout=1)


@pytest.mark.slow
@pytest.mark.release
def test_processes_that_stand_still_are_replaced_and_do_not_hold_up_ctrl_c_for_ever(supervised):
    stop_event_loop(supervised)
    read_until(supervised, REPLACED)
    stop_event_loop(supervised)
    supervised.send_signal(signal.SIGINT)
    read_until(supervised, "stopping")
    assert supervised.wait(60) == 0


@pytest.mark.slow
def test_ctrl_c_of_a_terminal_which_reaches_all_processes_replaces_none(supervised):
    supervised.send_signal(signal.SIGSTOP)  # the others end before it looks
    os.killpg(supervised.pid, signal.SIGINT)
    wait_until(lambda: not workers_of(supervised.pid))
    supervised.send_signal(signal.SIGCONT)
    _, errors = supervised.communicate(timeout=60)
    assert supervised.returncode == 0
    assert "replaces" not in errors


@pytest.mark.slow
@pytest.mark.release
def test_a_service_outlives_the_process_that_its_processes_are_forks_of(supervised):
    before = workers_of(supervised.pid)
    (source,) = (pid for pid in children_of(supervised.pid) if "forkserver" in title_of(pid))
    os.kill(source, signal.SIGKILL)
    os.kill(before[0], signal.SIGKILL)
    read_until(supervised, REPLACED)
    wait_until(lambda: len(set(workers_of(supervised.pid)) - set(before)) == 1)
    supervised.send_signal(signal.SIGINT)
    assert supervised.wait(60) == 0


@pytest.mark.slow
@pytest.mark.parametrize("supervised", [of_release("spawn"), "forks"], indirect=True)
def test_processes_end_with_the_first_one(supervised):
    workers = workers_of(supervised.pid)
    assert len(workers) == 2
    supervised.kill()
    wait_until(lambda: not any(map(title_of, workers)), seconds=30)


@pytest.mark.slow
def test_processes_that_cannot_load_the_model_end_in_one_line(toy, tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ImportError('no such symbol')")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = Program(toy, "--replicas", "2", PYTHONPATH=path).process
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    (line,) = [line for line in errors.splitlines() if not line.startswith("starting")]
    assert line.endswith("the service does not start: ImportError: no such symbol")

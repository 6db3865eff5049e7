"""Servers of embeddings, started on this machine, and requests to them."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarking.processes import BenchmarkError, cpu_seconds, environment

_BENCHMARKS = Path(__file__).resolve().parents[1]
_PEERS = _BENCHMARKS.parent / ".venv-benchmark-serving" / "bin"
_START_SECONDS = 180.0
_TIMEOUT = 120.0
# An answer is of its text if it is nearer to it than this; others are at most 0.99.
_SAME = 0.9999


@dataclass(frozen=True)
class Server:
    """A server of embeddings.

    Attributes:
      name: its name in tables.
      command: makes the command that starts it, from the folder of the model and the port.
      path: of the requests.
      model: the name of the model in requests, from the folder.
    """

    name: str
    command: Callable[[str, int], list[str]]
    path: str
    model: Callable[[str], str]


def _infinity(folder: str, port: int) -> list[str]:
    options = ["--engine", "torch", "--device", "cpu", "--no-bettertransformer", "--log-level"]
    command = [str(_PEERS / "infinity_emb"), "v2", "--model-id", folder, "--port", str(port)]
    return [*command, *options, "error", "--dtype", "float32"]


def _sentence_transformers(folder: str, port: int) -> list[str]:
    return [str(_PEERS / "python"), "-m", "benchmarking.serving_peer", folder, str(port)]


def ours(replicas: int = 1) -> Server:
    """This package's server."""

    def command(folder: str, port: int) -> list[str]:
        del folder
        options = ["--port", str(port), "--replicas", str(replicas)]
        return [sys.executable, "-m", "bert_features", "serve", *options]

    return Server("bert_features", command, "/v1/embeddings", lambda folder: "minilm")


OURS = ours()
SERVERS = (
    OURS,
    Server("infinity", _infinity, "/embeddings", lambda folder: Path(folder).name),
    Server("sentence-transformers, FastAPI", _sentence_transformers, "/v1/embeddings", str),
)


@contextlib.contextmanager
def running(server: Server, folder: str, log: Path) -> Iterator["Target"]:
    """Starts a server; gives where it takes requests.

    Raises:
      BenchmarkError: it does not answer in time.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with log.open("w") as output:
        process = subprocess.Popen(
            server.command(folder, port),
            stdout=output,
            stderr=output,
            env={**environment(), "DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0"},
            start_new_session=True,
        )
    target = Target(port, server.path, server.model(folder), process.pid)
    try:
        _wait(target, process, log)
        yield target
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _wait(target: "Target", process: subprocess.Popen[Any], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if target.connect().ask(["warm up"]).status == 200:
                return
        if process.poll() is not None or time.monotonic() > deadline:
            raise BenchmarkError(f"a server does not start:\n{log.read_text()[-2000:]}")
        time.sleep(0.05)


@dataclass(frozen=True)
class Target:
    """Where a server takes requests.

    Attributes:
      port: its port on this machine.
      path: of the requests.
      model: the name of the model.
      pid: the number of its first process.
      output: an output of this service to ask for at `path`, instead of vectors from `model`.
    """

    port: int
    path: str
    model: str
    pid: int
    output: str | None = None

    def connect(self) -> "Connection":
        """A connection that is kept open."""
        return Connection(self)

    def megabytes(self) -> float:
        """Resident memory of the server's processes, without what they share."""
        return sum(_private_kilobytes(pid) for pid in _family(self.pid)) / 1000

    def cpu_seconds(self) -> float:
        """CPU time of the server's processes so far."""
        return sum(map(cpu_seconds, _family(self.pid)))


@dataclass(frozen=True)
class Reply:
    """The answer to a request: its status, its body and its seconds."""

    status: int
    body: bytes
    seconds: float

    def vectors(self) -> np.ndarray:
        """The vectors, float32 [N, D], in the order of the texts."""
        data = sorted(json.loads(self.body)["data"], key=lambda entry: entry["index"])
        return np.array([entry["embedding"] for entry in data], np.float32)


class Connection:
    """A connection to a server, for one thread."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=_TIMEOUT)

    def ask(self, texts: Sequence[str]) -> Reply:
        """Asks for the vectors of texts."""
        if self._target.output is None:
            values: dict[str, Any] = {"model": self._target.model, "input": list(texts)}
        else:
            values = {"texts": list(texts), "outputs": [self._target.output]}
        body = json.dumps(values).encode()
        began = time.monotonic()
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", self._target.path, body, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        return Reply(answer.status, content, time.monotonic() - began)


@dataclass
class Load:
    """What a load on a server came to.

    Attributes:
      texts: number of texts that were answered.
      seconds: how long it took.
      latencies: seconds of each answer.
      statuses: number of answers by status.
    """

    texts: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Texts in a second."""
        return self.texts / self.seconds

    def percentile(self, share: float) -> float:
        """Milliseconds within which this share of the answers came."""
        return float(np.percentile(self.latencies, share)) * 1000


def put_load(
    target: Target,
    requests: Sequence[Sequence[str]],
    connections: int,
    *,
    check: Callable[[Sequence[str], Reply], None] = lambda texts, reply: None,
    until: float | None = None,
) -> Load:
    """Sends requests over some connections, each of which waits for its answer.

    Args:
      target: the server.
      requests: the texts of each.
      connections: how many are open at the same time.
      check: called with each good answer.
      until: when to end, by `time.monotonic`; requests then begin again. By default after the last.
    """
    load, lock, began = Load(), threading.Lock(), time.monotonic()
    numbers = iter(range(len(requests) if until is None else 1 << 60))
    failures: list[BaseException] = []

    def send() -> None:
        connection = target.connect()
        try:
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None or failures or (until and time.monotonic() > until):
                    return
                texts = requests[number % len(requests)]
                reply = connection.ask(texts)
                if reply.status == 200:
                    check(texts, reply)
                else:
                    time.sleep(0.05)  # a client that is refused waits a little
                _note(load, lock, texts, reply)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=send) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    load.seconds = time.monotonic() - began
    return load


def _note(load: Load, lock: threading.Lock, texts: Sequence[str], reply: Reply) -> None:
    with lock:
        load.statuses[reply.status] = load.statuses.get(reply.status, 0) + 1
        if reply.status == 200:
            load.texts += len(texts)
            load.latencies.append(reply.seconds)


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The cosine of each row of `a` with the same row of `b`."""
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    values: np.ndarray = (a * b).sum(axis=1) / lengths
    return values


def checking(vectors: dict[str, np.ndarray]) -> Callable[[Sequence[str], Reply], None]:
    """A check that each vector of an answer is that of its text.

    Raises:
      BenchmarkError: an answer is of another text.
    """

    def check(texts: Sequence[str], reply: Reply) -> None:
        found, wanted = reply.vectors(), np.stack([vectors[text] for text in texts])
        if len(found) != len(texts) or cosines(found, wanted).min() < _SAME:
            raise BenchmarkError(f"an answer to {list(texts)[:3]} has other vectors")

    return check


def _family(pid: int) -> list[int]:
    """A process and all that came from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def _private_kilobytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0

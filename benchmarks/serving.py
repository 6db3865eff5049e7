"""The service under load: its speed beside other servers, and ten minutes of too many requests.

    .venv/bin/python benchmarks/serving.py speed TEXTS [--texts 2000] [--rounds 3]
    .venv/bin/python benchmarks/serving.py cost TEXTS [--texts 2000] [--rounds 3]
    .venv/bin/python benchmarks/serving.py start TEXTS [--rounds 3]
    .venv/bin/python benchmarks/serving.py overload TEXTS [--minutes 10]

TEXTS is a text file with a text on each line. All runs on this machine and over its loopback; the
requests take part of the cores from the server that answers them, for every server alike.

`speed` starts this service, infinity, and sentence-transformers behind FastAPI (the last two in
.venv-benchmark-serving) with the same weights. Rounds take turns: each server computes all texts in
requests of 64, 8 at a time, and single texts at 1, 8 and 32 at a time. The batch pipeline computes
the same texts in a process of its own. Medians of the rounds are printed, and the least cosine of a
vector with the same one of the batch pipeline.

`cost` compares CPU seconds, as a busy machine changes them less than speeds: of the batch pipeline,
and of all processes of this service, for the same texts in requests of 64 by 16 clients at a time.
The clients' own CPU seconds are not counted. It shows binary answers, as `Client` asks for them,
and JSON, for vectors of texts and of tokens; then the time of single texts at an idle service.

`start` starts the service of the current folder's package with one replica and with two. It prints
the seconds from the command to the first answer, the resident memory of all processes after single
texts at 1 and 8 at a time, and the time of these.

`overload` sends requests of 256 texts over 64 connections to a service with a short queue, and
checks each answer against its text. It prints the statuses, the memory by the minute, and the time
of single requests before and after.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
from benchmarking.environments import make_environments
from benchmarking.processes import BenchmarkError
from benchmarking.servers import (
    OURS,
    SERVERS,
    Load,
    Target,
    checking,
    cosines,
    ours,
    put_load,
    running,
)

_BULK, _BULK_CONNECTIONS = 64, 8
_CONNECTIONS = (1, 8, 32)
_CLIENTS = 16  # of `cost`
_LEVELS = {"sequence": "embedding", "token": "last_layer"}  # the outputs of the service
_SINGLE = 400  # single texts of a round
_OVERLOAD_TEXTS, _OVERLOAD_CONNECTIONS = 256, 64
# Encodes all texts as often as a line comes; prints the seconds and the CPU seconds.
_PIPELINE = """
import json, sys, time
import numpy as np
from bert_features.machine.quiet_tensorflow import claim_process, import_tensorflow
claim_process()
import_tensorflow(many_batches=True)  # as `extract` does
from bert_features import FeatureExtractor
texts, level = json.load(open(sys.argv[1])), sys.argv[3]
pooling = {"pooling": "auto"} if level == "sequence" else {}
extractor = FeatureExtractor.from_checkpoint("minilm", level=level, layers=(-1,), **pooling)
encode = lambda: extractor.encode(texts, ragged=level == "token")
np.save(sys.argv[2], encode() if level == "sequence" else encode().values)
print("ready", flush=True)
for line in sys.stdin:
    began, used = time.monotonic(), time.process_time()
    encode()
    print(time.monotonic() - began, time.process_time() - used, flush=True)
"""


class Pipeline:
    """The batch pipeline in a process of its own; a context manager.

    Attributes:
      vectors: float32 [N, D], those of the texts or of all their tokens.
    """

    def __init__(self, texts: Sequence[str], folder: Path, level: str = "sequence") -> None:
        source, target = folder / "texts.json", folder / "vectors.npy"
        source.write_text(json.dumps(list(texts)))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PIPELINE, str(source), str(target), level],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._read()
        self.vectors: np.ndarray = np.load(target)

    def __enter__(self) -> "Pipeline":
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise BenchmarkError("the batch pipeline has failed")
        return line

    def seconds(self) -> tuple[float, float]:
        """Computes all texts once: the seconds, and the CPU seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        seconds, used = map(float, self._read().split())
        return seconds, used


def _requests(texts: Sequence[str], size: int) -> list[Sequence[str]]:
    return [texts[start : start + size] for start in range(0, len(texts), size)]


def speed(texts: list[str], rounds: int, folder: Path) -> None:
    """Prints the table of speeds."""
    make_environments(["serving"])
    model = folder / "minilm"
    write = [sys.executable, "-m", "benchmarking.models", str(model), "minilm", "pooled"]
    subprocess.run(write, check=True, cwd=Path(__file__).parent)
    singles = _requests(texts[:_SINGLE], 1)
    with Pipeline(texts, folder) as pipeline:
        batch: list[float] = []
        bulk: dict[str, list[float]] = {server.name: [] for server in SERVERS}
        loads: dict[tuple[str, int], list[Load]] = {}
        least: dict[str, float] = {}
        for _ in range(rounds):
            batch.append(len(texts) / pipeline.seconds()[0])
            for server in SERVERS:
                with running(server, str(model), folder / "log") as target:
                    put_load(target, _requests(texts, _BULK), _BULK_CONNECTIONS)  # warms up
                    least[server.name] = _compare(target, texts, pipeline.vectors)
                    done = put_load(target, _requests(texts, _BULK), _BULK_CONNECTIONS)
                    bulk[server.name].append(done.rate)
                    for count in _CONNECTIONS:
                        loads.setdefault((server.name, count), []).append(
                            put_load(target, singles, count)
                        )
    print(f"{len(texts)} texts, medians of {rounds} rounds")
    print(f"{'batch pipeline':32} {median(batch):8.0f} texts/s")
    for server in SERVERS:
        rate = median(bulk[server.name])
        ratio = median(r / b for r, b in zip(bulk[server.name], batch, strict=True))
        print(
            f"{server.name:32} {rate:8.0f} texts/s in requests of {_BULK}, {ratio:.2f} of the "
            f"pipeline; least cosine {least[server.name]:.6f}"
        )
    print(f"\n{'single texts':32} connections   texts/s     p50 ms     p99 ms")
    for (name, count), found in loads.items():
        rate, p50, p99 = (
            median(values)
            for values in (
                [load.rate for load in found],
                [load.percentile(50) for load in found],
                [load.percentile(99) for load in found],
            )
        )
        print(f"{name:32} {count:11} {rate:9.0f} {p50:10.1f} {p99:10.1f}")


def _compare(target: Target, texts: Sequence[str], vectors: np.ndarray) -> float:
    some = texts[:_BULK]
    found = target.connect().ask(some).vectors()
    return float(cosines(found, vectors[: len(some)]).min())


def cost(texts: list[str], rounds: int, folder: Path) -> None:
    """Prints the CPU time of a text in the batch pipeline and in the service."""
    singles = _requests(texts[:_SINGLE], 1)
    used: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        target = stack.enter_context(running(OURS, "", folder / "log"))
        pipelines = {
            level: stack.enter_context(Pipeline(texts, folder, level)) for level in _LEVELS
        }
        ways: dict[str, Callable[[str], float]] = {
            "batch pipeline": lambda level: pipelines[level].seconds()[1],
            "service, binary": lambda level: _cost(target, lambda: _encode(target, texts, level)),
            "service, JSON": lambda level: _cost(target, lambda: _ask_all(target, texts, level)),
        }
        for number in range(rounds + 1):
            for level in _LEVELS:
                vectors = _encode(target, texts[:_BULK], level) if number == 0 else None
                if vectors is not None:
                    least = cosines(vectors, pipelines[level].vectors[: len(vectors)]).min()
                    print(f"level {level}: least cosine with the pipeline's vectors {least:.6f}")
                for way, measure in ways.items():
                    seconds = measure(level)
                    if number:  # the first round warms up
                        used.setdefault((level, way), []).append(seconds)
        loads = [put_load(target, singles, 1) for _ in range(rounds)]
    print(
        f"{len(texts)} texts, requests of {_BULK}, {_CLIENTS} clients, medians of {rounds} rounds"
    )
    for (level, way), values in used.items():
        pipeline = used[level, "batch pipeline"]
        ratio = median(p / v for p, v in zip(pipeline, values, strict=True))
        milliseconds = median(values) / len(texts) * 1000
        print(f"{level:10} {way:18} {milliseconds:6.3f} ms of CPU a text, {ratio:.2f} of the speed")
    p50, p99 = (median(load.percentile(share) for load in loads) for share in (50, 99))
    print(f"single texts by one connection: p50 {p50:.1f} ms, p99 {p99:.1f} ms")


def _cost(target: Target, load: Callable[[], object]) -> float:
    before = target.cpu_seconds()
    load()
    return target.cpu_seconds() - before


def _encode(target: Target, texts: Sequence[str], level: str) -> np.ndarray:
    """Vectors of texts, or of their tokens, by several clients of this package at a time."""
    from bert_features import Client

    requests = _requests(texts, _BULK)

    def encode(number: int) -> list[np.ndarray]:
        with Client(f"http://127.0.0.1:{target.port}") as client:
            found = [
                client.encode(request, _LEVELS[level], ragged=level == "token")
                for request in requests[number::_CLIENTS]
            ]
        return [vectors if level == "sequence" else vectors.values for vectors in found]

    with ThreadPoolExecutor(_CLIENTS) as pool:
        parts = list(pool.map(encode, range(_CLIENTS)))
    return np.concatenate([part for some in parts for part in some])


def _ask_all(target: Target, texts: Sequence[str], level: str) -> None:
    if level == "token":
        target = replace(target, path="/v1/features", output=_LEVELS[level])
    put_load(target, _requests(texts, _BULK), _CLIENTS)


def start(texts: list[str], rounds: int, folder: Path) -> None:
    """Prints what it takes to start the service, and its state afterwards."""
    singles = _requests(texts[:_SINGLE], 1)
    for replicas in (1, 2):
        rows: list[tuple[float, ...]] = []
        for _ in range(rounds):
            began = time.monotonic()
            with running(ours(replicas), "", folder / "log") as target:
                seconds = time.monotonic() - began
                put_load(target, singles[:50], 8)  # warms up
                loads = [put_load(target, singles, count) for count in (1, 8)]
                times = [load.percentile(share) for load in loads for share in (50, 99)]
                rows.append((seconds, target.megabytes(), *times))
        ready, memory, *times = (median(column) for column in zip(*rows, strict=True))
        print(
            f"{replicas} replicas: ready after {ready:.1f} s, {memory:.0f} MB; single texts p50 "
            f"and p99 {times[0]:.1f} and {times[1]:.1f} ms, 8 at a time {times[2]:.1f} and "
            f"{times[3]:.1f} ms",
            flush=True,
        )


def overload(texts: list[str], minutes: float, folder: Path) -> None:
    """Prints what a service does with more requests than it can answer."""
    with Pipeline(texts, folder) as pipeline:
        check = checking(dict(zip(texts, pipeline.vectors, strict=True)))
    requests = [
        [texts[(start * 7 + i) % len(texts)] for i in range(_OVERLOAD_TEXTS)]
        for start in range(len(texts))
    ]
    with running(OURS, "", folder / "log") as target:
        singles = _requests(texts[:200], 1)
        put_load(target, requests[:16], 4, check=check)
        before = put_load(target, singles, 1, check=check)
        print(f"before: p50 {before.percentile(50):.1f} ms, {target.megabytes():.0f} MB")
        statuses: dict[int, int] = {}
        end = time.monotonic() + 60 * minutes
        minute = 0
        while time.monotonic() < end:
            until = min(time.monotonic() + 60, end)
            load = put_load(target, requests, _OVERLOAD_CONNECTIONS, check=check, until=until)
            minute += 1
            for status, count in load.statuses.items():
                statuses[status] = statuses.get(status, 0) + count
            print(
                f"minute {minute}: {load.rate:.0f} texts/s, answers {load.statuses}, p50 "
                f"{load.percentile(50) / 1000:.1f} s, {target.megabytes():.0f} MB",
                flush=True,
            )
        began = time.monotonic()
        after = put_load(target, singles, 1, check=check)
        print(f"after: p50 {after.percentile(50):.1f} ms, first within {after.latencies[0]:.2f} s")
        print(f"all answers by status: {statuses}; {time.monotonic() - began:.0f} s of singles")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["speed", "cost", "start", "overload"])
    parser.add_argument("file", type=Path, metavar="TEXTS")
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=10.0)
    arguments = parser.parse_args()
    lines = arguments.file.read_text(encoding="utf-8").splitlines()
    texts = list(dict.fromkeys(line for line in lines if line.strip()))[: arguments.texts]
    with tempfile.TemporaryDirectory() as folder:
        if arguments.what == "speed":
            speed(texts, arguments.rounds, Path(folder))
        elif arguments.what == "cost":
            cost(texts, arguments.rounds, Path(folder))
        elif arguments.what == "start":
            start(texts, arguments.rounds, Path(folder))
        else:
            overload(texts, arguments.minutes, Path(folder))


if __name__ == "__main__":
    main()

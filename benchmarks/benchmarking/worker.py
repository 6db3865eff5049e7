"""Runs one program in a separate process; commands and answers are JSON lines.

    python -m benchmarking.worker PROGRAM

`benchmarking.processes.Worker` starts it and sends the commands.
"""

import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from benchmarking.corpora import Corpus
from benchmarking.programs import PROGRAMS

_SEED = 20
_VOCABULARY = 30522


class Session:
    """The state between commands.

    Args:
      program: a key of `PROGRAMS`.
    """

    def __init__(self, program: str) -> None:
        self._program = PROGRAMS[program]
        self._job: Any = None
        self._encoders: list[Any] = []
        self._corpora: dict[str, Corpus] = {}
        self._calls: Any = None

    def _corpus(self, path: str) -> Corpus:
        if path not in self._corpora:
            self._corpora[path] = Corpus.read(path)
        return self._corpora[path]

    def load_job(
        self, folder: str, corpus: str, settings: dict[str, Any], words: bool = False
    ) -> dict[str, Any]:
        """Loads the program for the texts of a corpus, or for their words."""
        texts = self._corpus(corpus)
        started = time.perf_counter()
        self._job = self._program.make_job(Path(folder), texts, settings, words=words)
        return {"seconds": time.perf_counter() - started}

    def run_job(self, corpus: str, save: str | None = None) -> dict[str, Any]:
        """Runs the program on a corpus; `save` is a path for the vectors."""
        texts = self._corpus(corpus)
        gc.collect()
        started = time.perf_counter()
        result = self._job.run(texts)
        seconds = time.perf_counter() - started
        # Before `finish`, which belongs to the benchmark.
        peak = _peak_bytes()
        done = self._job.finish(result)
        if save:
            np.save(save, done.vectors)
        return {
            "seconds": seconds,
            "tokens": done.tokens,
            "computed_tokens": done.computed_tokens,
            "traces": done.traces,
            "peak_bytes": peak,
        }

    def load_encoders(self, folder: str, settings: list[dict[str, Any]]) -> dict[str, Any]:
        """Loads the encoder once for each of the settings."""
        self._encoders = [self._program.make_encoder(Path(folder), choice) for choice in settings]
        return {}

    def run_encoder(
        self, choice: int, rows: int, length: int, count: int, save: str | None = None
    ) -> dict[str, Any]:
        """Runs `count` batches of random ids; `save` is a path for the first batch's last layer."""
        batches = _random_batches(rows, length, count)
        gc.collect()
        started = time.perf_counter()
        hidden = self._encoders[choice].run(batches)
        seconds = time.perf_counter() - started
        if save:
            np.save(save, hidden[0])
        return {"seconds": seconds, "tokens": rows * length * count}

    def load_calls(self, folder: str, text: str, save: str) -> dict[str, Any]:
        """Loads the program for one text at a time; `save` is a path for the text's vectors."""
        self._calls = self._program.make_calls(Path(folder), text)
        np.savez(save, **{way: call() for way, call in self._calls.ways.items()})
        return {"ways": list(self._calls.ways)}

    def run_calls(self, way: str, untimed: int, count: int) -> dict[str, Any]:
        """Calls the program `untimed` times, then `count` times; the seconds of each of these."""
        call, clock = self._calls.ways[way], time.perf_counter
        for _ in range(untimed):
            call()
        times = []
        for _ in range(count):
            started = clock()
            call()
            times.append(clock() - started)
        return {"seconds": times}


def _peak_bytes() -> int:
    """The peak resident memory; getrusage would include the parent's memory before exec."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def _random_batches(rows: int, length: int, count: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(_SEED)
    shape = (rows, length)
    return [
        {
            "input_ids": rng.integers(1000, _VOCABULARY, shape),
            "attention_mask": np.ones(shape, np.int64),
            "token_type_ids": np.zeros(shape, np.int64),
        }
        for _ in range(count)
    ]


def main(arguments: Sequence[str]) -> None:
    """Answers commands until standard input ends."""
    # Libraries may print to standard output, so answers go to a copy of its descriptor.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    session = Session(arguments[0])
    for line in sys.stdin:
        command = json.loads(line)
        _answer(answers, getattr(session, command.pop("do")), command)


def _answer(answers: TextIO, method: Callable[..., dict[str, Any]], command: dict) -> None:
    try:
        answer = method(**command)
    except Exception as error:
        traceback.print_exc()
        answer = {"error": f"{type(error).__name__}: {error}"}
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(sys.argv[1:])

"""A process for each program of benchmarks/gpu.py, which runs jobs and sends results.

No program shares libraries or memory with another, and all can be timed in turns.
"""

import contextlib
import multiprocessing
import time
import warnings
from typing import Any

import numpy as np

from benchmarking.gpu_programs import PROGRAMS, Batch, Program, random_batch, random_texts
from bert_features.config.bert_config import BertConfig


class ProgramError(Exception):
    """A program's process failed; the message says why."""


class Worker:
    """A process that runs one program with one model."""

    def __init__(self, name: str, config: BertConfig, device: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        arguments = (name, config.model_dump(), device, theirs)
        self._process = context.Process(target=_work, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        self.facts: dict[str, Any] = self._answer()

    def vectors(self, batch: Batch) -> np.ndarray:
        """The vectors of a batch, float32 [B, H]."""
        return self._ask("vectors", batch)

    def seconds(self, rows: int, length: int, steps: int) -> float:
        """Time of `steps` different batches; the first call for a shape compiles it beforehand."""
        return self._ask("seconds", rows, length, steps)

    def text_vectors(self, lengths: np.ndarray, tokens: int) -> np.ndarray:
        """The vectors of texts of these lengths in their order, float32 [R, H]."""
        return self._ask("text_vectors", lengths, tokens)

    def text_seconds(self, lengths: np.ndarray, tokens: int) -> float:
        """Time of texts of these lengths in the program's own batches, which are made before."""
        return self._ask("text_seconds", lengths, tokens)

    def close(self) -> None:
        """Ends the process."""
        with contextlib.suppress(OSError):
            self._connection.send(None)
        self._process.join(10)
        self._process.kill()

    def _ask(self, *job: Any) -> Any:
        self._connection.send(job)
        return self._answer()

    def _answer(self) -> Any:
        try:
            result, error = self._connection.recv()
        except EOFError:
            raise ProgramError("its process ended") from None
        if error:
            raise ProgramError(error)
        return result


def _work(name: str, settings: dict[str, Any], device: str, connection: Any) -> None:
    """Sends (result, error): first the facts, then the result of each job, until None arrives."""
    warnings.simplefilter("ignore")  # they do not concern the measurement
    config = BertConfig(**settings)
    try:
        program = PROGRAMS[name](config, device)
        connection.send((program.facts(), ""))
    except Exception as error:
        connection.send((None, _describe(error)))
        return
    jobs = _Jobs(program, config)
    while (job := connection.recv()) is not None:
        try:
            connection.send((getattr(jobs, job[0])(*job[1:]), ""))
        except Exception as error:  # such as out of memory; another size may fit
            connection.send((None, _describe(error)))


class _Jobs:
    """The jobs of a worker."""

    def __init__(self, program: Program, config: BertConfig) -> None:
        self._program = program
        self._config = config
        self._warm: set[tuple[int, int]] = set()

    def vectors(self, batch: Batch) -> np.ndarray:
        return self._program.run([batch])

    def seconds(self, rows: int, length: int, steps: int) -> float:
        batches = [
            random_batch(self._config, rows, length, padded=False, seed=i) for i in range(steps)
        ]
        if (rows, length) not in self._warm:
            self._program.run(batches[:2])
            self._warm.add((rows, length))
        started = time.perf_counter()
        self._program.run(batches)
        return time.perf_counter() - started

    def text_vectors(self, lengths: np.ndarray, tokens: int) -> np.ndarray:
        rows, batches = zip(*self._cut(lengths, tokens), strict=True)
        return self._program.run(batches)[np.argsort(np.concatenate(rows))]

    def text_seconds(self, lengths: np.ndarray, tokens: int) -> float:
        batches = [batch for _, batch in self._cut(lengths, tokens)]
        started = time.perf_counter()
        self._program.run(batches)
        return time.perf_counter() - started

    def _cut(self, lengths: np.ndarray, tokens: int) -> Any:
        return self._program.cut(random_texts(self._config, lengths), tokens)


def _describe(error: Exception) -> str:
    message = str(error).strip() or "no message"
    return f"{type(error).__name__}: {message.splitlines()[0]}"

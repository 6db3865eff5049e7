"""The whole job: runs the same texts through every program, compares, then times in turns."""

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarking.corpora import Corpus
from benchmarking.processes import BenchmarkError, Idling, Worker, run_module, say, spread
from benchmarking.programs import PROGRAMS, REFERENCE

# Allowed difference of float32 vectors; other precisions are only described.
_MAX_DIFFERENCE = 1e-4
_TUNING_TEXTS = 1024


class RefusedError(BenchmarkError):
    """A program's outputs differ from the reference; it is not timed."""


def run_jobs(
    corpora: Sequence[Corpus],
    programs: Sequence[str],
    *,
    rounds: int,
    models: Path,
    log: Path,
    words: bool = False,
) -> list[dict[str, Any]]:
    """Times the programs on each corpus; returns the values of one table for each.

    Args:
      corpora: the texts.
      programs: names of programs; those without a class for the job are left out.
      rounds: number of timed runs of each.
      models: folder of the converted models.
      log: file for the output of the programs.
      words: makes a vector of each word, instead of each text.

    Raises:
      BenchmarkError: none of the programs does the job, or none can be timed.
    """
    able = [name for name in programs if (PROGRAMS[name].words if words else PROGRAMS[name].job)]
    if not able:
        what = "words" if words else "texts"
        raise BenchmarkError(f"none of {', '.join(programs)} makes vectors of {what}")
    runtimes = sorted({g for name in able if (g := PROGRAMS[name].graphs)})
    say("writing the model in every form")
    run_module("models", models / "minilm", "minilm", "pooled", *runtimes)
    return [
        _Comparison(corpus, able, models / "minilm", log, words=words).run(rounds)
        for corpus in corpora
    ]


class _Comparison:
    """Compares and times the programs on one corpus."""

    def __init__(
        self, corpus: Corpus, programs: Sequence[str], folder: Path, log: Path, *, words: bool
    ) -> None:
        self._corpus = corpus
        self._words = words
        # The reference goes first, even if it is not timed.
        self._programs = [REFERENCE, *(name for name in programs if name != REFERENCE)]
        self._timed = programs
        self._folder = folder
        self._log = log
        self._rows: dict[str, dict[str, Any]] = {}
        self._refused: dict[str, str] = {}
        self._paths: dict[str, str] = {}
        self._seconds: dict[str, list[float]] = {}

    def run(self, rounds: int) -> dict[str, Any]:
        """Chooses settings, compares, times."""
        with tempfile.TemporaryDirectory() as work, contextlib.ExitStack() as stack:
            self._work = Path(work)
            for name in self._programs:
                texts = PROGRAMS[name].texts_of(self._corpus)
                path = self._work / f"{len(texts.texts)}.json"
                self._paths[name] = str(texts.write(path))
            workers = {}
            for name in self._programs:
                settings = self._choose(name)
                worker = stack.enter_context(Worker(name, self._log))
                if self._warm_up(worker, settings):
                    workers[name] = worker
            idling = Idling(workers.values())
            timed = [workers[name] for name in self._timed if name in workers]
            if not timed:
                raise BenchmarkError(
                    f"no program can be timed, out of: {', '.join(self._timed) or 'none'}"
                )
            for turn in range(rounds):
                say(f"{self._corpus.name}: round {turn + 1} of {rounds}")
                # Each round begins with another program, so that none always follows the same one.
                start = turn % len(timed)
                for worker in timed[start:] + timed[:start]:
                    self._time(worker, idling)
        return self._table(rounds, idling)

    def _choose(self, name: str) -> dict[str, Any]:
        """The fastest settings on some of the texts, found in a process that then ends.

        The trials must not count in the peak memory.
        """
        settings = PROGRAMS[name].first_settings(self._corpus.batch_sizes)
        choices = PROGRAMS[name].all_choices(self._corpus.batch_sizes)
        if not choices:
            return settings
        part = PROGRAMS[name].texts_of(self._corpus).sample(_TUNING_TEXTS)
        path = str(part.write(self._work / "tuning.json"))
        seconds: dict[str, float] = {}
        with Worker(name, self._log) as worker:

            def time_once(settings: dict[str, Any]) -> float:
                key = str(settings)
                if key not in seconds:
                    self._load(worker, path, settings)
                    worker("run_job", corpus=path)  # the first run makes kernels for every shape
                    seconds[key] = worker("run_job", corpus=path)["seconds"]
                return seconds[key]

            # Tries one choice after the other, each with the best values of the earlier ones.
            for choice, values in choices.items():
                settings = min(({**settings, choice: v} for v in values), key=time_once)
        return settings

    def _load(self, worker: Worker, corpus: str, settings: dict[str, Any]) -> dict[str, Any]:
        return worker(
            "load_job",
            folder=str(self._folder),
            corpus=corpus,
            settings=settings,
            words=self._words,
        )

    def _warm_up(self, worker: Worker, settings: dict[str, Any]) -> bool:
        """Loads, runs once and compares; returns whether the program may be timed."""
        name = worker.program
        say(f"{self._corpus.name}: warming up {name} {_describe(settings)}")
        loaded = self._load(worker, self._paths[name], settings)
        done = worker("run_job", corpus=self._paths[name], save=str(self._vectors(name)))
        try:
            compared = self._compare(name)
        except RefusedError as error:
            say(str(error))
            self._refused[name] = str(error)
            return False
        self._rows[name] = {
            "program": name,
            "settings": settings,
            "load_seconds": loaded["seconds"],
            "tokens": done["tokens"],
            "pad_waste": 1.0 - done["tokens"] / done["computed_tokens"],
            "traces_in_warm_up": done["traces"],
            **compared,
        }
        return True

    def _vectors(self, name: str) -> Path:
        return self._work / f"{name}.npy"

    def _compare(self, name: str) -> dict[str, float]:
        """The distance of the vectors from those of the reference.

        Raises:
          RefusedError: float32 vectors differ by more than rounding.
        """
        vectors, expected = np.load(self._vectors(name)), np.load(self._vectors(REFERENCE))
        texts = PROGRAMS[name].texts_of(self._corpus).texts
        if len(texts) < len(self._corpus.texts):  # vectors of texts: programs for words run all
            expected = expected[_indices(self._corpus.texts, texts)]
        if vectors.shape != expected.shape:
            raise RefusedError(
                f"{name}: vectors have shape {vectors.shape}, the reference has {expected.shape}"
            )
        difference = float(np.abs(vectors - expected).max())
        if PROGRAMS[name].precision == "float32" and not difference <= _MAX_DIFFERENCE:
            raise RefusedError(
                f"{name} is refused on {self._corpus.name}: its float32 vectors differ from "
                f"{REFERENCE} by up to {difference:.2g}; allowed: {_MAX_DIFFERENCE:g}"
            )
        cosines = (vectors * expected).sum(1) / (
            np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
        )
        return {
            "max_difference": difference,
            "min_cosine": float(cosines.min()),
            "mean_cosine": float(cosines.mean()),
        }

    def _time(self, worker: Worker, idling: Idling) -> None:
        name = worker.program
        done = idling.run(worker, "run_job", corpus=self._paths[name])
        self._seconds.setdefault(name, []).append(done["seconds"])
        say(f"  {name}: {done['tokens'] / done['seconds']:,.0f} tokens/s")
        self._rows[name] |= {"peak_bytes": done["peak_bytes"], "traces_in_all": done["traces"]}

    def _table(self, rounds: int, idling: Idling) -> dict[str, Any]:
        rows = []
        for name in self._timed:
            if name not in self._seconds:
                continue
            row = self._rows[name]
            rates = [row["tokens"] / seconds for seconds in self._seconds[name]]
            rows.append(
                {
                    **row,
                    "texts": len(PROGRAMS[name].texts_of(self._corpus).texts),
                    "seconds": self._seconds[name],
                    "tokens_per_second": spread(rates),
                }
            )
        return {
            "corpus": self._corpus.name,
            "texts": len(self._corpus.texts),
            "tokens": self._rows[REFERENCE]["tokens"],
            "max_length": self._corpus.max_length,
            "words": self._words,
            "rounds": rounds,
            "rows": rows,
            "refused": self._refused,
            "idle_cores": idling.worst,
        }


def _describe(settings: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in settings.items() if name != "precision")


def _indices(texts: Sequence[str], sample: Sequence[str]) -> list[int]:
    """The index of each sampled text among all texts; equal texts are interchangeable."""
    place = {text: i for i, text in enumerate(texts)}
    return [place[text] for text in sample]

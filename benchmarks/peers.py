r"""Compares the speed of this project with its peers; run it by `scripts/benchmark.sh`.

    bash scripts/benchmark.sh                          # all but words and memory: most of an hour
    bash scripts/benchmark.sh --quick --sections jobs  # few texts, one round: a test of the script

Sections: `jobs` runs the same texts through every program, from text to the mean vector of the last
layer (all-MiniLM-L6-v2, not Google's BERT). `words` does the same for the mean vector of each word,
on ud_ewt alone. `encoder` runs equal shapes with random weights. `targets` checks the figures that
this project promises. `latency` computes one short sentence again and again. `start` times the
parts of a new process up to its first feature. `memory` measures the peak memory for 50,000 and
1,000,000 lines, which takes minutes.

Every program runs in a separate process on all cores, as its documentation recommends, and chooses
its batch size before it is timed. First its vectors are compared with those of transformers in
float32: a float32 program that differs by more than 1e-4 is not timed. The results go to standard
output as Markdown; progress goes to standard error.

fastembed, KerasHub and flair do not share an environment with the others. They run if --programs
names them; that makes .venv-benchmark-fastembed, -kerashub or -flair, which takes minutes once.

    bash scripts/benchmark.sh --sections jobs --corpora ud_ewt --programs \
        "bert_features fp32,fastembed fp32,keras-hub fp32,keras-hub as loaded"
    bash scripts/benchmark.sh --sections words --programs "bert_features fp32,flair fp32"
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarking.corpora import CORPORA, Corpus, read_lines, ud_ewt_words
from benchmarking.encoders import roofline, run_encoders
from benchmarking.environments import make_environments, pinned_versions
from benchmarking.jobs import run_jobs
from benchmarking.latency import measure_latency
from benchmarking.machine import describe_machine
from benchmarking.processes import BenchmarkError
from benchmarking.programs import PROGRAMS, PROJECT
from benchmarking.report import markdown
from benchmarking.start import measure_commands, measure_start
from benchmarking.targets import measure_memory, measure_targets

_TEXTS = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "ud_ewt.txt"
_SECTIONS = ("jobs", "words", "encoder", "targets", "latency", "start", "memory")
_DEFAULT_SECTIONS = tuple(name for name in _SECTIONS if name not in ("words", "memory"))
# Programs in further environments run only if they are asked for.
_DEFAULT_PROGRAMS = tuple(name for name, program in PROGRAMS.items() if not program.environment)
_QUICK_TEXTS = 256
_QUICK_CALLS = 20


def main() -> int:
    """Measures the chosen sections; returns the exit status."""
    arguments = _arguments()
    try:
        if not arguments.texts.is_file():
            raise BenchmarkError(
                f"{arguments.texts} does not exist; pass another file with --texts FILE"
            )
        results = _measure(arguments)
    except BenchmarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    document = markdown(results)
    print(document)
    if arguments.markdown:
        arguments.markdown.write_text(document, encoding="utf-8")
    tables = [*results.get("jobs", []), *results.get("words", [])]
    refused = any(PROJECT in table["refused"] for table in tables)
    return 1 if refused else 0


def _log_file() -> Path:
    """Makes a log file that outlives the run, because errors name it."""
    handle, name = tempfile.mkstemp(prefix="bert_features_benchmark_", suffix=".log")
    os.close(handle)
    return Path(name)


def _keep(results: dict[str, Any], path: Path | None) -> None:
    """Writes the results so far: a section takes long, and the next one may fail."""
    if path:
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--sections",
        type=_names(_SECTIONS),
        default=_DEFAULT_SECTIONS,
        help=f"sections to run, out of {', '.join(_SECTIONS)}; by default all but words and memory",
    )
    add(
        "--corpora",
        type=_names(CORPORA),
        default=tuple(CORPORA),
        help=f"sets of texts, out of {', '.join(CORPORA)}",
    )
    add(
        "--programs",
        type=_names(PROGRAMS),
        default=_DEFAULT_PROGRAMS,
        help=f"programs to run, out of {', '.join(PROGRAMS)}; by default those that need no "
        "further environment",
    )
    add(
        "--rounds",
        type=_positive,
        default=5,
        help="number of timed runs of each program; default 5",
    )
    add(
        "--calls",
        type=_positive,
        default=1000,
        help="number of timed calls of each program in `latency`; default 1000",
    )
    add("--quick", action="store_true", help="one round with few texts, to test the script")
    add("--sample", type=int, metavar="N", help="use N texts of each set, drawn with a seed")
    add(
        "--texts",
        type=Path,
        default=_TEXTS,
        help="file with lines of English text; default ud_ewt.txt",
    )
    add("--models", type=Path, help="folder that keeps the converted models between runs")
    add("--log", type=Path, help="file for the output of the programs; by default a temporary file")
    add("--json", type=Path, metavar="FILE", help="also write the results to this file as JSON")
    add("--markdown", type=Path, metavar="FILE", help="also write the tables to this file")
    return parser.parse_args()


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}; allowed: an integer of at least 1")
    return number


def _names(allowed: Any) -> Any:
    def names(text: str) -> tuple[str, ...]:
        chosen = tuple(name.strip() for name in text.split(","))
        for name in chosen:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"{name!r}; allowed: {', '.join(allowed)}")
        return chosen

    return names


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    lines = read_lines(arguments.texts)
    rounds = 1 if arguments.quick else arguments.rounds
    pins = _environments(arguments.programs)
    results: dict[str, Any] = {"machine": describe_machine() | {"environments": pins}}
    with tempfile.TemporaryDirectory() as work:
        models = arguments.models or Path(work)
        log = arguments.log or _log_file()
        log.write_text("")
        common: dict[str, Any] = {"rounds": rounds, "models": models, "log": log}
        count = arguments.sample or (_QUICK_TEXTS if arguments.quick else None)
        if "jobs" in arguments.sections:
            corpora = [_sampled(CORPORA[name](lines), count) for name in arguments.corpora]
            results["jobs"] = run_jobs(corpora, arguments.programs, **common)
            _keep(results, arguments.json)
        if "words" in arguments.sections:
            corpora = [_sampled(ud_ewt_words(lines), count)]
            results["words"] = run_jobs(corpora, arguments.programs, words=True, **common)
            _keep(results, arguments.json)
        if "encoder" in arguments.sections:
            results["roofline"] = roofline(rounds)
            results["encoder"] = run_encoders(arguments.programs, quick=arguments.quick, **common)
            _keep(results, arguments.json)
        if "targets" in arguments.sections:
            results["targets"] = measure_targets(lines, quick=arguments.quick, **common)
            _keep(results, arguments.json)
        if "latency" in arguments.sections:
            calls = min(arguments.calls, _QUICK_CALLS) if arguments.quick else arguments.calls
            results["latency"] = measure_latency(
                arguments.programs, calls=calls, models=models, log=log
            )
            _keep(results, arguments.json)
        if "start" in arguments.sections:
            results["start"] = measure_start(rounds)
            results["commands"] = measure_commands(rounds)
            _keep(results, arguments.json)
        if "memory" in arguments.sections:
            results["memory"] = measure_memory(lines, quick=arguments.quick, models=models)
            _keep(results, arguments.json)
    return results


def _environments(programs: Sequence[str]) -> dict[str, dict[str, str]]:
    """Makes the further environments of the programs; returns the versions that each pins."""
    names = sorted({e for name in programs if (e := PROGRAMS[name].environment)})
    make_environments(names)
    return {name: pinned_versions(name) for name in names}


def _sampled(corpus: Corpus, count: int | None) -> Corpus:
    if count is None:
        return corpus
    # Fewer long documents have as many tokens.
    return corpus.sample(max(16, count // 16) if corpus.name == "long" else count)


if __name__ == "__main__":
    sys.exit(main())

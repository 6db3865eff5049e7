"""A new process up to its first feature: how long each part takes."""

import json
import tempfile
from statistics import median
from typing import Any

from benchmarking.processes import run_module, say

Times = dict[str, dict[str, float]]  # `seconds` and `cpu_seconds` of each part


def measure_start(rounds: int) -> dict[str, Any]:
    """Starts processes with an empty cache and with a filled one; returns medians of each part."""
    found: dict[str, list[Times]] = {"empty": [], "filled": []}
    for turn in range(rounds + 1):
        say(f"starting up: round {turn} of {rounds}")
        with tempfile.TemporaryDirectory() as cache:
            for results in found.values():
                times = json.loads(run_module("first_feature", BERT_FEATURES_CACHE=cache))
                if turn:  # the first round reads the files from disk
                    results.append(times)
    return {"rounds": rounds} | {state: _medians(results) for state, results in found.items()}


def _medians(results: list[Times]) -> Times:
    return {
        kind: {part: median(result[kind][part] for result in results) for part in parts}
        for kind, parts in results[0].items()
    }

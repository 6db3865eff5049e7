"""Computes one feature in a new process and times the parts on the way.

    python -m benchmarking.first_feature

Prints the seconds of each part, and its CPU seconds, as JSON.
"""

import contextlib
import functools
import importlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Functions that are timed, by part: where their callers find them.
_PARTS = {
    "the tokenizer": [("extraction.preparation", "make_tokenizer")],
    "weights: reading and checking": [("extraction.pipeline", "view_weights")],
    "weights: placing": [("encoder.step", "DeviceStep")],
    "tokenizing the text": [("batches.input_fn", "TextInputFn.lay_out")],
    "tracing the step": [("runtime.tensorflow", "_StepOnCpu._trace")],
    "the first step": [("runtime.tensorflow", "_run")],
}
_TEXT = "After the bank vault, the river bank."


class Stopwatch:
    """The seconds of each part, without those of parts inside it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}
        self._inside = [0.0, 0.0]

    @contextlib.contextmanager
    def timing(self, part: str) -> Iterator[None]:
        """Adds the time of the block to a part."""
        outside, self._inside = self._inside, [0.0, 0.0]
        started = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            took = [time.perf_counter() - started[0], time.process_time() - started[1]]
            for i, times in enumerate((self.seconds, self.cpu_seconds)):
                times[part] = times.get(part, 0.0) + took[i] - self._inside[i]
            self._inside = [outside[i] + took[i] for i in range(2)]

    def watch(self, part: str, module: str, name: str) -> None:
        """Adds the time of every call of a function to a part."""
        owner: Any = importlib.import_module(f"bert_features.{module}")
        *path, name = name.split(".")
        for attribute in path:
            owner = getattr(owner, attribute)
        function = getattr(owner, name)

        @functools.wraps(function)
        def timed(*arguments: Any, **keywords: Any) -> Any:
            with self.timing(part):
                return function(*arguments, **keywords)

        setattr(owner, name, timed)


def main() -> None:
    """Prints the result."""
    watch = Stopwatch()
    with watch.timing("importing bert_features"):
        from bert_features.machine.quiet_tensorflow import import_tensorflow
    with watch.timing("importing TensorFlow"):
        import_tensorflow()
        import tensorflow_text  # noqa: F401
    with watch.timing("importing bert_features"):
        from bert_features import FeatureExtractor
    for part, functions in _PARTS.items():
        for module, name in functions:
            watch.watch(part, module, name)
    with watch.timing("the rest of the extractor"):
        FeatureExtractor.from_checkpoint("minilm")([_TEXT])
    totals = {"seconds": _seconds_since_start(), "cpu_seconds": time.process_time()}
    answer = {"seconds": watch.seconds, "cpu_seconds": watch.cpu_seconds}
    for kind, parts in answer.items():
        parts["the interpreter"] = totals[kind] - sum(parts.values())
        parts["total"] = totals[kind]
    print(json.dumps(answer))


def _seconds_since_start() -> float:
    """The age of this process; to end it is not part of the first feature."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


if __name__ == "__main__":
    main()

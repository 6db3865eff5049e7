"""The other runtime computes the same texts in another process; Keras has one backend in each."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from bert_features.errors import BertFeaturesError, extra_requirement
from bert_features.formats import read_features

# Runtime -> the other one.
OTHERS = {"tensorflow": "jax", "jax": "tensorflow"}
# It computes on the CPU, which every machine has; this process may occupy the TPU. Without these a
# backend would look for the other devices and might wait for them.
_ON_CPU = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "-1"}
# A child that takes longer hangs: on 2 cores BERT-Large takes a minute.
_TIMEOUT_SECONDS = 900.0


def unavailable_reason(runtime: str) -> str:
    """Why a runtime cannot be used, and what to do; empty if it can."""
    if importlib.util.find_spec(runtime) is not None:
        return ""
    # TensorFlow is no extra: it comes with the package.
    requirement = extra_requirement("jax") if runtime == "jax" else "tensorflow tensorflow-text"
    return f"{runtime} is not installed: pip install {requirement}"


class OtherRuntime:
    """`bert-features extract` in a process of its own, on the CPU."""

    def __init__(self, runtime: str, texts: Sequence[str], settings: Mapping[str, Any]) -> None:
        self._runtime = runtime
        self._folder = tempfile.TemporaryDirectory(prefix="bert_features_verify_")
        self._output = Path(self._folder.name, "features.npz")
        self._messages = Path(self._folder.name, "messages.txt")
        self._process = self._start(texts, {**settings, "runtime": runtime, "device": "cpu"})

    def _start(self, texts: Sequence[str], settings: Mapping[str, Any]) -> subprocess.Popen[bytes]:
        folder = Path(self._folder.name)
        # TOML writes strings, numbers, booleans and lists as JSON does.
        lines = [
            f"{name} = {json.dumps(value, ensure_ascii=False)}\n"
            for name, value in settings.items()
            if value is not None
        ]
        (folder / "settings.toml").write_text("".join(lines), encoding="utf-8")
        environment = {**os.environ, **_ON_CPU, "KERAS_BACKEND": self._runtime}
        environment.pop("JAX_COORDINATOR_ADDRESS", None)  # the child stands alone
        rows = [json.dumps({"text": text}) + "\n" for text in texts]
        (folder / "texts.jsonl").write_text("".join(rows), encoding="utf-8")
        command = [sys.executable, "-m", "bert_features", "extract", str(folder / "texts.jsonl")]
        options = ["--output", str(self._output), "--config", str(folder / "settings.toml")]
        with self._messages.open("wb") as messages:
            return subprocess.Popen(
                [*command, *options],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=messages,
            )

    def states(self) -> list[np.ndarray]:
        """Waits for the states of each text, float32 [K, T, H].

        Raises BertFeaturesError if it failed, or was not done within 15 minutes.
        """
        try:
            status = self._process.wait(_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            raise BertFeaturesError(
                f"the {self._runtime} runtime gave no result in {_TIMEOUT_SECONDS:.0f} s; try again"
            ) from None
        if status:
            lines = self._messages.read_text(encoding="utf-8", errors="replace").split("\n")
            last = next((line for line in reversed(lines) if line.strip()), "no message")
            raise BertFeaturesError(
                f"the {self._runtime} runtime failed with status {status}: "
                f"{last.removeprefix('bert-features: ')}"
            )
        return [np.stack(list(r.features.values())) for r in read_features(self._output)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

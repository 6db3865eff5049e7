"""The programs by name: the class that runs each, its precision, its choices of settings."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarking.corpora import Corpus

REFERENCE = "transformers fp32"
BASELINE = "sentence-transformers fp32"
PROJECT = "bert_features fp32"
# For programs that pad every row to the maximum length.
_PADDED_TOKENS = 32768
_HINTS = ("LATENCY", "THROUGHPUT")


@dataclass(frozen=True)
class Program:
    """A program of the benchmark.

    Attributes:
      module: name of the module in `benchmarking.programs`.
      job: name of its class for the whole job, or None.
      encoder: name of its class for equal shapes, or None.
      precision: precision of the arithmetic.
      choices: setting -> values to choose from, besides the batch size.
      chooses_batch_size: whether it may choose one of the corpus's batch sizes.
      sample_tokens: number of padded tokens to run, if it is too slow for all; None runs all.
      graphs: the runtime whose graphs it needs, or None.
      calls: name of its class for one text at a time, or None.
      words: name of its class for vectors of words, or None.
      environment: NAME of its environment .venv-benchmark-NAME; None is .venv-benchmark.
    """

    module: str
    job: str | None
    encoder: str | None
    precision: str
    choices: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    chooses_batch_size: bool = True
    sample_tokens: int | None = None
    graphs: str | None = None
    calls: str | None = None
    words: str | None = None
    environment: str | None = None

    def all_choices(self, batch_sizes: Sequence[int] = ()) -> dict[str, Sequence[Any]]:
        """Setting -> the values to choose from."""
        sized = self.chooses_batch_size and batch_sizes
        return {**self.choices, **({"batch_size": batch_sizes} if sized else {})}

    def first_settings(self, batch_sizes: Sequence[int] = ()) -> dict[str, Any]:
        """The first value of every choice."""
        choices = self.all_choices(batch_sizes)
        return {"precision": self.precision, **{name: c[0] for name, c in choices.items()}}

    def encoder_settings(self) -> list[dict[str, Any]]:
        """All combinations of settings for the encoder."""
        found: list[dict[str, Any]] = [{"precision": self.precision}]
        for name, values in self.choices.items():
            found = [{**settings, name: value} for settings in found for value in values]
        return found

    def texts_of(self, corpus: Corpus) -> Corpus:
        """The texts that the program runs: the corpus, or a sample of it."""
        if self.sample_tokens is None:
            return corpus
        return corpus.sample(max(32, self.sample_tokens // corpus.max_length))

    def make_job(
        self, folder: Path, corpus: Corpus, settings: dict[str, Any], *, words: bool = False
    ) -> Any:
        """Loads the program for the texts of a corpus, or for their words."""
        return self._class(self.words if words else self.job)(folder, corpus, settings)

    def make_encoder(self, folder: Path, settings: dict[str, Any]) -> Any:
        """Loads the program for equal shapes."""
        return self._class(self.encoder)(folder, settings)

    def make_calls(self, folder: Path, text: str) -> Any:
        """Loads the program for one text at a time."""
        return self._class(self.calls)(folder, text)

    def _class(self, name: str | None) -> Any:
        assert name is not None
        return getattr(importlib.import_module(f"benchmarking.programs.{self.module}"), name)


def _project(precision: str) -> Program:
    return Program(
        "project",
        "ProjectJob",
        "ProjectEncoder",
        precision,
        chooses_batch_size=False,
        calls="ProjectCalls" if precision == "float32" else None,
        words="ProjectWords",
    )


def _sentence_transformers(precision: str) -> Program:
    calls = "SentenceTransformersCalls" if precision == "float32" else None
    return Program("pytorch", "SentenceTransformersJob", None, precision, calls=calls)


def _transformers(precision: str) -> Program:
    exact = precision == "float32"
    return Program(
        "pytorch",
        "TransformersJob" if exact else None,
        "TransformersEncoder",
        precision,
        words="TransformersWords" if exact else None,
    )


def _onnx_runtime(precision: str) -> Program:
    return Program(
        "onnx_runtime", "OnnxRuntimeJob", "OnnxRuntimeEncoder", precision, graphs="onnxruntime"
    )


def _open_vino(precision: str) -> Program:
    choices = {"hint": _HINTS}
    return Program(
        "open_vino", "OpenVinoJob", "OpenVinoEncoder", precision, choices, graphs="openvino"
    )


def _keras_hub(job: str) -> Program:
    return Program(
        "keras_hub",
        job,
        None,
        "float32",
        # All rows are padded to one length, so that the default of `predict` serves.
        {"batch_size": (32,), "jit_compile": (False, True)},
        chooses_batch_size=False,
        sample_tokens=_PADDED_TOKENS // 2,
        environment="kerashub",
    )


PROGRAMS = {
    PROJECT: _project("float32"),
    "bert_features bf16": _project("bfloat16"),
    "bert_features int8": replace(_project("int8"), encoder=None),
    BASELINE: _sentence_transformers("float32"),
    "sentence-transformers bf16": _sentence_transformers("bfloat16"),
    REFERENCE: _transformers("float32"),
    "transformers bf16": _transformers("bfloat16"),
    "onnxruntime fp32": _onnx_runtime("float32"),
    "onnxruntime int8": _onnx_runtime("int8"),
    "openvino fp32": _open_vino("float32"),
    "openvino bf16": _open_vino("bfloat16"),
    "official manner": Program(
        "official",
        "OfficialMannerJob",
        None,
        "float32",
        chooses_batch_size=False,
        sample_tokens=_PADDED_TOKENS,
    ),
    # On a CPU its documentation advises against batches.
    "transformers pipeline": Program(
        "pytorch",
        "PipelineJob",
        None,
        "float32",
        {"batch_size": (1, 8, 32)},
        chooses_batch_size=False,
    ),
    "fastembed fp32": Program(
        "fast_embed",
        "FastEmbedJob",
        None,
        "float32",
        graphs="fastembed",
        environment="fastembed",
    ),
    "keras-hub fp32": _keras_hub("KerasHubJob"),
    "keras-hub as loaded": _keras_hub("KerasHubAsLoadedJob"),
    "flair fp32": Program(
        "flair_words", None, None, "float32", words="FlairWords", environment="flair"
    ),
}

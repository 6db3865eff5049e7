"""What features depend on, as files, manifests and caches name it.

Importing this imports no framework.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from bert_features.checkpoints.description import describe_checkpoint, describe_modules
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.features import SMALL_DTYPES
from bert_features.config.output_specs import as_floats
from bert_features.config.settings import LONG_TEXTS, MODEL, OUTPUTS
from bert_features.errors import OutputError
from bert_features.formats.reader import FeatureFile
from bert_features.machine.hardware import processor_models
from bert_features.machine.tpu_installation import tensorflow_version

if TYPE_CHECKING:
    from bert_features.extraction.preparation import Preparation

_SIDES = ("document", "query")
_PACKAGES = ("bert_features", "tensorflow-text", "keras", "numpy")
# What makes the libraries compute in another way.
_VARIABLES = (
    *("TF_ENABLE_ONEDNN_OPTS", "ONEDNN_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE"),
    *("TF_XLA_FLAGS", "XLA_FLAGS", "NVIDIA_TF32_OVERRIDE", "LIBTPU_INIT_ARGS"),
)


def find_versions(runtime: str) -> dict[str, str | None]:
    """The versions on this machine of what computes with a runtime, by package."""
    names = [*_PACKAGES, *(["jax", "jaxlib"] if runtime == "jax" else [])]
    versions: dict[str, str | None] = {name: importlib.metadata.version(name) for name in names}
    return versions | {"tensorflow": tensorflow_version(), "python": platform.python_version()}


# Settings that the vector of a text depends on.
_OF_VECTORS = [
    name
    for name in ExtractConfig.model_fields
    if ExtractConfig.marks(name).group in (MODEL, OUTPUTS, LONG_TEXTS) or name == "prompt"
]

# Facts that a cache leaves out: its batches are uniform.
_NO_SHAPES = ("packed", "batch_cost")


def describe_output(preparation: "Preparation") -> dict[str, Any]:
    """The facts that a reader of a run's output needs to make it again."""
    checkpoint, runtime = preparation.checkpoint, preparation.runtime.name
    sides = preparation.sides
    versions = find_versions(runtime)
    if not preparation.tokenizer.in_graph:
        versions["tokenizers"] = importlib.metadata.version("tokenizers")
    return {
        "config": preparation.config.model_dump(
            mode="json", exclude=set(ExtractConfig.names("reuse"))
        ),
        **describe_checkpoint(checkpoint, preparation.outputs),
        **describe_modules(preparation.outputs),
        "do_lower_case": preparation.tokenizer.do_lower_case,
        **({} if sides is None else {"sides": {s: asdict(vars(sides)[s]) for s in _SIDES}}),
        **preparation.prompts.metadata(),
        "precision": preparation.precision,
        "packing": preparation.packing,
        "runtime": runtime,
        "versions": versions,
    }


def restore_config(file: FeatureFile, named: Mapping[str, str | None]) -> ExtractConfig:
    """The settings that a features file records, with those that the user names in their place.

    `named` has its `checkpoint`, `config_file` and `vocab_file`, or None for each. Raises
    OutputError if the file does not record its settings, ConfigError if one is not known here.
    """
    recorded = file.metadata.get("config")
    if not isinstance(recorded, dict) or "checkpoint" not in file.metadata:
        raise OutputError(
            f"{file.path} does not record how its features were made, so a text cannot be compared "
            "with them; extract them with bert_features, or pass vectors to bert_features.nearest"
        )
    values = {name: recorded[name] for name in _OF_VECTORS if name in recorded}
    values["outputs"] = [
        # Queries are floats.
        {**output, "dtype": "float32", "calibration": None}
        if output["dtype"] in SMALL_DTYPES
        else output
        for output in values.get("outputs", ())
    ]
    if named["checkpoint"] is not None:
        values = {name: value for name, value in values.items() if name not in named}
    return ExtractConfig.of(values | {name: v for name, v in named.items() if v is not None})


def fingerprint(preparation: "Preparation") -> str:
    """All that the features of a text depend on, beside the text: JSON with sorted keys."""
    facts = describe_output(preparation)
    recorded = facts.pop("config")
    # What an output was asked for is resolved in `outputs` below.
    own = (name for name in ExtractConfig.names("features") if name in recorded)
    settings = {name: recorded[name] for name in own if name != "outputs"}
    facts["checkpoint"].pop("name")
    facts.pop("packing")  # it excludes a cache
    tokens = "\n".join(preparation.tokenizer.tokens)
    facts |= {
        "settings": settings,
        "tokens": hashlib.sha256(tokens.encode("utf-8", "surrogatepass")).hexdigest(),
        "outputs": [
            asdict(replace(each, calibration=None, labelled=False))  # which change no float
            for each in as_floats(preparation.outputs)
        ],
        "shapes": {n: v for n, v in asdict(preparation.shapes).items() if n not in _NO_SHAPES},
        "device": preparation.devices.kind,
        "machine": processor_models(),
        "environment": {name: os.environ.get(name) for name in _VARIABLES},
    }
    return json.dumps(facts, sort_keys=True)

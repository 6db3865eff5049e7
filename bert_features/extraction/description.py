"""What features depend on, as files, manifests and caches name it.

Importing this imports no framework.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.features import SMALL_DTYPES, Feature
from bert_features.config.output_specs import as_floats
from bert_features.config.poolings import AUTO_POOLING
from bert_features.machine.hardware import processor_models
from bert_features.machine.tpu_installation import tensorflow_version
from bert_features.text.tokenizer_files import read_tokenizer, rules_of

if TYPE_CHECKING:
    from bert_features.extraction.preparation import Preparation

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


def describe_vocabulary(checkpoint: Checkpoint) -> dict[str, Any]:
    """The SHA-256 of the vocabulary of a checkpoint, and the settings that are not its kind's."""
    path = checkpoint.vocab_file
    if path is None:
        return {"sha256": None}
    rules = rules_of(read_tokenizer(path, checkpoint.config.model_type), checkpoint.do_lower_case)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"sha256": digest} | ({"rules": rules} if rules else {})


# Facts that a cache leaves out: its batches are uniform.
_NO_SHAPES = ("packed", "batch_cost")


def describe_output(preparation: "Preparation") -> dict[str, Any]:
    """The facts that a reader of a run's output needs to make it again."""
    checkpoint, runtime = preparation.checkpoint, preparation.runtime.name
    versions = find_versions(runtime)
    versions.pop("jaxlib", None)  # files and caches never named it
    if not preparation.tokenizer.in_graph:
        versions["tokenizers"] = importlib.metadata.version("tokenizers")
    return {
        "config": preparation.config.model_dump(
            mode="json", exclude=set(ExtractConfig.names("reuse"))
        ),
        "checkpoint": {
            "name": checkpoint.name,
            "family": checkpoint.family,
            "sha256": checkpoint.sha256,
            "bert_config": checkpoint.config.model_dump(mode="json"),
        },
        "vocabulary": describe_vocabulary(checkpoint),
        "do_lower_case": preparation.tokenizer.do_lower_case,
        **preparation.prompts.metadata(),
        "precision": preparation.precision,
        "packing": preparation.packing,
        "runtime": runtime,
        "versions": versions,
    }


# What a vector depends on beside its output and the model: settings, and what others resolve to.
# Versions, devices and precision change its last digits alone.
_SETTINGS = ("max_seq_length", "long_text", "stride")
_RESOLVED = ("vocabulary", "do_lower_case", "prompt", "lower_cased_first")


def describe_vectors(
    feature: Feature, facts: Mapping[str, Any], checkpoint: Checkpoint
) -> dict[str, Any]:
    """What the vectors of a text depend on, by the facts of `describe_output`, and its checkpoint.

    Raises KeyError, TypeError or AttributeError for the metadata of a file that has other facts.
    """
    config, weights = facts["config"], facts["checkpoint"]
    count = weights["bert_config"]["num_hidden_layers"]
    (floats,) = as_floats([feature])
    outputs = {output["name"]: output for output in config["outputs"]}
    output = outputs.get(feature.name) or outputs.get(None) or config
    pooled_by = checkpoint.sentence_transformers if output["pooling"] == AUTO_POOLING else None
    return {
        **{name: config[name] for name in _SETTINGS},
        **weights["bert_config"],
        **{name: facts.get(name) for name in _RESOLVED},
        **{n: v for n, v in floats.to_metadata().items() if n not in ("name", "dtype")},
        # Counted from the last, as a layer has two numbers.
        "layers": tuple(e if isinstance(e, str) or e < 0 else e - count for e in feature.layers),
        "kind": feature.kind,
        "modules": pooled_by.modules if pooled_by else (),
        "checkpoint": weights["sha256"],
    }


def find_differences(before: Any, now: Any, name: str = "") -> list[str]:
    """Each value of two descriptions of a run that differs, as `dtype 'float16', now 'float32'`."""
    if isinstance(before, dict) and isinstance(now, dict):
        found = []
        for key in sorted(before.keys() | now.keys()):
            inner = key if name in ("", "settings") else f"{name}.{key}"
            found += find_differences(before.get(key), now.get(key), inner)
        return found
    if name == "outputs" and before and len(before) == len(now):
        pairs = enumerate(zip(before, now, strict=True))
        return [each for i, pair in pairs for each in find_differences(*pair, f"{name}[{i}]")]
    return [] if before == now else [f"{name} {before!r}, now {now!r}"]


def fingerprint(preparation: "Preparation") -> str:
    """All that the features of a text depend on, beside the text: JSON with sorted keys."""
    facts = describe_output(preparation)
    recorded = facts.pop("config")
    settings = {name: recorded[name] for name in ExtractConfig.names("features")}
    facts["checkpoint"].pop("name")
    facts.pop("packing")  # it excludes a cache
    tokens = "\n".join(preparation.tokenizer.tokens)
    facts |= {
        "settings": _as_cached(settings) | {"outputs": list(map(_as_cached, settings["outputs"]))},
        "tokens": hashlib.sha256(tokens.encode("utf-8", "surrogatepass")).hexdigest(),
        "outputs": [_as_cached(asdict(output)) for output in preparation.outputs],
        "shapes": {n: v for n, v in asdict(preparation.shapes).items() if n not in _NO_SHAPES},
        "device": preparation.devices.kind,
        "machine": processor_models(),
        "environment": {name: os.environ.get(name) for name in _VARIABLES},
    }
    return json.dumps(facts, sort_keys=True)


def _as_cached(values: dict[str, Any]) -> dict[str, Any]:
    """Settings or an output as caches always named them: with floats, and without later fields."""
    usual: dict[str, list[Any]] = {"kind": ["layers"], "top_k": [None], "heads": [None, ()]}
    usual |= {"modules": [()], "spans": [None], "max_units": [0], "min_weight": [None, 0.0]}
    floats = {"dtype": "float32"} if values["dtype"] in SMALL_DTYPES else {}
    left_out = {n for n, v in usual.items() if values.get(n) in v}
    left_out |= {"ranges", "calibration", "labelled"}
    return {n: v for n, v in (values | floats).items() if n not in left_out}

"""The fingerprint: all that the features of a text depend on, beside the text."""

import hashlib
import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bert_features.config.extract_config import ExtractConfig
from bert_features.machine.hardware import processor_models

if TYPE_CHECKING:
    from bert_features.extraction.extractor import FeatureExtractor

# What makes the libraries compute in another way.
_VARIABLES = (
    *("TF_ENABLE_ONEDNN_OPTS", "ONEDNN_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE"),
    *("TF_XLA_FLAGS", "XLA_FLAGS", "NVIDIA_TF32_OVERRIDE", "LIBTPU_INIT_ARGS"),
)


def describe_features(extractor: "FeatureExtractor") -> str:
    """The fingerprint of an extractor: JSON with sorted keys."""
    facts: dict[str, Any] = extractor.metadata()
    settings = facts.pop("config")
    checkpoint = {key: value for key, value in facts.pop("checkpoint").items() if key != "name"}
    tokens = "\n".join(extractor.tokenizer.tokens)
    facts |= {
        "settings": {name: settings[name] for name in ExtractConfig.names("features")},
        "checkpoint": checkpoint,
        "tokens": hashlib.sha256(tokens.encode("utf-8", "surrogatepass")).hexdigest(),
        "outputs": [asdict(output) for output in extractor.outputs],
        "shapes": asdict(extractor.preparation.shapes),
        "device": extractor.devices.kind,
        "machine": processor_models(),
        "environment": {name: os.environ.get(name) for name in _VARIABLES},
    }
    return json.dumps(facts, sort_keys=True)

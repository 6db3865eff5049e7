"""Checks of the environment variables that change what a run does."""

import re
from collections.abc import Mapping

from bert_features.doctor.finding import Finding

_NAMES = (
    "KERAS_BACKEND",
    "TF_USE_LEGACY_KERAS",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "JAX_PLATFORMS",
    "CUDA_VISIBLE_DEVICES",
    "LIBTPU_INIT_ARGS",
    "PYTHONPATH",
)
_PREFIXES = ("BERT_FEATURES_", "TPU_")
_PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")


def check_environment(environment: Mapping[str, str]) -> list[Finding]:
    """Lists the relevant variables that are set; warns of those that do harm."""
    values = {
        name: _PASSWORD.sub("…@", value)
        for name, value in sorted(environment.items())
        if name in _NAMES or name.startswith(_PREFIXES)
    }
    listed = " ".join(f"{name}={value}" for name, value in values.items())
    findings = [
        Finding("environment", "ok", listed or "no relevant variable is set", details=values)
    ]
    if environment.get("TF_USE_LEGACY_KERAS", "0").lower() in ("1", "true"):
        found = "TF_USE_LEGACY_KERAS turns tf.keras into Keras 2; bert_features needs Keras 3"
        findings.append(Finding("environment", "warning", found, "unset TF_USE_LEGACY_KERAS"))
    mirror = environment.get("BERT_FEATURES_MIRROR")
    if mirror and not mirror.startswith(("https://", "http://")):
        found = "BERT_FEATURES_MIRROR is not an http:// or https:// address: downloads fail"
        findings.append(Finding("environment", "warning", found, "unset BERT_FEATURES_MIRROR"))
    return findings

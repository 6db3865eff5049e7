"""The versions and the vocabulary that features depend on, as files and manifests name them."""

import hashlib
import importlib.metadata
import platform

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.machine.tpu_installation import tensorflow_version

_PACKAGES = ("bert_features", "tensorflow-text", "keras", "numpy")


def find_versions(runtime: str) -> dict[str, str | None]:
    """The versions on this machine of what computes with a runtime, by package."""
    names = [*_PACKAGES, *(["jax", "jaxlib"] if runtime == "jax" else [])]
    versions: dict[str, str | None] = {name: importlib.metadata.version(name) for name in names}
    return versions | {"tensorflow": tensorflow_version(), "python": platform.python_version()}


def describe_vocabulary(checkpoint: Checkpoint) -> dict[str, str | None]:
    """The SHA-256 of the vocabulary of a checkpoint, as files and manifests have it."""
    path = checkpoint.vocab_file
    return {"sha256": hashlib.sha256(path.read_bytes()).hexdigest() if path else None}

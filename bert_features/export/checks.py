"""What an export is made of, and every check that can run before the weights are read.

Importing this imports no framework, and `check_before` runs without one.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bert_features.batches.long_text import MIN_SEQ_LENGTH
from bert_features.checkpoints.checkpoint import Checkpoint, named_files
from bert_features.checkpoints.find import find_without_tensorflow
from bert_features.checkpoints.pooling import auto_length, auto_pooling, auto_text_changes
from bert_features.checkpoints.read import has_pooler, warn_of_heads
from bert_features.checkpoints.tokenizer import checked_vocabulary, resolve_vocabulary, tokenizer_of
from bert_features.config.features import OutputSpec
from bert_features.config.kinds import check_kinds
from bert_features.config.layers import Layers
from bert_features.config.output_specs import (
    check_special_ids,
    needs_pooler,
    needs_static_length,
    plan_outputs,
)
from bert_features.config.outputs import OutputConfig, Outputs, check_floats, gather_outputs
from bert_features.errors import CheckpointError, ConfigError, OutputError
from bert_features.files import Role, check_folder
from bert_features.text.json_model import JsonModel
from bert_features.text.tokenizer_files import TokenizerFile, rules_of

if TYPE_CHECKING:
    from bert_features.text.tokenizer import Tokenizer

logger = logging.getLogger("bert_features")

Signature = Literal["text", "ids"]
SAVED_MODEL = "saved_model.pb"
# How its outputs are made.
RECIPE_FILE = "recipe.json"

# What an export of each signature returns besides the wanted outputs.
RESERVED_NAMES: dict[Signature, tuple[str, ...]] = {
    "text": ("input_word_ids", "input_mask"),
    "ids": ("default", "pooled_output", "sequence_output", "encoder_outputs"),
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a user asks an export for, see `export_savedmodel`."""

    signature: Signature
    outputs: Outputs | None = None
    layers: Layers | None = None
    max_seq_length: int | None = None
    do_lower_case: bool | None = None

    def gathered(self) -> tuple[OutputConfig, ...]:
        """The outputs; none for `ids` where none are asked for. Raises ConfigError."""
        if self.signature == "ids" and self.outputs is None and self.layers is None:
            return ()
        return gather_outputs({} if self.layers is None else {"layers": self.layers}, self.outputs)


@dataclass(frozen=True)
class ExportSource:
    """What an export is made of.

    Attributes:
      tokenizer: the tokenizer of the checkpoint; None in an export of ids if it is unknown.
      max_seq_length: the tokens of the longest row made from a text.
    """

    checkpoint: Checkpoint
    outputs: tuple[OutputSpec, ...]
    tokenizer: "Tokenizer | None"
    max_seq_length: int
    pooler: bool

    @property
    def special_ids(self) -> list[int]:
        """The ids of [CLS] and [SEP]; empty if they are unknown."""
        return [] if self.tokenizer is None else self.tokenizer.frame.special_ids


def check_source(checkpoint: Checkpoint, options: Options) -> ExportSource:
    """Puts together what an export of a checkpoint is made of, and checks it.

    Raises:
      CheckpointError: the vocabulary does not fit, or pooler weights are needed and missing.
      ConfigError: an output or the length does not fit the signature, or an export of text would
        have to change the texts.
    """
    specs = _check_outputs(options, checkpoint)
    source = ExportSource(
        checkpoint,
        specs,
        _tokenizer(checkpoint, options.do_lower_case, needed=options.signature == "text"),
        _check_length(options, checkpoint),
        has_pooler(checkpoint),
    )
    lower_cases = source.tokenizer is not None and source.tokenizer.do_lower_case
    if changes := _check_text_changes(options, checkpoint, lower_cases=lower_cases):
        logger.warning(
            "%s: pooling 'auto' %s; the export takes ids, so do that before you tokenise",
            checkpoint.name,
            changes,
        )
    check_special_ids(specs, source.special_ids)
    _check_pooler(source, options.signature)
    warn_of_heads(checkpoint, "export")
    return source


def _check_length(options: Options, checkpoint: Checkpoint) -> int:
    """The tokens of the longest row; ConfigError: they do not fit checkpoint or signature.

    By default the length of sentence-transformers for `text` and pooling `auto`, else the number of
    positions.
    """
    positions, max_seq_length = checkpoint.config.positions, options.max_seq_length
    if max_seq_length is None:
        is_text = options.signature == "text"
        auto = auto_length(checkpoint, options.gathered()) if is_text else None
        return positions if auto is None else auto
    if options.signature != "text":
        raise ConfigError(
            f"max_seq_length is {max_seq_length}, but an export of {options.signature} takes rows "
            "of any length; leave it out, or pass signature='text'"
        )
    if not MIN_SEQ_LENGTH <= max_seq_length <= positions:
        raise ConfigError(
            f"max_seq_length is {max_seq_length}; allowed: {MIN_SEQ_LENGTH} to {positions}, the "
            f"positions of {checkpoint.name}"
        )
    return max_seq_length


def _check_text_changes(options: Options, checkpoint: Checkpoint, *, lower_cases: bool) -> str:
    """What pooling `auto` does to each text, for a message; empty without any changes.

    Raises ConfigError for an export of text, which cannot do it.
    """
    changes = auto_text_changes(
        checkpoint, options.gathered(), tokenizer_lower_cases=lower_cases
    ).describe()
    if changes and options.signature == "text":
        raise ConfigError(
            f"pooling 'auto' of {checkpoint.name} {changes}, which an export of text cannot do; "
            "choose another pooling, or pass signature='ids'"
        )
    return changes


def _check_pooler(source: ExportSource, signature: Signature) -> None:
    name = source.checkpoint.name
    if source.pooler:
        return
    if needs_pooler(source.outputs):
        raise CheckpointError(
            f"{name} has no pooler weights, so pooled output is unavailable; choose another pooling"
        )
    if signature == "ids":
        if not source.outputs:
            raise CheckpointError(
                f"{name} has no pooler weights, so pooled_output and default are unavailable; pass "
                "outputs or layers to export without them"
            )
        logger.warning(
            "%s has no pooler weights: the export has no pooled_output and no default", name
        )


def _tokenizer(
    checkpoint: Checkpoint, do_lower_case: bool | None, *, needed: bool
) -> "Tokenizer | None":
    casing_known = do_lower_case is not None or checkpoint.do_lower_case is not None
    if needed or (checkpoint.vocab_file is not None and casing_known):
        file, lower_cases = resolve_vocabulary(checkpoint, do_lower_case)
        if needed:
            _check_in_graph(checkpoint, file)
        return tokenizer_of(file, lower_cases, checkpoint.config)
    if checkpoint.vocab_file is not None:
        checked_vocabulary(checkpoint)
    logger.warning(
        "%s: the export does not record the %s",
        checkpoint.name,
        "casing" if checkpoint.vocab_file is not None else "vocabulary and casing",
    )
    return None


def _check_in_graph(checkpoint: Checkpoint, file: TokenizerFile) -> None:
    """Refuses an export of text whose tokenizer is no part of a graph."""
    if isinstance(file, JsonModel):
        rules = "".join(f", {rule}" for rule in rules_of(file, checkpoint.do_lower_case))
        raise ConfigError(
            f"{checkpoint.name} has a tokenizer that TensorFlow has no operation for "
            f"({checkpoint.vocab_file}{rules}), so an export cannot take texts; pass "
            "signature='ids'"
        )


def check_target(to: Path, read: Iterable[Role], *, overwrite: bool) -> None:
    """Checks that writing to `to` replaces nothing but a SavedModel, and no file that is read.

    Raises OutputError if it would, or if `to` exists and `overwrite` is false.
    """
    target = check_folder(to, read, overwrite=overwrite)
    if target.exists() and any(target.iterdir()) and not (target / SAVED_MODEL).is_file():
        raise OutputError(f"{to} holds no SavedModel and is not replaced; pass another path")


def check_before(
    to: Path,
    *,
    checkpoint: str,
    config_file: str | Path | None = None,
    vocab_file: str | Path | None = None,
    hidden_act: Any = None,
    overwrite: bool = False,
    **settings: Any,
) -> Checkpoint | str:
    """Refuses an export that needs no framework to be refused, with `export_savedmodel`'s errors.

    The other settings are the fields of `Options`.

    Returns the checkpoint; its name if only TensorFlow can read it.
    """
    check_target(to, named_files(checkpoint, config_file, vocab_file), overwrite=overwrite)
    options = Options(**settings)
    options.gathered()
    source = find_without_tensorflow(
        checkpoint, config_file=config_file, vocab_file=vocab_file, hidden_act=hidden_act
    )
    if source is None:
        return checkpoint
    check_target(to, source.files(), overwrite=overwrite)
    _check_outputs(options, source)
    _check_length(options, source)
    if options.signature == "text":
        file, lower_cases = resolve_vocabulary(source, options.do_lower_case)
        _check_in_graph(source, file)
        _check_text_changes(options, source, lower_cases=lower_cases)
    return source


def _check_outputs(options: Options, checkpoint: Checkpoint) -> tuple[OutputSpec, ...]:
    """The outputs of an export, resolved; none for `ids` where none are asked for.

    Raises ConfigError if one is wrong or does not fit the architecture, or an export of this
    signature cannot have its level, its name or its pooling.
    """
    signature, outputs = options.signature, options.gathered()
    specs = plan_outputs(outputs, checkpoint.config, auto=auto_pooling(checkpoint, outputs))
    check_floats((output.dtype for output in specs), "an export")
    check_kinds(specs, "an export")
    for output in specs:
        if output.level in ("word", "span"):
            raise ConfigError(
                f"output '{output.name}' has level '{output.level}', and a SavedModel cannot find "
                f"{output.level}s; "
                "allowed levels: 'token', 'sequence'"
            )
        if output.name in RESERVED_NAMES[signature]:
            raise ConfigError(
                f"output name '{output.name}' is reserved: every export of {signature} has it "
                "already; choose another"
            )
    if signature == "ids" and (static := needs_static_length(specs)):
        raise ConfigError(
            f"output '{static[0]}' has pooling 'last', which needs rows of a fixed length; choose "
            "another pooling for an export of ids"
        )
    return specs

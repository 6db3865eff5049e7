"""What pooling `auto` means for a checkpoint: pooling, longest row, what is done to texts."""

from collections.abc import Sequence
from dataclasses import dataclass

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.modules.multi_vector import MultiVectorSettings
from bert_features.config.features import OutputSpec
from bert_features.config.kinds import KINDS, needs
from bert_features.config.outputs import OutputConfig, uses_auto_pooling
from bert_features.config.poolings import AUTO_POOLING, AutoPooling
from bert_features.config.settings import shown
from bert_features.errors import CheckpointError, ConfigError

# A pooling that has another name in sentence-transformers than here.
_RENAMED = {"mean_sqrt_len_tokens": "sqrt_len_mean"}


def auto_pooling(checkpoint: Checkpoint, outputs: Sequence[OutputConfig]) -> AutoPooling:
    """What pooling `auto` means: what sentence-transformers' files say, else the mean.

    Without an output of pooling `auto` they are not looked at. Raises CheckpointError if the
    pooling that they ask for is not supported; and as `late_interaction`.
    """
    late = late_interaction(checkpoint, outputs)
    of_tokens = () if late is None else late.modules
    settings = checkpoint.sentence_transformers
    sparse = checkpoint.sparse
    if settings is None or not uses_auto_pooling(outputs):
        return AutoPooling(sparse=sparse, of_tokens=of_tokens)
    follows = any(KINDS[output.kind].follows_checkpoint for output in outputs)
    if follows and (problem := settings.sparse_problem) is not None:
        raise CheckpointError(f"sentence-transformers' sparse vectors are unavailable: {problem}")
    if not any(output.pooling == AUTO_POOLING for output in outputs):
        return AutoPooling(sparse=sparse, of_tokens=of_tokens)
    settings.check_supported()
    poolings = (_RENAMED.get(mode, mode) for mode in settings.pooling_modes)
    return AutoPooling(
        pooling="+".join(poolings),
        normalize=settings.normalize,
        modules=settings.modules,
        dim=settings.dim,
        sparse=sparse,
        of_tokens=of_tokens,
    )


def late_interaction(
    checkpoint: Checkpoint, outputs: Sequence[OutputConfig | OutputSpec]
) -> MultiVectorSettings | None:
    """How the checkpoint makes vectors for late interaction; None if no output needs them.

    Raises ConfigError if it does not make any, and CheckpointError if a setting is not supported.
    """
    if not needs(outputs, "projection"):
        return None
    if checkpoint.multi_vector is None:
        raise ConfigError(
            "kind 'multi_vector' needs a checkpoint for late interaction: a folder of "
            "MultiVectorEncoder or PyLate, a ColBERT of Stanford (HF_ColBERT in its config.json "
            "and linear.weight among its weights), or bge-m3 (colbert_linear.pt beside its "
            f"weights); {checkpoint.name} is none"
        )
    checkpoint.multi_vector.check_supported()
    return checkpoint.multi_vector


def auto_length(checkpoint: Checkpoint, outputs: Sequence[OutputConfig]) -> int | None:
    """The tokens of the longest row with pooling `auto`, where the user sets no length.

    None if no output has it, or sentence-transformers did not write the checkpoint. For late
    interaction the row of a document, or of a query if that is longer.
    """
    positions = checkpoint.config.positions
    if (late := late_interaction(checkpoint, outputs)) is not None:
        return max(late.document_length(positions), late.query_length(positions))
    settings = checkpoint.sentence_transformers
    if settings is None or not uses_auto_pooling(outputs):
        return None
    return settings.row_length(positions)


@dataclass(frozen=True)
class TextChanges:
    """What is done to each text before the tokenizer sees it.

    Attributes:
      prompt: the default prompt, which is put before the text; may be empty.
      lower_cases: whether the text is lower-cased, which strips no accents.
    """

    prompt: str = ""
    lower_cases: bool = False

    def describe(self) -> str:
        """The changes as a predicate, `puts the prompt … before each text`; empty without any."""
        changes = []
        if self.prompt:
            changes.append(f"puts the prompt {shown(self.prompt)} before each text")
        if self.lower_cases:
            changes.append("lower-cases each text but keeps its accents")
        return " and ".join(changes)


def auto_text_changes(
    checkpoint: Checkpoint, outputs: Sequence[OutputConfig], *, tokenizer_lower_cases: bool
) -> TextChanges:
    """What sentence-transformers does to each text; nothing if no output has pooling `auto`.

    A tokenizer that lower-cases by itself needs no lower-casing before it. For late interaction
    texts are documents.
    """
    if (late := late_interaction(checkpoint, outputs)) is not None:
        return TextChanges(late.document.prompt)
    settings = checkpoint.sentence_transformers
    if settings is None or not uses_auto_pooling(outputs):
        return TextChanges()
    lower_cases = settings.do_lower_case and not tokenizer_lower_cases
    return TextChanges(settings.default_prompt, lower_cases)

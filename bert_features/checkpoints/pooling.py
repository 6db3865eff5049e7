"""What pooling `auto` means for a checkpoint: pooling, longest row, what is done to texts."""

from collections.abc import Sequence
from dataclasses import dataclass

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.config.kinds import KINDS
from bert_features.config.outputs import OutputConfig, uses_auto_pooling
from bert_features.config.poolings import AUTO_POOLING, AutoPooling
from bert_features.config.settings import shown

# A pooling that has another name in sentence-transformers than here.
_RENAMED = {"mean_sqrt_len_tokens": "sqrt_len_mean"}


def auto_pooling(checkpoint: Checkpoint, outputs: Sequence[OutputConfig]) -> AutoPooling:
    """What pooling `auto` means: what sentence-transformers' files say, else the mean.

    Without an output of pooling `auto` they are not looked at. Raises CheckpointError if the
    pooling that they ask for is not supported.
    """
    settings = checkpoint.sentence_transformers
    if settings is None or not uses_auto_pooling(outputs):
        return AutoPooling()
    if any(KINDS[output.kind].follows_checkpoint for output in outputs):
        settings.check_sparse()
    if not any(output.pooling == AUTO_POOLING for output in outputs):
        return AutoPooling(sparse=settings.sparse)
    settings.check_supported()
    poolings = (_RENAMED.get(mode, mode) for mode in settings.pooling_modes)
    return AutoPooling(
        "+".join(poolings), settings.normalize, settings.modules, settings.dim, settings.sparse
    )


def auto_length(checkpoint: Checkpoint, outputs: Sequence[OutputConfig]) -> int | None:
    """The tokens of the longest row with pooling `auto`, where the user sets no length.

    None if no output has it, or sentence-transformers did not write the checkpoint.
    """
    settings = checkpoint.sentence_transformers
    if settings is None or not uses_auto_pooling(outputs):
        return None
    return settings.row_length(checkpoint.config.positions)


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

    A tokenizer that lower-cases by itself needs no lower-casing before it.
    """
    settings = checkpoint.sentence_transformers
    if settings is None or not uses_auto_pooling(outputs):
        return TextChanges()
    lower_cases = settings.do_lower_case and not tokenizer_lower_cases
    return TextChanges(settings.default_prompt, lower_cases)

"""What pooling `auto` means for a checkpoint."""

from collections.abc import Sequence

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.config.outputs import AutoPooling, OutputConfig, uses_auto_pooling

# sentence-transformers' names of poolings, and those of this project.
_POOLINGS = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "sqrt_len_mean",
}


def auto_pooling(checkpoint: Checkpoint, outputs: Sequence[OutputConfig]) -> AutoPooling:
    """What pooling `auto` means: what sentence-transformers' files say, else the mean.

    Args:
      checkpoint: what `find_checkpoint` found.
      outputs: the outputs; if none of them has pooling `auto`, those files are not looked at.

    Raises:
      CheckpointError: the pooling that the files ask for is not supported.
    """
    settings = checkpoint.sentence_transformers
    if settings is None or not uses_auto_pooling(outputs):
        return AutoPooling()
    settings.check_supported()
    return AutoPooling("+".join(_POOLINGS[m] for m in settings.pooling_modes), settings.normalize)

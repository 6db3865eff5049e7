"""What a run with pooling `auto` takes from a checkpoint that sentence-transformers wrote."""

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.pooling import auto_length
from bert_features.config.extract_config import ExtractConfig


def as_trained(config: ExtractConfig, checkpoint: Checkpoint) -> ExtractConfig:
    """The settings with the checkpoint's own `max_seq_length`.

    It is taken if an output has pooling `auto` and the user set no length.
    """
    if config.max_seq_length is not None:
        return config
    length = auto_length(checkpoint, config.output_configs())
    return config if length is None else config.model_copy(update={"max_seq_length": length})

"""What a run with pooling `auto` takes from a checkpoint that sentence-transformers wrote."""

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.outputs import uses_auto_pooling


def as_trained(config: ExtractConfig, checkpoint: Checkpoint) -> ExtractConfig:
    """The settings with the checkpoint's own `max_seq_length`.

    It is taken if an output has pooling `auto` and the user set no length.
    """
    settings = checkpoint.sentence_transformers
    if settings is None or config.max_seq_length is not None:
        return config
    if not uses_auto_pooling(config.output_configs()):
        return config
    positions = checkpoint.config.max_position_embeddings
    length = min(settings.max_seq_length or positions, positions)
    return config.model_copy(update={"max_seq_length": length})

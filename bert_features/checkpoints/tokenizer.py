"""The tokenizer of a checkpoint: its vocabulary and its casing."""

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.find import resolve_vocabulary
from bert_features.text.tokenization import FullTokenizer


def make_tokenizer(checkpoint: Checkpoint, do_lower_case: bool | None = None) -> FullTokenizer:
    """Makes the tokenizer of a checkpoint.

    Args:
      checkpoint: what `find_checkpoint` found.
      do_lower_case: whether to lower-case; by default what the checkpoint records.

    Raises:
      CheckpointError: there is no vocabulary, it does not fit the checkpoint, or `do_lower_case`
        contradicts it.
      ConfigError: `do_lower_case` is None and the checkpoint does not record its casing.
    """
    tokens, lower = resolve_vocabulary(checkpoint, do_lower_case)
    return FullTokenizer(tokens, do_lower_case=lower)

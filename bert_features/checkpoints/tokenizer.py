"""The tokenizer of a checkpoint: its vocabulary and its casing."""

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.find import resolve_vocabulary
from bert_features.text.tokenization import FullTokenizer


def make_tokenizer(checkpoint: Checkpoint, do_lower_case: bool | None = None) -> FullTokenizer:
    """Makes the tokenizer of a checkpoint; arguments and errors are `resolve_vocabulary`'s."""
    tokens, lower = resolve_vocabulary(checkpoint, do_lower_case)
    return FullTokenizer(tokens, do_lower_case=lower)

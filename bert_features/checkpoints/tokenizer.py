"""The tokenizer of a checkpoint: its vocabulary and its casing."""

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.find import check_casing, check_vocab
from bert_features.errors import CheckpointError, ConfigError
from bert_features.text.tokenization import FullTokenizer
from bert_features.text.vocabulary import read_vocab


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
    if checkpoint.vocab_file is None:
        raise CheckpointError.naming(
            "there is no vocab.txt beside {path}; pass {vocab_file}", path=checkpoint.weights_path
        )
    tokens = read_vocab(checkpoint.vocab_file)
    check_vocab(tokens, checkpoint.config, checkpoint.vocab_file)
    if do_lower_case is None:
        do_lower_case = checkpoint.do_lower_case
    if do_lower_case is None:
        raise ConfigError.naming(
            "the casing of {name} is unknown; pass {do_lower_case:True} or {do_lower_case:False}",
            name=checkpoint.name,
        )
    check_casing(checkpoint, do_lower_case)
    return FullTokenizer(tokens, do_lower_case=do_lower_case)

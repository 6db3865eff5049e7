"""Losses: what a run's totals say is lost, in words, and what would prevent it."""

import logging

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.extraction.counts import Counts

logger = logging.getLogger("bert_features")

# Above this share of [UNK], text and vocabulary hardly fit. Texts in the vocabulary's own language
# have less than 1 %, rare symbols and emoji among it.
MAX_UNKNOWN_SHARE = 0.05


def warn(counts: Counts, checkpoint: Checkpoint) -> None:
    """Logs a warning for each loss that makes features worthless rather than short.

    Args:
      counts: the totals of a finished run.
      checkpoint: its checkpoint.
    """
    if counts.unknown_share > MAX_UNKNOWN_SHARE:
        logger.warning(
            "%s of %s tokens (%.1f%%) are [UNK]: the vocabulary %s lacks their characters; take a "
            "checkpoint of the language of these texts, or a multilingual one",
            f"{counts.tokens_unknown:,}",
            f"{counts.tokens_kept:,}",
            100 * counts.unknown_share,
            checkpoint.vocab_file or f"of {checkpoint.name}",
        )
    if counts.non_finite_examples:
        logger.warning(
            "the features of %s of %s examples have NaN or infinite values; look for such values, "
            "or very large ones, in the weights of %s, or take dtype float32",
            f"{counts.non_finite_examples:,}",
            f"{counts.examples:,}",
            checkpoint.name,
        )


def truncation_cures(*, max_seq_length: int, positions: int, in_windows: bool) -> dict[str, str]:
    """The settings that would keep what truncation cut off, with their values.

    Args:
      max_seq_length: the limit of the run.
      positions: the checkpoint's maximum.
      in_windows: whether long texts are computed in windows already.
    """
    cures = {} if in_windows else {"long_text": "'window'"}
    if max_seq_length < positions:
        cures["max_seq_length"] = str(positions)
    return cures

"""Losses: what a run's totals say is lost, in words, and what would prevent it."""

import logging

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.description import describe_vocabulary
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.kinds import KINDS
from bert_features.extraction.checks import document_length, packs
from bert_features.extraction.counts import Counts

logger = logging.getLogger("bert_features")

# A weight of 0 times such a value is no 0, in attention and in pooling.
_SPREADS = (
    "; where texts share rows, as on a TPU or GPU or with JAX, one such text spoils its whole row: "
    "packing=False (--no-packing) gives each text its own"
)
# Above this share of [UNK], text and vocabulary hardly fit. Texts in the vocabulary's own language
# have less than 1 %, rare symbols and emoji among it.
MAX_UNKNOWN_SHARE = 0.05
# The scale of 1000 texts leaves out some 0.2 % of the values of others that are like them.
MAX_CLIPPED_SHARE = 0.01


def warn(counts: Counts, config: ExtractConfig, checkpoint: Checkpoint) -> None:
    """Logs a warning for each loss that makes features worthless rather than short."""
    if counts.unknown_share > MAX_UNKNOWN_SHARE:
        rules = describe_vocabulary(checkpoint).get("rules")
        logger.warning(
            "%s: the vocabulary %s lacks their words or characters%s; take a checkpoint of the "
            "language of these texts, or a multilingual one",
            describe_unknown(counts),
            checkpoint.vocab_file or f"of {checkpoint.name}",
            f", or words as its settings leave them ({', '.join(rules)})" if rules else "",
        )
    if counts.values_clipped and counts.values_clipped >= MAX_CLIPPED_SHARE * counts.values_int8:
        logger.warning(
            "%s of %s values of int8 vectors (%.1f%%) lay outside their scale and became its "
            "ends; set scale_from to more texts, or to a features file of texts like these",
            f"{counts.values_clipped:,}",
            f"{counts.values_int8:,}",
            100 * counts.values_clipped / counts.values_int8,
        )
    if counts.terms_cut:
        logger.warning(
            "%s%s terms of %s texts were lighter than the top_k heaviest of their text and were "
            "left out; to keep more, raise top_k; to leave light ones out, set min_weight",
            "at least " if config.long_text == "window" else "",
            f"{counts.terms_cut:,}",
            f"{counts.examples:,}",
        )
    if counts.non_finite_examples:
        logger.warning(
            "the features of %s of %s examples have NaN or infinite values; look for such values, "
            "or very large ones, in the weights of %s, or take dtype float32%s",
            f"{counts.non_finite_examples:,}",
            f"{counts.examples:,}",
            checkpoint.name,
            _SPREADS if counts.non_finite_examples > 1 and packs(config, any_shape=False) else "",
        )


def describe_unknown(counts: Counts) -> str:
    """How many of the tokens are [UNK]; the total of a run also counts [CLS] and [SEP]."""
    return (
        f"{counts.tokens_unknown:,} of {counts.tokens_kept:,} tokens "
        f"({counts.unknown_share:.1%}), without [CLS] and [SEP], are [UNK]"
    )


def warn_without_summary(
    counts: Counts, config: ExtractConfig, checkpoint: Checkpoint, query_length: int | None = None
) -> None:
    """As `warn`; also logs what truncation cut off, which the summary of a run says otherwise.

    For queries of late interaction `query_length` is the tokens of the longest.
    """
    warn(counts, config, checkpoint)
    if counts.spans_lost:
        logger.warning(
            "%s of %s spans have a vector of zeros: they were cut off, or their row has more spans "
            "than tokens; give such a text several times, each time with some of its spans",
            *(f"{count:,}" for count in (counts.spans_lost, counts.spans)),
        )
    if not counts.truncated_examples:
        return
    if query_length is not None:
        logger.warning(
            "%d of %d queries did not fit the %d tokens that the files of %s allow a query, and "
            "lost %d tokens; ask in fewer words",
            *(counts.truncated_examples, counts.examples, query_length, checkpoint.name),
            counts.tokens_lost,
        )
        return
    cures = find_cures(config, checkpoint)
    keywords = " or ".join(f"{name}={value}" for name, value in cures.items())
    logger.warning(
        "%d of %d texts did not fit max_seq_length %d and lost %d tokens%s%s",
        counts.truncated_examples,
        counts.examples,
        document_length(config, checkpoint),
        counts.tokens_lost,
        " of their shorter texts, which may take half of a window"
        if config.long_text == "window"
        else "",
        f"; to keep more, pass {keywords}" if keywords else "",
    )


def find_cures(config: ExtractConfig, checkpoint: Checkpoint) -> dict[str, str]:
    """The settings that would keep what truncation cuts off, with their values as in Python."""
    positions = checkpoint.config.positions
    can_window = all(KINDS[output.kind].can_window for output in config.outputs)
    no_window = config.long_text == "window" or not can_window
    cures = {} if no_window else {"long_text": "'window'"}
    if document_length(config, checkpoint) < positions:
        cures["max_seq_length"] = str(positions)
    return cures

"""Checks of a run that need no framework: what they refuse fails at once.

Importing TensorFlow takes seconds. So everything about the settings, the files and the checkpoint
that can be checked without it is checked here first: local files before a checkpoint that needs
the network.
"""

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path

from bert_features.batches.bucketing import resolve_buckets
from bert_features.batches.long_text import LongText
from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.find import find_without_tensorflow
from bert_features.checkpoints.pooling import auto_length, auto_pooling
from bert_features.checkpoints.tokenizer import resolve_vocabulary
from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import ConfigError
from bert_features.extraction.calibration import calibration_file
from bert_features.extraction.prompts import Prompts
from bert_features.files import is_url
from bert_features.formats import check_dtype, read_features
from bert_features.formats.checks import check_name
from bert_features.readers.contents import likely_format
from bert_features.readers.examples import read_examples, source_of
from bert_features.readers.opening import check_file, is_stream

logger = logging.getLogger("bert_features")

# Kinds of outputs whose texts do not share rows.
_UNPACKED = {"attention", "score"}


def check_input_and_checkpoint(
    config: ExtractConfig, *input_paths: str | Path
) -> Checkpoint | None:
    """Refuses inputs and a checkpoint that do not fit the settings, without TensorFlow.

    Returns the checkpoint, None if only TensorFlow can read it; raises BertFeaturesError.
    """
    check_kinds(config)
    if config.max_seq_length is not None:
        check_lengths(config, config.max_seq_length)
    for input_path in input_paths:
        _check_input(config, input_path)
    _hint_at_format(config, input_paths)
    checkpoint = find_without_tensorflow(config.checkpoint, **config.checkpoint_options())
    if checkpoint is not None:
        check_lengths(config, row_length(config, checkpoint))
        config.plan_outputs(checkpoint.config, auto_pooling(checkpoint, config.output_configs()))
        _, lower_cases = resolve_vocabulary(checkpoint, config.do_lower_case)
        Prompts(config, checkpoint, lower_cases).check_default()
    return checkpoint


def _check_input(config: ExtractConfig, path: str | Path) -> None:
    """Refuses an input that cannot be read, or whose first example cannot.

    An address is left for the run, and so is what can be read only once.
    """
    examples = read_examples(
        path, config.input_settings(), encoding_errors=config.encoding_errors
    )  # reads nothing yet
    if is_url(path):
        return
    check_file(path)
    if not is_stream(path):
        with contextlib.closing(examples):  # type: ignore[type-var]  # it is a generator
            next(examples, None)


def _hint_at_format(config: ExtractConfig, paths: Sequence[str | Path]) -> None:
    """Warns of the first input that is text by its suffix alone and looks like another format."""
    for path in paths:
        source = source_of(path, config.input_settings(), "replace")
        by_suffix = config.input_format == "auto" and source.input_format.format == "text"
        if not by_suffix or is_url(path) or is_stream(path):
            continue
        with contextlib.closing(source.lines()) as lines:  # type: ignore[type-var]
            found = likely_format(lines)
        if found is not None:
            logger.warning(
                "%s is read as text, each line as one example, but looks like %s; if it is, pass "
                "--input-format %s (in Python: input_format)",
                path,
                found,
                found,
            )
            return


def row_length(config: ExtractConfig, checkpoint: Checkpoint) -> int:
    """The maximum tokens of a row.

    It is `max_seq_length`; if the user set none, the length that sentence-transformers recorded for
    pooling `auto`, or else the number of positions. Raises ConfigError if `max_seq_length` is more.
    """
    recorded = auto_length(checkpoint, config.output_configs())
    if config.max_seq_length is None and recorded is not None:
        return recorded
    return config.row_length(checkpoint.config, checkpoint.name)


def check_kinds(config: ExtractConfig) -> None:
    """Refuses what excludes scores and attention, which need a row for each text or piece.

    Raises:
      ConfigError: there are other outputs beside a score, or the settings ask for packing, or for
        attention in windows.
    """
    kinds = {output.kind for output in config.output_configs()}
    if "score" in kinds and len(config.output_configs()) > 1:
        raise ConfigError.naming(
            "{kind} 'score' masks the texts, so no other output can come from the same pass; make "
            "it the only output"
        )
    if "attention" in kinds and config.long_text == "window":
        raise ConfigError.naming(
            "{kind} 'attention' needs the whole text in one row, and {long_text} is 'window'; "
            "choose another, or split long texts into sentences"
        )
    if config.packing and not _UNPACKED.isdisjoint(kinds):
        raise ConfigError.naming(
            "{kind} '{own}' excludes {packing}; leave {packing} out", own=min(_UNPACKED & kinds)
        )


def may_pack(config: ExtractConfig) -> bool:
    """Whether the outputs allow that texts share rows."""
    return not any(output.kind in _UNPACKED for output in config.output_configs())


def packs(config: ExtractConfig, *, any_shape: bool) -> bool:
    """Whether texts share rows, see `config.packing`; `any_shape` as of the runtime."""
    if not may_pack(config):
        return False
    if config.packing is not None:
        return config.packing
    # Where any shape costs nothing, so do rows with little padding (benchmarks/diary.md).
    return not any_shape and config.buckets is None and not config.uniform_batches


def check_lengths(config: ExtractConfig, length: int) -> LongText:
    """What happens to long texts; raises ConfigError if stride or buckets do not fit `length`."""
    resolve_buckets(config.buckets or (), length)
    return LongText(config.long_text, length, config.stride)


def check_outputs(config: ExtractConfig, file_format: str) -> None:
    """Refuses outputs that a features file cannot hold.

    Raises ConfigError for a name or a data type that is not allowed, and for a calibration by a
    file that cannot be read.
    """
    for output in config.output_configs():
        if output.name is not None:
            check_name(output.name, ConfigError)
        check_dtype(file_format, output.dtype or config.dtype, ConfigError)
        if path := calibration_file(output):
            read_features(path)

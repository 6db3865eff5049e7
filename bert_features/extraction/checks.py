"""Checks of a run that need no framework: what they refuse fails at once.

Importing TensorFlow takes seconds. So everything about the settings, the files and the checkpoint
that can be checked without it is checked here first: local files before a checkpoint that needs
the network.
"""

import contextlib
import logging
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from bert_features.batches.bucketing import resolve_buckets
from bert_features.batches.long_text import LongText
from bert_features.batches.words import check_split
from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.find import find_without_tensorflow
from bert_features.checkpoints.pooling import auto_length, auto_pooling, late_interaction
from bert_features.checkpoints.read import check_weights
from bert_features.checkpoints.tokenizer import resolve_vocabulary
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.kinds import KINDS, needs
from bert_features.config.output_specs import has_words, needs_pooler, scale_file
from bert_features.errors import ConfigError
from bert_features.extraction.prompts import Prompts
from bert_features.files import is_url
from bert_features.formats import check_dtype, read_features
from bert_features.formats.checks import check_name
from bert_features.readers import registry
from bert_features.readers.contents import no_examples, sample_lines, warn_of_format
from bert_features.readers.examples import source_of_input
from bert_features.readers.input_example import InputExample
from bert_features.readers.opening import check_file
from bert_features.readers.sentences import SENTENCES, check_installed

logger = logging.getLogger("bert_features")

_FIRST = 100  # examples of each input that are read before TensorFlow is imported


def check_input_and_checkpoint(
    config: ExtractConfig, *input_paths: str | Path
) -> Checkpoint | None:
    """Refuses inputs and a checkpoint that do not fit the settings, without TensorFlow.

    Returns the checkpoint, None if only TensorFlow can read it; raises BertFeaturesError.
    """
    check_kinds(config)
    if config.max_seq_length is not None:
        check_lengths(config, config.max_seq_length)
    if (config.spans or "").startswith(SENTENCES):
        check_installed()
    firsts = [_first_examples(config, path) for path in input_paths]
    if firsts and all(examples == [] for examples in firsts):
        raise no_examples(str(input_paths[0]))
    texts = [each for some in firsts for each in some or () if each.words_a is None][:1]
    hint_at_format(config, input_paths)
    checkpoint = find_without_tensorflow(config.checkpoint, **config.checkpoint_options())
    if checkpoint is not None:
        row_length(config, checkpoint)
        check_lengths(config, document_length(config, checkpoint))
        auto = auto_pooling(checkpoint, config.outputs)
        outputs = config.plan_outputs(checkpoint.config, auto)
        vocabulary, lower_cases = resolve_vocabulary(checkpoint, config.do_lower_case)
        if has_words(outputs):
            check_split(config.word_split, texts, splits_words=vocabulary.splits_words)
        pooler, head = needs_pooler(outputs), needs(outputs, "head")
        if (pooler or head) and checkpoint.kind == "safetensors":  # TensorFlow reads the others
            check_weights(checkpoint, pooler=pooler, head=head)
        Prompts(config, checkpoint, lower_cases).check_default()
    return checkpoint


def _first_examples(config: ExtractConfig, path: str | Path) -> list[InputExample] | None:
    """The first examples of an input; refuses one that cannot be read.

    An address is left for the run, and so is what can be read only once: None.
    """
    source = source_of_input(config, path)
    if is_url(path):
        return None
    check_file(path)
    if not source.can_reopen:
        return None
    examples = registry.read(source)
    with contextlib.closing(examples):  # type: ignore[type-var]  # it is a generator
        return list(islice(examples, _FIRST))


def hint_at_format(config: ExtractConfig, paths: Sequence[str | Path]) -> None:
    """Warns of the first input that is text by its suffix alone and looks like another format.

    An address and what can be read only once are left for their reader.
    """
    for path in paths:
        source = source_of_input(config, path)
        if source.by_suffix and source.input_format.format == "text" and source.can_reopen:
            with contextlib.closing(source.lines()) as lines:  # type: ignore[type-var]
                if warn_of_format(source.name, sample_lines(lines)):
                    return


def row_length(config: ExtractConfig, checkpoint: Checkpoint) -> int:
    """The maximum tokens of a row.

    It is `max_seq_length`; if the user set none, the length that sentence-transformers recorded for
    pooling `auto`, or else the number of positions. Raises ConfigError if `max_seq_length` is more.
    """
    recorded = auto_length(checkpoint, config.outputs)
    if config.max_seq_length is None and recorded is not None:
        return recorded
    return config.row_length(checkpoint.config, checkpoint.name)


def document_length(config: ExtractConfig, checkpoint: Checkpoint) -> int:
    """The tokens at which texts are cut: of a row, or for late interaction of a document's row."""
    late = late_interaction(checkpoint, config.outputs)
    if late is None or config.max_seq_length is not None:
        return row_length(config, checkpoint)
    return late.document_length(checkpoint.config.positions)


def check_kinds(config: ExtractConfig) -> None:
    """Refuses what excludes scores and attention, which need a row for each text or piece.

    Raises:
      ConfigError: there are other outputs beside a score, or the settings ask for packing, or for
        attention in windows.
    """
    kinds = [KINDS[output.kind] for output in config.outputs]
    for kind, output in zip(kinds, config.outputs, strict=True):
        if kind.masks_rows and len(kinds) > 1:
            raise ConfigError(
                f"kind '{kind.name}' masks the texts, so no other output can come from the same "
                "pass; make it the only output"
            )
        if kind.is_single and kinds.count(kind) > 1:
            raise ConfigError(
                f"kind '{kind.name}' is there {kinds.count(kind)} times, and a run may have it "
                "once; leave the others out"
            )
        if not kind.can_window and config.long_text == "window":
            raise ConfigError(
                f"kind '{kind.name}' needs the whole text in one row, and long_text is 'window'; "
                "choose another, or split long texts into sentences"
            )
        if config.packing and not kind.packs(output):
            raise ConfigError(f"kind '{kind.name}' excludes packing; leave packing out")


def may_pack(config: ExtractConfig) -> bool:
    """Whether the outputs allow that texts share rows."""
    return all(KINDS[output.kind].packs(output) for output in config.outputs)


def packs(config: ExtractConfig, *, any_shape: bool) -> bool:
    """Whether texts share rows, see `config.packing`; `any_shape` as of the runtime."""
    if not may_pack(config):
        return False
    if config.packing is not None:
        return config.packing
    if not all(KINDS[output.kind].packs_by_itself for output in config.outputs):
        return False
    # Where any shape costs nothing, so do rows with little padding (benchmarks/diary.md).
    return not any_shape and config.buckets is None and not config.dedupe


def check_lengths(config: ExtractConfig, length: int) -> LongText:
    """What happens to long texts; raises ConfigError if stride or buckets do not fit `length`."""
    resolve_buckets(config.buckets or (), length)
    return LongText(config.long_text, length, config.stride)


def check_outputs(config: ExtractConfig, file_format: str) -> None:
    """Refuses outputs that a features file cannot hold.

    Raises ConfigError for a name or a data type that is not allowed, and for a scale from a
    file that cannot be read.
    """
    for output in config.outputs:
        if output.name is not None:
            check_name(output.name, ConfigError)
        check_dtype(file_format, output.dtype, ConfigError)
        if path := scale_file(output):
            read_features(path)

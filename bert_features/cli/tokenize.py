"""bert-features tokenize: prints the word pieces of each example."""

import io
import json
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bert_features.cli.command import InputArgument, command
from bert_features.cli.settings import takes_settings
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.json_files import read_json_object
from bert_features.config.settings import INPUT
from bert_features.errors import ConfigError
from bert_features.machine.quiet_tensorflow import import_tensorflow
from bert_features.readers.contents import no_examples

if TYPE_CHECKING:
    from bert_features.readers.input_example import InputExample
    from bert_features.text.tokenizer import Tokenizer
    from bert_features.text.tokenizer_files import TokenizerFile

_Format = Literal["tokens", "ids", "jsonl"]

_UNUSED = ("shard", "prompt", "segment", "spans", "label_field", "span_field")
# The settings of `extract` that decide what is read and how it is split into pieces.
_SETTINGS = [
    *("checkpoint", "config_file", "vocab_file", "do_lower_case"),
    *(name for name in ExtractConfig.names(group=INPUT) if name not in _UNUSED),
]
# Bounds of one call of the tokenizer.
_CALL_EXAMPLES = 1024
_CALL_CHARACTERS = 1 << 18


@command("tokenize texts.txt --format ids", "tokenize texts.csv --special-tokens --format jsonl")
@takes_settings(*_SETTINGS)
def tokenize(
    input_path: InputArgument,
    settings: ExtractConfig,
    output_format: Annotated[
        _Format,
        typer.Option(
            "--format",
            help="What to print for each example: its pieces or their ids, separated by blanks, or "
            "a JSON object with both, the type ids and the offsets.",
        ),
    ] = "tokens",
    special_tokens: Annotated[
        bool, typer.Option(help="Print [CLS] and [SEP] where extract puts them.")
    ] = False,
    max_seq_length: Annotated[
        int | None,
        typer.Option(
            min=3,
            help="Cut examples to this many tokens, [CLS] and [SEP] included, as extract does by "
            "default. Without this option nothing is cut.",
        ),
    ] = None,
) -> None:
    """Prints the word pieces of each example, one example on each line.

    Reads what extract reads. --vocab-file without --checkpoint takes a vocabulary by itself.
    CamemBERT's .model looks like XLM-R's: it also needs its config.json, beside it or by
    --config-file.
    """
    from bert_features.extraction.checks import hint_at_format
    from bert_features.readers.examples import read_examples
    from bert_features.readers.opening import check_file

    examples = read_examples(input_path, settings.input_settings())
    check_file(input_path)
    hint_at_format(settings, [input_path])
    tokenizer = _make_tokenizer(settings)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a program may read it, so nothing is escaped
        sys.stdout.reconfigure(errors="strict")
    has_examples = False
    for line in _lines(tokenizer, examples, special_tokens, max_seq_length, output_format):
        has_examples = True
        sys.stdout.write(line + "\n")
    if not has_examples:
        raise no_examples(input_path)


def _make_tokenizer(settings: ExtractConfig) -> "Tokenizer":
    from bert_features.checkpoints.find import find_checkpoint
    from bert_features.checkpoints.tokenizer import resolve_vocabulary, tokenizer_of

    if settings.vocab_file is not None and "checkpoint" not in settings.model_fields_set:
        (file, lower), config = _vocabulary_alone(settings.vocab_file, settings), None
    else:
        checkpoint = find_checkpoint(settings.checkpoint, **settings.checkpoint_options())
        file, lower = resolve_vocabulary(checkpoint, settings.do_lower_case)
        config = checkpoint.config
    import_tensorflow()
    return tokenizer_of(file, lower, config)


def _vocabulary_alone(path: str, settings: ExtractConfig) -> tuple["TokenizerFile", bool]:
    """The file of a tokenizer without a checkpoint, and whether to lower-case."""
    from bert_features.checkpoints.casing import casing_of_vocabulary
    from bert_features.checkpoints.sources.registry import local_file
    from bert_features.text.tokenizer_files import keeps_case, read_tokenizer
    from bert_features.text.tokenizer_settings import read_config

    local, lower = local_file(path), settings.do_lower_case
    config = local_file(settings.config_file or local.with_name("config.json"))
    known = settings.config_file is not None or config.is_file()
    file = read_tokenizer(local, read_json_object(config).get("model_type", "") if known else "")
    if keeps_case(local):
        return file, False
    if lower is None:
        stated = read_config(local.parent).get("do_lower_case")
        lower = stated if isinstance(stated, bool) else casing_of_vocabulary(file.tokens)
    if lower is None:
        raise ConfigError(
            f"the casing of {path} is unknown; pass do_lower_case=True or do_lower_case=False"
        )
    return file, lower


def _lines(
    tokenizer: "Tokenizer",
    examples: Iterable["InputExample"],
    special_tokens: bool,
    max_seq_length: int | None,
    output_format: _Format,
) -> Iterator[str]:
    """What is printed for each example, in their order."""
    import numpy as np

    from bert_features.batches.long_text import LongText, kept_lengths
    from bert_features.batches.pieces import find_pieces, offsets_of

    # A vocabulary of WordPiece may lack special tokens that are not printed.
    frame = tokenizer.frame if special_tokens else tokenizer.known_frame
    between = 1 if frame is None else frame.separators
    type_b = int(frame is None or frame.has_types)
    cls, sep = ([frame.cls_id], [frame.sep_id]) if frame and special_tokens else ([], [])
    for chunk in _chunks(examples):
        pieces = find_pieces(tokenizer, chunk, with_places=output_format == "jsonl")
        texts = [part.tolist() for part in np.split(pieces.ids, np.cumsum(pieces.lengths)[:-1])]
        for i, example in enumerate(chunk):
            kept = int(pieces.lengths[2 * i]), int(pieces.lengths[2 * i + 1])
            if max_seq_length is not None:
                kept = kept_lengths(*kept, max_seq_length, between)
            first = [*cls, *texts[2 * i][: kept[0]], *sep * (between if kept[1] else 1)]
            second = [*texts[2 * i + 1][: kept[1]], *sep * bool(kept[1])]
            ids = first + second
            if output_format == "ids":
                yield " ".join(map(str, ids))
                continue
            tokens = tokenizer.convert_ids_to_tokens(ids)
            if output_format == "tokens":
                yield " ".join(tokens)
                continue
            offsets = offsets_of(pieces, i, kept, LongText())
            values = {
                "id": example.unique_id,
                "tokens": tokens,
                "ids": ids,
                "type_ids": [0] * len(first) + [type_b] * len(second),
                "offsets": offsets if special_tokens else list(filter(None, offsets)),
            }
            yield json.dumps(values)


def _chunks(examples: Iterable["InputExample"]) -> Iterator[list["InputExample"]]:
    """Groups examples for one call of the tokenizer each."""
    chunk: list[InputExample] = []
    characters = 0
    for example in examples:
        chunk.append(example)
        characters += len(example.text_a) + len(example.text_b or "")
        if len(chunk) == _CALL_EXAMPLES or characters >= _CALL_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk

"""bert-features tokenize: prints the word pieces of each line."""

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, Any, Literal

import typer

from bert_features.cli.command import (
    CasingOption,
    CheckpointOption,
    DebugOption,
    EncodingErrorsOption,
    command,
)
from bert_features.errors import ConfigError
from bert_features.machine.quiet_tensorflow import import_tensorflow

_LINES_PER_CALL = 1024


@command
def tokenize(
    input_path: Annotated[
        str,
        typer.Argument(
            metavar="INPUT", help="File with one text per line; - reads standard input."
        ),
    ],
    vocab: Annotated[
        str | None,
        typer.Option(
            "--vocab", "--vocab-file", help="Path of a vocab.txt to use in place of a checkpoint."
        ),
    ] = None,
    checkpoint: CheckpointOption = None,
    do_lower_case: CasingOption = None,
    output_format: Annotated[
        Literal["ids", "tokens"],
        typer.Option("--format", help="Whether to print the pieces or their ids."),
    ] = "tokens",
    encoding_errors: EncodingErrorsOption = None,
    debug: DebugOption = False,
) -> None:
    """Prints the word pieces of each line, separated by spaces.

    Special tokens, such as [CLS] and [SEP], are left out.
    """
    if vocab and checkpoint:
        raise ConfigError("--vocab and --checkpoint are both given; pass only one")
    from bert_features.readers.lines import read_lines
    from bert_features.readers.opening import check_file

    check_file(input_path)
    lines = read_lines(input_path, encoding_errors=encoding_errors or "strict")
    tokenizer = _make_tokenizer(vocab, checkpoint, do_lower_case)
    names = tokenizer.tokens if output_format == "tokens" else range(len(tokenizer.tokens))
    words = [str(name) for name in names]
    for ids in _token_ids(tokenizer, lines):
        sys.stdout.write(" ".join([words[i] for i in ids]) + "\n")


def _make_tokenizer(vocab: str | None, checkpoint: str | None, lower: bool | None) -> Any:
    from bert_features.checkpoints.casing import casing_of_vocabulary
    from bert_features.checkpoints.find import find_checkpoint, local_file, resolve_vocabulary
    from bert_features.text.vocabulary import read_vocab

    if vocab is None:
        tokens, lower = resolve_vocabulary(find_checkpoint(checkpoint or "minilm"), lower)
    else:
        tokens = read_vocab(local_file(vocab))
        if lower is None:
            lower = casing_of_vocabulary(tokens)
        if lower is None:
            raise ConfigError(f"the casing of {vocab} is unknown; pass --uncased or --cased")
    import_tensorflow()
    from bert_features.text.tokenization import FullTokenizer

    return FullTokenizer(tokens, do_lower_case=lower)


def _token_ids(tokenizer: Any, lines: Iterable[str]) -> Iterator[list[int]]:
    import tensorflow as tf

    from bert_features.text.tokenization import utf8

    graph = tf.function(tokenizer, input_signature=[tf.TensorSpec([None], tf.string)])
    lines = iter(lines)
    while chunk := list(islice(lines, _LINES_PER_CALL)):
        yield from graph(tf.constant([utf8(line) for line in chunk])).to_list()

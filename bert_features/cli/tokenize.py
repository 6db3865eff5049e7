"""bert-features tokenize: prints the word pieces of each example."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bert_features.cli.command import DebugOption, InputArgument, command
from bert_features.cli.settings import takes_settings_of
from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import CheckpointError, ConfigError
from bert_features.machine.quiet_tensorflow import import_tensorflow

if TYPE_CHECKING:
    from bert_features.readers.input_example import InputExample
    from bert_features.text.tokenization import FullTokenizer

_Format = Literal["tokens", "ids", "jsonl"]

# The settings of `extract` that decide what is read and how it is split into pieces.
_SETTINGS = (
    "checkpoint",
    "config_file",
    "vocab_file",
    "do_lower_case",
    "input_format",
    "id_field",
    "text_field",
    "text_b_field",
    "tokens_field",
    "conll_column",
    "quoting",
    "max_line_bytes",
    "encoding_errors",
)
# Bounds of one call of the tokenizer.
_CALL_EXAMPLES = 1024
_CALL_CHARACTERS = 1 << 18


@command
@takes_settings_of(*_SETTINGS)
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
            show_default=False,
        ),
    ] = None,
    debug: DebugOption = False,
) -> None:
    """Prints the word pieces of each example, one example on each line.

    Reads what extract reads. --vocab-file without --checkpoint takes a vocabulary by itself.
    """
    from bert_features.readers.examples import read_examples
    from bert_features.readers.opening import check_file

    examples = read_examples(
        input_path, settings.input_settings(), encoding_errors=settings.encoding_errors
    )
    check_file(input_path)
    tokenizer = _make_tokenizer(settings)
    rows = _Rows(tokenizer, special_tokens, max_seq_length, with_offsets=output_format == "jsonl")
    write = _WRITERS[output_format]
    for row in rows.of(examples):
        sys.stdout.write(write(row, tokenizer) + "\n")


def _make_tokenizer(settings: ExtractConfig) -> "FullTokenizer":
    from bert_features.checkpoints.find import find_checkpoint, resolve_vocabulary

    if settings.vocab_file is not None and "checkpoint" not in settings.model_fields_set:
        tokens, lower = _vocabulary_alone(settings.vocab_file, settings.do_lower_case)
    else:
        checkpoint = find_checkpoint(
            settings.checkpoint, config_file=settings.config_file, vocab_file=settings.vocab_file
        )
        tokens, lower = resolve_vocabulary(checkpoint, settings.do_lower_case)
    import_tensorflow()
    from bert_features.text.tokenization import FullTokenizer

    return FullTokenizer(tokens, do_lower_case=lower)


def _vocabulary_alone(path: str, lower: bool | None) -> tuple[list[str], bool]:
    """The pieces of a vocabulary without a checkpoint, and whether to lower-case."""
    from bert_features.checkpoints.casing import casing_of_vocabulary
    from bert_features.checkpoints.find import local_file
    from bert_features.text.vocabulary import read_vocab

    tokens = read_vocab(local_file(path))
    if lower is None:
        lower = casing_of_vocabulary(tokens)
    if lower is None:
        raise ConfigError.naming(
            "the casing of {path} is unknown; pass {do_lower_case:True} or {do_lower_case:False}",
            path=path,
        )
    return tokens, lower


_Offsets = tuple[int, int] | None  # None for [CLS] and [SEP]


@dataclass(frozen=True)
class _Pieces:
    """The pieces of a text, or of a row.

    Attributes:
      ids: vocabulary ids.
      offsets: the place of each piece in its text; nothing unless offsets are wanted.
    """

    ids: list[int]
    offsets: list[_Offsets]

    @classmethod
    def join(cls, parts: Iterable["_Pieces"]) -> "_Pieces":
        joined = cls([], [])
        for part in parts:
            joined.ids.extend(part.ids)
            joined.offsets.extend(part.offsets)
        return joined

    def cut(self, length: int) -> "_Pieces":
        return _Pieces(self.ids[:length], self.offsets[:length])


@dataclass(frozen=True)
class _Row:
    """The pieces of an example; those from `start_b` on belong to its second text."""

    unique_id: int | str
    pieces: _Pieces
    start_b: int


class _Rows:
    """Makes the row of each example.

    Args:
      tokenizer: the tokenizer.
      special_tokens: whether rows have [CLS] and [SEP].
      max_seq_length: the length that rows are cut to; None to cut nothing.
      with_offsets: whether to find the offsets of the pieces, which takes longer.

    Raises:
      CheckpointError: the vocabulary lacks a special token that is wanted.
    """

    def __init__(
        self,
        tokenizer: "FullTokenizer",
        special_tokens: bool,
        max_seq_length: int | None,
        *,
        with_offsets: bool,
    ) -> None:
        from bert_features.text.vocabulary import CLS, SEP

        missing = [token for token in (CLS, SEP) if token not in tokenizer.vocab]
        if special_tokens and missing:
            raise CheckpointError(f"the vocabulary lacks {', '.join(missing)}")
        self._tokenizer = tokenizer
        self._max_seq_length = max_seq_length
        self._with_offsets = with_offsets
        no_place: list[_Offsets] = [None] if with_offsets else []
        self._cls, self._sep = (
            _Pieces([tokenizer.vocab[token]], no_place) if special_tokens else _Pieces([], [])
            for token in (CLS, SEP)
        )

    def of(self, examples: Iterable["InputExample"]) -> Iterator[_Row]:
        """The rows of some examples, in their order."""
        for chunk in _chunks(examples):
            texts = [
                _units(text, words)
                for example in chunk
                for text, words in (
                    (example.text_a, example.words_a),
                    (example.text_b, example.words_b),
                )
            ]
            encoded = iter(self._encode([string for text in texts for string, _ in text]))
            pieces = [
                _Pieces.join(_moved(next(encoded), start) for _, start in text) for text in texts
            ]
            for i, example in enumerate(chunk):
                yield self._join(example.unique_id, pieces[2 * i], pieces[2 * i + 1])

    def _encode(self, strings: list[str]) -> list[_Pieces]:
        if not self._with_offsets:
            return [_Pieces(ids, []) for ids in self._tokenizer.encode_ids(strings)]
        return [_Pieces(e.ids, [*e.offsets]) for e in self._tokenizer.encode(strings)]

    def _join(self, unique_id: int | str, first: _Pieces, second: _Pieces) -> _Row:
        from bert_features.batches.truncation import kept_lengths

        if self._max_seq_length is not None:
            lengths = len(first.ids), len(second.ids)
            kept = kept_lengths(*lengths, self._max_seq_length)
            first, second = first.cut(kept[0]), second.cut(kept[1])
        parts = [self._cls, first, self._sep, second]
        if second.ids:
            parts.append(self._sep)
        start_b = sum(len(part.ids) for part in parts[:3])
        return _Row(unique_id, _Pieces.join(parts), start_b)


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


def _units(text: str | None, words: tuple[str, ...] | None) -> list[tuple[str, int]]:
    """The strings that extract tokenises by themselves, and where each begins in the text."""
    if words is None:
        return [] if text is None else [(text, 0)]
    units, start = [], 0
    for word in words:
        units.append((word, start))
        start += len(word) + 1  # the words of a text are joined by blanks
    return units


def _moved(pieces: _Pieces, start: int) -> _Pieces:
    """The pieces of a unit that begins at `start` of its text."""
    if not start:
        return pieces
    places = [place and (place[0] + start, place[1] + start) for place in pieces.offsets]
    return _Pieces(pieces.ids, places)


def _json(row: _Row, tokenizer: "FullTokenizer") -> str:
    ids = row.pieces.ids
    return json.dumps(
        {
            "id": row.unique_id,
            "tokens": tokenizer.convert_ids_to_tokens(ids),
            "ids": ids,
            "type_ids": [0] * row.start_b + [1] * (len(ids) - row.start_b),
            "offsets": row.pieces.offsets,
        }
    )


_WRITERS: dict[_Format, Callable[[_Row, "FullTokenizer"], str]] = {
    "tokens": lambda row, tokenizer: " ".join(tokenizer.convert_ids_to_tokens(row.pieces.ids)),
    "ids": lambda row, tokenizer: " ".join([str(i) for i in row.pieces.ids]),
    "jsonl": _json,
}

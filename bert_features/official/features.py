"""InputFeatures: the ids, mask and token types of one example, as Python objects.

The streaming pipeline (`batches.input_fn`) does the same with arrays. This is the form for small
inputs and for code written for the official script.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from bert_features.batches.long_text import MIN_SEQ_LENGTH, kept_lengths
from bert_features.errors import ConfigError
from bert_features.readers.input_example import InputExample

if TYPE_CHECKING:
    from bert_features.text.tokenizer import Tokenizer

_EXAMPLES_PER_CALL = 1024  # per call of the tokenizer, a graph that is faster on batches


@dataclass(frozen=True)
class InputFeatures:
    """One example in the form that the encoder takes.

    Attributes:
      unique_id: the id of the example.
      tokens: its pieces with [CLS] and [SEP], without padding.
      input_ids: [seq_length] vocabulary ids, 0 where padded.
      input_mask: [seq_length], 1 for real tokens, 0 for padding.
      input_type_ids: [seq_length], 1 for text_b and its [SEP], else 0.
      tokens_lost: pieces that truncation cut off.
    """

    unique_id: int | str
    tokens: list[str]
    input_ids: list[int]
    input_mask: list[int]
    input_type_ids: list[int]
    tokens_lost: int = 0


def convert_examples_to_features(
    examples: Iterable[InputExample], seq_length: int, tokenizer: "Tokenizer"
) -> list[InputFeatures]:
    """Tokenises, truncates and pads examples as the official script does.

        [CLS] is this jack ##son ##ville ? [SEP] no it is not . [SEP]
          0   0   0    0     0      0    0   0    1  1  1  1  1   1

    Args:
      examples: the inputs.
      seq_length: the length of every row; longer examples are truncated.
      tokenizer: the tokenizer of the checkpoint.

    Raises:
      ConfigError: `seq_length` leaves no room for a token between [CLS] and the [SEP]s.
    """
    if seq_length < MIN_SEQ_LENGTH:
        raise ConfigError(
            f"seq_length is {seq_length}; at least {MIN_SEQ_LENGTH} are needed: "
            "[CLS], a token, [SEP]"
        )
    examples = iter(examples)
    features: list[InputFeatures] = []
    while chunk := list(islice(examples, _EXAMPLES_PER_CALL)):
        features += _convert_chunk(chunk, seq_length, tokenizer)
    return features


def _convert_chunk(
    chunk: Sequence[InputExample], seq_length: int, tokenizer: "Tokenizer"
) -> Iterator[InputFeatures]:
    first = tokenizer.encode(example.text_a for example in chunk)
    second = tokenizer.encode(example.text_b or "" for example in chunk)
    frame = tokenizer.frame
    sep = [frame.sep_id]
    for example, a, b in zip(chunk, first, second, strict=True):
        kept_a, kept_b = kept_lengths(len(a.ids), len(b.ids), seq_length, frame.separators)
        ids = [frame.cls_id, *a.ids[:kept_a], *sep]
        type_ids = [0] * len(ids)
        if kept_b:  # as in the official script, a text_b without a piece counts as none
            ids += [*sep * (frame.separators - 1), *b.ids[:kept_b], *sep]
            type_ids += [0] * (frame.separators - 1) + [int(frame.has_types)] * (kept_b + 1)
        missing = seq_length - len(ids)
        yield InputFeatures(
            unique_id=example.unique_id,
            tokens=tokenizer.convert_ids_to_tokens(ids),
            input_ids=ids + [frame.pad_id] * missing,
            input_mask=[1] * len(ids) + [0] * missing,
            input_type_ids=type_ids + [0] * missing,
            tokens_lost=len(a.ids) + len(b.ids) - kept_a - kept_b,
        )

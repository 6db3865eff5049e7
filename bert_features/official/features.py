"""InputFeatures: the ids, mask and token types of one example, as Python objects.

The streaming pipeline (`batches.input_fn`) does the same with arrays. This is the form for small
inputs and for code written for the official script.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bert_features.batches.long_text import MIN_SEQ_LENGTH, kept_lengths
from bert_features.errors import ConfigError
from bert_features.official.tokenization import convert_to_unicode
from bert_features.official.user_inputs import eagerly
from bert_features.readers.input_example import InputExample
from bert_features.text.frame import Frame
from bert_features.text.tokenizer import Tokenizer
from bert_features.text.vocabulary import CLS, SEP


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

    unique_id: Any
    tokens: list[str]
    input_ids: list[int]
    input_mask: list[int]
    input_type_ids: list[int]
    tokens_lost: int = 0


def convert_examples_to_features(
    examples: Iterable[InputExample], seq_length: int, tokenizer: Any
) -> list[InputFeatures]:
    """Tokenises, truncates and pads examples as the official script does.

        [CLS] is this jack ##son ##ville ? [SEP] no it is not . [SEP]
          0   0   0    0     0      0    0   0    1  1  1  1  1   1

    Args:
      examples: the inputs.
      seq_length: the length of every row; longer examples are truncated.
      tokenizer: the tokenizer of the checkpoint, or an object of your own with its `tokenize` and
        `convert_tokens_to_ids`.

    Raises:
      ConfigError: `seq_length` leaves no room for a token between [CLS] and the [SEP]s.
    """
    if seq_length < MIN_SEQ_LENGTH:
        raise ConfigError(
            f"seq_length is {seq_length}; at least {MIN_SEQ_LENGTH} are needed: "
            "[CLS], a token, [SEP]"
        )
    frame, (cls, sep) = Frame(-1, -1, pad_id=0, unknown_id=-1), (CLS, SEP)  # names, not ids
    if isinstance(tokenizer, Tokenizer):
        frame = tokenizer.frame
        cls, sep = tokenizer.convert_ids_to_tokens(frame.special_ids)
    examples, features = list(examples), []
    # As in the official script, an empty text_b is not tokenized.
    texts = [text for e in examples for text in (e.text_a, *([e.text_b] if e.text_b else []))]
    tokenized = iter(_tokenized(tokenizer, texts))
    for example in examples:
        a, b = next(tokenized), next(tokenized) if example.text_b else []
        kept_a, kept_b = kept_lengths(len(a), len(b), seq_length, frame.separators)
        tokens = [cls, *a[:kept_a], sep]
        type_ids = [0] * len(tokens)
        if kept_b:  # as in the official script, a text_b without a piece counts as none
            tokens += [*[sep] * (frame.separators - 1), *b[:kept_b], sep]
            type_ids += [0] * (frame.separators - 1) + [int(frame.has_types)] * (kept_b + 1)
        ids = tokenizer.convert_tokens_to_ids(tokens)
        missing = seq_length - len(tokens)
        features.append(
            InputFeatures(
                unique_id=example.unique_id,
                tokens=tokens,
                input_ids=[*ids, *[frame.pad_id] * missing],
                input_mask=[1] * len(ids) + [0] * missing,
                input_type_ids=type_ids + [0] * missing,
                tokens_lost=len(a) + len(b) - kept_a - kept_b,
            )
        )
    return features


def _tokenized(tokenizer: Any, texts: Iterable[str | bytes]) -> list[list[str]]:
    """What a tokenizer's `tokenize` gives; one that has ours takes all texts in one call."""
    if getattr(tokenizer.tokenize, "__func__", None) is not Tokenizer.tokenize:
        return [tokenizer.tokenize(text) for text in texts]
    encoded = eagerly(tokenizer.encode_ids)(map(convert_to_unicode, texts))
    return [tokenizer.convert_ids_to_tokens(ids) for ids in encoded]

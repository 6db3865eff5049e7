"""The functions of google-research/bert's `extract_features`, for code that imports that module.

    from bert_features.official import extract_features

The `model_fn` of its `model_fn_builder` needs no graph of TensorFlow 1; it runs on both runtimes.
"""

from pathlib import Path

from bert_features.batches.long_text import kept_lengths
from bert_features.official import refusing
from bert_features.official.features import InputFeatures, convert_examples_to_features
from bert_features.official.input_fn import input_fn_builder
from bert_features.official.model_fn import model_fn_builder
from bert_features.readers import examples
from bert_features.readers.input_example import InputExample

__all__ = [
    "InputExample",
    "InputFeatures",
    "convert_examples_to_features",
    "input_fn_builder",
    "model_fn_builder",
    "read_examples",
]


def _truncate_seq_pair(tokens_a: list[str], tokens_b: list[str], max_length: int) -> None:
    """Shortens both in place by the official rule: pieces leave from the end of the longer one."""
    a, b = len(tokens_a), len(tokens_b)
    kept_a, kept_b = kept_lengths(a, b, max_length + 2 + min(b, 1))  # with [CLS] and [SEP]s
    del tokens_a[kept_a:], tokens_b[kept_b:]


def read_examples(input_file: str | Path) -> list[InputExample]:
    """The examples of a file, as a list; see `bert_features.read_examples`."""
    return list(examples.read_examples(input_file))


__getattr__ = refusing("extract_features")

"""Another value of each setting, for tests that notice a setting that somebody forgot."""

from typing import Any

# Another value of each setting, with what it cannot be without.
MEAN = {"level": "sequence"}
OTHERS: dict[str, dict[str, Any]] = {
    "checkpoint": {"checkpoint": "other"},
    "config_file": {"config_file": "other.json"},
    "vocab_file": {"vocab_file": "other.txt"},
    "do_lower_case": {"do_lower_case": True},
    "hidden_act": {"hidden_act": "gelu_erf"},
    "kind": {"kind": "attention"},
    "heads": {"kind": "attention", "heads": (1,)},
    "top_k": {"kind": "masked_lm", "top_k": 3},
    "min_weight": {"kind": "sparse", "min_weight": 0.5},
    "layers": {"layers": (0,)},
    "combine": {"combine": "sum"},
    "weights": {"combine": "weighted", "weights": (0.5, 0.25)},
    "level": {"level": "word"},
    "pooling": {**MEAN, "pooling": "max"},
    "special_tokens": {**MEAN, "special_tokens": False},
    "normalize": {**MEAN, "normalize": True},
    "dim": {**MEAN, "dim": 3},
    "dtype": {**MEAN, "dtype": "float16"},
    "scale_from": {**MEAN, "dtype": "int8", "scale_from": "7"},
    "outputs": {"outputs": [{"name": "a", "layers": (0,)}]},
    "long_text": {"long_text": "tail"},
    "stride": {"long_text": "window", "stride": 3},
    "word_split": {"level": "word", "word_split": "whitespace"},
    "max_seq_length": {"max_seq_length": 9},
    "buckets": {"buckets": (8, 16)},
    "packing": {"packing": True},
    "batch_size": {"batch_size": 3},
    "batch_tokens": {"batch_tokens": 99},
    "device": {"device": "cpu"},
    "runtime": {"runtime": "jax"},
    "precision": {"precision": "bfloat16"},
    "format": {"format": "npz"},
    "input_format": {"input_format": "jsonl"},
    "id_field": {"id_field": "x"},
    "text_field": {"text_field": "x"},
    "text_b_field": {"text_b_field": "x"},
    "tokens_field": {"tokens_field": "x"},
    "prompt": {"prompt": "x "},
    "segment": {"segment": 1},
    "spans": {"level": "span", "spans": "4"},
    "label_field": {"level": "word", "label_field": "x"},
    "span_field": {"level": "span", "span_field": "x"},
    "delimiter": {"input_format": "csv", "delimiter": ";"},
    "max_line_bytes": {"max_line_bytes": 999},
    "shard": {"shard": "0/2"},
    "shard_examples": {"shard_examples": 7},
    "buffer_mb": {"buffer_mb": 7},
    "uniform_batches": {"uniform_batches": True},
    "dedupe": {"dedupe": True},
    "cache": {"cache": "x"},
    "cache_gb": {"cache": "x", "cache_gb": 1.0},
}
ALONE = {name: {n: v for n, v in values.items() if n != name} for name, values in OTHERS.items()}
ALONE["weights"] = {"combine": "weighted", "weights": (0.5, 0.5)}
# They turn it on, which decides digits itself.
ALONE["dedupe"] = ALONE["cache"] = {"uniform_batches": True}

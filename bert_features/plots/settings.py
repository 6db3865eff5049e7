"""The settings of `ExtractConfig` that figures use. Importing this imports nothing else."""

MODEL_SETTINGS = (
    *("checkpoint", "config_file", "vocab_file", "do_lower_case", "hidden_act"),
    *("max_seq_length", "device", "runtime", "precision"),
)
# Where the texts of a file are.
INPUT_SETTINGS = (
    *("input_format", "text_field", "delimiter", "quoting", "max_line_bytes", "encoding_errors"),
)
# Which labels a probe reads, and of what.
PROBE_SETTINGS = ("label_field", "span_field", "tokens_field", "conll_column")
MAX_EXAMPLES = 10_000  # of a probe
WORD_SETTINGS = ("word_split",)

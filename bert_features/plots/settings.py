"""The settings of `ExtractConfig` that figures use. Importing this imports nothing else."""

MODEL_SETTINGS = (
    *("checkpoint", "config_file", "vocab_file", "do_lower_case", "hidden_act"),
    *("max_seq_length", "device", "runtime", "precision"),
)
# Where the texts of a file are.
INPUT_SETTINGS = (*("input_format", "text_field", "delimiter", "max_line_bytes"),)
WORD_SETTINGS = ("word_split",)

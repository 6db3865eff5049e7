"""The settings of `ExtractConfig` that a probe uses beside those of figures, and its defaults."""

# Which labels it reads, and of what.
PROBE_SETTINGS = ("label_field", "span_field", "tokens_field")
MAX_EXAMPLES = 10_000
FOLDS = 5

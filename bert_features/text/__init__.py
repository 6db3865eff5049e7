"""Text to ids: vocabulary, Unicode tables and the tokenizer's graph."""

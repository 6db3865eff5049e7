"""Readers of input files: one module per format, each streaming examples in the input's order."""

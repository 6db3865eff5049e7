"""Checkpoints: find, read and convert the weights of a BERT."""

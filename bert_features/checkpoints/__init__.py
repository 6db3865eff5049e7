"""Checkpoints: find, locate, read, name, convert and download the weights of a BERT."""

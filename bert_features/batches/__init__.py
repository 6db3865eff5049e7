"""Batches: rows, windows, words, lengths in buckets, and the input function that streams them."""

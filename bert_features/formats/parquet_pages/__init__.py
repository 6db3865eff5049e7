"""Parquet pages of our own for vectors; README.md says why."""

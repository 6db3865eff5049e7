"""Compiling for TPUs that are not here, and the report on it."""

"""Checks that this machine computes the right numbers."""

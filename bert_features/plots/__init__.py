"""Figures of what a checkpoint computes."""

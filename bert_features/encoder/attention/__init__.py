"""Attention: one class for each form of it, the choice among them, and its weights as an output."""

"""Keras layers: features inside a user's own model."""

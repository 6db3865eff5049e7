"""Figures of what a checkpoint computes, and a probe that compares its layers and poolings."""

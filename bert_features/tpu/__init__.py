"""Compiles the device step for TPUs without having one, and reports on the result."""

"""What is asked for: settings, checked once. Pydantic alone; no framework, no NumPy."""

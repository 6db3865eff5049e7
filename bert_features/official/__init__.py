"""The names that code written for google-research/bert's script and its tutorials uses."""

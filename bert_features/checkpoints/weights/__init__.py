"""The weights of a checkpoint: their files, their names, and their readers."""

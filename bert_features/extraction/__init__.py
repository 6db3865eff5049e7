"""The job: texts in, features out in the input's order."""

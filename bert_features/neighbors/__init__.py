"""Neighbors: the sentences, words or tokens of a features file that are nearest to a query."""

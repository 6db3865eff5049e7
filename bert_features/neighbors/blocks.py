"""The vectors of a feature, a block at a time, each with its place in the file."""

from collections.abc import Iterator

import numpy as np

from bert_features.formats.reader import FeatureFile
from bert_features.formats.records import Feature


def blocks(
    file: FeatureFile, feature: Feature
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The vectors of a feature in the order of the file.

    Yields:
      Vectors [N, D]; the number of each one's record, int64 [N]; its place in that record, int64
      [N], 0 where a record has one vector.

    Raises:
      OutputError: the file is damaged.
    """
    first = 0
    for values, row_splits in file.blocks(feature.name):
        count = len(values) if row_splits is None else len(row_splits) - 1
        records = np.arange(first, first + count)
        positions = np.zeros(len(values), np.int64)
        if row_splits is not None:
            lengths = np.diff(row_splits)
            records = np.repeat(records, lengths)
            positions = np.arange(len(values)) - np.repeat(row_splits[:-1], lengths)
        yield values, records, positions
        first += count

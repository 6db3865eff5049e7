"""Sparse features as matrices of SciPy: a row for each example, a column for each piece."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_features.config.levels import LEVELS
from bert_features.errors import MissingExtraError, OutputError
from bert_features.formats.records import Feature, FeatureBatch

if TYPE_CHECKING:
    from bert_features.formats.source import RecordSource


def to_csr(batches: Iterable[FeatureBatch], feature: Feature, width: int) -> Any:
    """The weights of batches as a `scipy.sparse.csr_matrix`, float32 [N, V]; ids ascend in a row.

    Raises MissingExtraError if SciPy is not installed.
    """
    try:
        from scipy.sparse import csr_matrix
    except ImportError as error:
        raise MissingExtraError("SciPy", install="scipy") from error

    lengths, ids, values = [np.zeros(1, np.int64)], [np.zeros(0, np.int32)], [np.zeros((0, 1))]
    for batch in batches:
        rows = batch.levels[feature.level]
        lengths.append(np.diff(rows.splits))
        ids.append(np.asarray(rows.columns[_ids(feature)]))
        values.append(np.asarray(rows.features[feature.name]))
    weights = np.concatenate(values)[:, 0].astype(np.float32)
    splits = np.concatenate(lengths).cumsum()
    matrix = csr_matrix((weights, np.concatenate(ids), splits), shape=(len(splits) - 1, width))
    matrix.sort_indices()
    return matrix


def csr_blocks(source: "RecordSource", feature: Feature, records: range) -> Iterator[Any]:
    """The matrices of some records, a bounded part at a time, in order.

    Raises OutputError if the feature is not sparse, or the vocabulary's size is not recorded.
    """
    if feature.kind != "sparse":
        raise OutputError(f"{feature.name} has kind '{feature.kind}'; allowed: kind 'sparse'")
    width = pieces_of(source)
    for batch in source._batches(records, [feature.name, _ids(feature)]):
        yield to_csr([batch], feature, width)


def pieces_of(source: "RecordSource") -> int:
    """V, the number of pieces of a file's vocabulary, as its metadata says."""
    try:
        return int(source.recipe.checkpoint["bert_config"]["vocab_size"])
    except (KeyError, TypeError, ValueError) as error:
        raise OutputError(
            f"{source.path} does not record its checkpoint, so the number of columns is unknown; "
            "extract it again"
        ) from error


def _ids(feature: Feature) -> str:
    """The column with the piece of each value."""
    (column,) = LEVELS[feature.level].pieces.values()
    return column

"""An approximate index of a feature's vectors, by faiss: built once and kept in the cache.

The vectors are grouped into cells around centroids (faiss's `IVF`, `Flat`). A query is compared
with the vectors of the nearest cells only. The index is as large as the vectors in float32, and is
mapped into memory when it is used.
"""

import hashlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bert_features.errors import ConfigError, MissingExtraError
from bert_features.files import IN_CACHE, Location, cache_dir, locked, replacing, storage_errors
from bert_features.formats.folder import FeatureFolder
from bert_features.formats.manifest import MANIFEST
from bert_features.formats.reader import FeatureFile
from bert_features.formats.records import Feature
from bert_features.formats.small_vectors import restore
from bert_features.neighbors.search import Hits, blocks

logger = logging.getLogger("bert_features")

# The largest number of vectors that the centroids are made from, and the least for each centroid.
_SAMPLE = 100_000
_SAMPLE_PER_CELL = 39
# Cells that a query is compared with.
CELLS_SEARCHED = 64
# A faiss id is the number of the record, then in these bits the position in it.
_POSITION_BITS = 24


def search_index(
    file: FeatureFile, feature: Feature, queries: np.ndarray, *, top: int, similarity: str
) -> list[Hits]:
    """The vectors nearest to each query, by the index of a feature, which is built if need be.

    Some of the nearest may be missed. Zero vectors and vectors that are not finite are left out.

    Args:
      file: the features file.
      feature: one of its features.
      queries: [Q, D], none of them zero.
      top: number of vectors for each query.
      similarity: `cosine` or `dot`.

    Raises:
      MissingExtraError: faiss is not installed.
      ConfigError: the file is at an address.
      CheckpointError: the cache cannot be written.
    """
    faiss = _import_faiss()
    path = _index_path(file, feature, similarity)
    if not path.exists():
        with (
            storage_errors(f"write {path}", **IN_CACHE),
            locked(path.with_suffix(".lock"), f"waiting for another process to build {path}"),
        ):
            if not path.exists():
                _build(faiss, path, file, feature, similarity)
    index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP)
    index.nprobe = CELLS_SEARCHED
    wanted = np.asarray(queries, np.float32)
    if similarity == "cosine":
        wanted = _unit(wanted)
    similarities, ids = index.search(wanted, top)
    return [_hits(similarities[query], ids[query], top) for query in range(len(wanted))]


def _import_faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError("faiss-cpu", "faiss") from error
    return faiss


def _index_path(file: FeatureFile, feature: Feature, similarity: str) -> Path:
    """Where the index is kept; a file that changes gets another."""
    place: Location = file.path  # of a folder it may be an address
    if not isinstance(place, Path):
        raise ConfigError.naming(
            "{index:'faiss'} needs one file or folder of this machine, and {path} is an address or "
            "several; leave {index} out",
            path=place,
        )
    path = place / MANIFEST if isinstance(file, FeatureFolder) else place
    status = path.stat()
    facts = [str(path.resolve()), status.st_size, status.st_mtime_ns, feature.name, similarity]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
    return cache_dir() / "neighbors" / f"{key}.faiss"


def _build(faiss: Any, path: Path, file: FeatureFile, feature: Feature, similarity: str) -> None:
    count, sample = _sample(file, feature, similarity)
    cells = max(1, min(int(4 * count**0.5), len(sample) // _SAMPLE_PER_CELL))
    logger.info("building an index of %s vectors; it is kept in %s", f"{count:,}", path)
    index = faiss.index_factory(feature.width, f"IVF{cells},Flat", faiss.METRIC_INNER_PRODUCT)
    index.cp.min_points_per_centroid = 1  # faiss would print a warning for a small file
    if count:
        index.train(sample)
    for vectors, ids in _usable(file, feature, similarity):
        index.add_with_ids(vectors, ids)
    with replacing(path, overwrite=True, **IN_CACHE) as new:
        faiss.write_index(index, str(new))


def _sample(file: FeatureFile, feature: Feature, similarity: str) -> tuple[int, np.ndarray]:
    """The number of vectors, and every n-th of them, at most `_SAMPLE`."""
    sample = np.empty((0, feature.width), np.float32)
    count, step = 0, 1
    for vectors, _ in _usable(file, feature, similarity):
        sample = np.concatenate([sample, vectors[-count % step :: step]])
        count += len(vectors)
        while len(sample) > _SAMPLE:
            sample, step = sample[::2], 2 * step
    return count, sample


def _usable(
    file: FeatureFile, feature: Feature, similarity: str
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The vectors that can be compared, float32 [N, D], and their faiss ids, int64 [N]."""
    for values, records, positions in blocks(file, feature):
        vectors = np.asarray(restore(values, feature), np.float32)
        usable = np.isfinite(vectors).all(axis=1) & vectors.any(axis=1)
        vectors = vectors[usable]
        ids = (records << _POSITION_BITS | positions)[usable]
        yield (_unit(vectors) if similarity == "cosine" else vectors), ids


def _unit(vectors: np.ndarray) -> np.ndarray:
    wide = vectors.astype(np.float64)
    return np.asarray(wide / np.linalg.norm(wide, axis=1, keepdims=True), np.float32)


def _hits(similarities: np.ndarray, ids: np.ndarray, top: int) -> Hits:
    found = ids >= 0  # -1 where the cells hold fewer vectors
    ids = ids[found]
    records, positions = ids >> _POSITION_BITS, ids & ((1 << _POSITION_BITS) - 1)
    return Hits(similarities[found].astype(np.float64), records, positions).best(top)

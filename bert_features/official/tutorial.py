"""get_features: the call that tutorials on google-research/bert's features use."""

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.layers import Layers
from bert_features.errors import ConfigError
from bert_features.extraction.extractor import FeatureExtractor
from bert_features.files import local_path
from bert_features.formats.records import FeatureRecord


def get_features(
    texts: Iterable[str],
    dim: int = 768,
    *,
    checkpoint: str | Path = "minilm",
    layers: Layers = (-1, -2, -3, -4),
    combine: str = "sum",
    max_seq_length: int = 128,
    batch_size: int = 32,
    **settings: Any,
) -> list[list[tuple[str, np.ndarray]]]:
    """Token vectors of texts, by the call that the tutorials use; or with `level="word"`, words'.

    The function of this name in the tutorial returned a dict from token to vector: a repeated token
    kept only one vector. Here every token keeps its own.

    Args:
      texts: one example each.
      dim: number of values of each vector to keep, from the first. Narrower vectors stay whole; the
        default checkpoint, all-MiniLM-L6-v2, has 384 values.
      checkpoint: anything that `find_checkpoint` takes. The models of the last two settings stay
        loaded, whatever the texts and `dim`.
      layers: LAYERS.
      combine: how they become one vector: `sum`, `mean` or `concat`.
      max_seq_length: tokens of the longest row.
      batch_size: rows of a batch.
      **settings: any other setting of `ExtractConfig`, but `outputs`.

    Returns:
      For each text its (token, vector) pairs in order, [CLS] and [SEP] included, or its (word,
      vector) pairs; a vector is float32 [min(dim, D)].

    Raises:
      ConfigError: a setting is not allowed; `combine` is `none`, which has no single vector, or
        `level` is `sequence`, which has no pairs.
      CheckpointError: the checkpoint is not usable.
    """
    if combine == "none":
        raise ConfigError(
            "combine is 'none'; get_features gives one vector: sum, mean, concat or weighted"
        )
    if settings.get("level") == "sequence" or settings.get("outputs"):
        raise ConfigError(
            "get_features gives pairs of tokens, or words, and vectors; for other outputs call "
            "FeatureExtractor.from_checkpoint(…)(texts)"
        )
    if dim < 1:
        raise ConfigError(f"dim is {dim}; allowed: an integer of at least 1")
    config = ExtractConfig.of(
        {
            "checkpoint": str(checkpoint),
            "layers": layers,
            "combine": combine,
            "max_seq_length": max_seq_length,
            "batch_size": batch_size,
            **settings,
        }
    )
    return [
        list(zip(_named(record), record.features["features"][:, :dim], strict=True))
        for record in _extractor(config, local_path("."))(texts)
    ]


def _named(record: FeatureRecord) -> tuple[str, ...]:
    return (record.tokens if record.words is None else record.words) or ()


# Two: who compares layers or ways to combine them calls with settings in turn.
@functools.lru_cache(maxsize=2)
def _extractor(config: ExtractConfig, folder: Path) -> FeatureExtractor:
    """The extractor for some settings; their paths may be relative to the folder."""
    del folder  # which is part of the key
    return FeatureExtractor(config)

"""Answers of a service, Arrow streams, as batches of features."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from bert_features.extraction.encoding import collect_padded, collect_ragged, collect_vectors
from bert_features.formats.arrow_layout import METADATA_KEY, convert_from_arrow, schema_of
from bert_features.formats.records import Feature, FeatureBatch, FeatureRecord


@dataclass(frozen=True)
class Received:
    """The features of some texts.

    Attributes:
      features: the features of each text, in order.
      batch: their values.
      tokens: the tokens of each text, if the request asked for them.
      token_ids: their ids, int32 [tokens] for each text, if the request asked for them.
    """

    features: tuple[Feature, ...]
    batch: FeatureBatch
    tokens: list[list[str]] | None
    token_ids: list[np.ndarray] | None

    def records(self) -> Iterator[FeatureRecord]:
        """The features of each text, with its tokens if the request asked for them."""
        for i, record in enumerate(self.batch.records(self.features)):
            if self.tokens is None or self.token_ids is None:
                yield record
            else:
                yield replace(record, tokens=tuple(self.tokens[i]), token_ids=self.token_ids[i])


def parse(body: bytes) -> Received:
    """Reads an answer.

    Raises:
      Exception: the answer is damaged, of any type.
    """
    import pyarrow as pa

    table = pa.ipc.open_stream(body).read_all()
    table.validate(full=True)
    entries = json.loads(table.schema.metadata[METADATA_KEY])["features"]
    features = tuple(map(_feature, entries))
    batch = convert_from_arrow(table.select(schema_of(features, "int").names), features)
    tokens = token_ids = None
    if "tokens" in table.column_names:
        tokens = table["tokens"].to_pylist()
        token_ids = [np.array(ids, np.int32) for ids in table["token_ids"].to_pylist()]
    return Received(features, batch, tokens, token_ids)


def _feature(entry: dict[str, Any]) -> Feature:
    """A feature from its entry in the metadata; what a later version adds is left out."""
    known = {field.name for field in fields(Feature)}
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in entry.items()
        if name in known
    }
    return Feature(**values)


def collect(
    batches: Sequence[FeatureBatch], feature: Feature, count: int, *, single: bool, ragged: bool
) -> Any:
    """The vectors of a feature, as `FeatureExtractor.encode` returns them."""
    if feature.level == "sequence":
        vectors = collect_vectors(batches, feature, count)
        return vectors[0] if single else vectors
    if single or ragged:
        parts = collect_ragged(batches, feature)
        return parts.values if single else parts
    return collect_padded(batches, feature)

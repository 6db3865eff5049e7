"""Answers of a service as batches of features: from an Arrow stream or, with bfloat16, JSON."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from bert_features.extraction.encoding import collect_padded, collect_ragged, collect_vectors
from bert_features.formats.arrow_layout import METADATA_KEY, convert_from_arrow, schema_of
from bert_features.formats.columns import join_records, value_dtype
from bert_features.formats.records import (
    SPANS,
    Feature,
    FeatureBatch,
    FeatureRecord,
    WordSpans,
)

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"


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


def media_type(features: Sequence[Feature]) -> str:
    """The form to ask for: Arrow, which lacks bfloat16, or JSON."""
    return JSON if any(feature.dtype == "bfloat16" for feature in features) else ARROW


def parse(body: bytes, kind: str, wanted: Sequence[Feature]) -> Received:
    """Reads an answer.

    Args:
      body: the answer.
      kind: its form, `ARROW` or `JSON`.
      wanted: the features that were asked for.

    Raises:
      Exception: the answer is damaged, of any type.
    """
    return _parse_arrow(body) if kind == ARROW else _parse_json(body, wanted)


def _parse_arrow(body: bytes) -> Received:
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


def _parse_json(body: bytes, wanted: Sequence[Feature]) -> Received:
    answer = json.loads(body)
    of_file = {feature.name: feature for feature in wanted}
    features = tuple(
        replace(
            of_file[entry["name"]], **{name: entry[name] for name in ("level", "width", "dtype")}
        )
        for entry in answer["features"]
    )
    records = [_record(number, result, features) for number, result in enumerate(answer["results"])]
    batch = join_records(records, features, "int")
    has_tokens = all(record.tokens is not None for record in records)
    return Received(
        features,
        batch,
        [list(record.tokens or ()) for record in records] if has_tokens else None,
        [np.asarray(record.token_ids) for record in records] if has_tokens else None,
    )


def _record(number: int, result: dict[str, Any], features: Sequence[Feature]) -> FeatureRecord:
    words = result.get("words")
    # JSON answers do not say where words are.
    unknown = np.full(len(words or ()), -1, np.int32)
    values = {}
    for feature in features:
        array = np.array(result["features"][feature.name], np.float32)
        rows = () if feature.level == "sequence" else (-1,)
        values[feature.name] = array.reshape(*rows, feature.width).astype(
            value_dtype(feature.dtype)
        )
    return FeatureRecord(
        number,
        values,
        tokens=None if result.get("tokens") is None else tuple(result["tokens"]),
        token_ids=None if "token_ids" not in result else np.array(result["token_ids"], np.int32),
        words=None if words is None else tuple(words),
        word_spans=None if words is None else WordSpans(*[unknown] * len(SPANS)),
    )


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


def records_of(part: Received) -> Iterator[FeatureRecord]:
    """The features of each text, with its tokens if the request asked for them."""
    for i, record in enumerate(part.batch.records(part.features)):
        if part.tokens is None or part.token_ids is None:
            yield record
        else:
            yield replace(record, tokens=tuple(part.tokens[i]), token_ids=part.token_ids[i])

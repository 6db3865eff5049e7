"""Answers of /v1/features as JSON, an Arrow stream or an .npy array."""

import io
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import orjson

from bert_features.batches.pieces import offsets_of
from bert_features.config.features import OutputSpec
from bert_features.config.levels import LEVELS
from bert_features.extraction.assembly import with_pieces
from bert_features.formats.arrow_layout import METADATA_KEY, convert_to_arrow, schema_of
from bert_features.formats.records import FeatureBatch, FeatureRecord
from bert_features.serving.failures import RequestError
from bert_features.serving.messages import Feature
from bert_features.serving.service import Answer, Service

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
NPY = "application/x-npy"


def dump(value: Any) -> bytes:
    """A value as JSON; arrays of NumPy become lists, NaN and infinity null."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def to_json(service: Service, answer: Answer) -> bytes:
    """The body of an answer as JSON."""
    return dump(
        {
            "model": service.model,
            "features": [Feature.model_validate(f).model_dump() for f in answer.features],
            "results": list(_results(service, answer)),
            "usage": {"tokens": answer.tokens, "tokens_lost": answer.tokens_lost},
        }
    )


def _results(service: Service, answer: Answer) -> Iterator[dict[str, Any]]:
    counts = answer.results.counts
    batch = _batch(service, answer)
    records = batch.records(answer.features)
    lost, unknown = counts["tokens_lost"].tolist(), counts["tokens_unknown"].tolist()
    for i, record in enumerate(records):
        features = {each.name: _shown(record, each) for each in answer.features}
        yield {
            **(_tokens(service, answer, i) if answer.with_tokens else {}),
            **({} if record.words is None else {"words": record.words}),
            **_units(record),
            "tokens_lost": lost[i],
            "unknown_tokens": unknown[i],
            "features": features,
        }


def _units(record: FeatureRecord) -> dict[str, list[dict[str, Any]]]:
    """The units of a text that its features do not name, each with its columns, by JSON's keys."""
    units = {}
    for level, cells in (record.units or {}).items():
        row = LEVELS[level]
        if not row.is_named:
            values = zip(*(cells[name] for name in row.fields), strict=True)
            units[row.key] = [dict(zip(row.fields.values(), unit, strict=True)) for unit in values]
    return units


def _tokens(service: Service, answer: Answer, example: int) -> dict[str, Any]:
    """The tokens of a text: [CLS], pieces, [SEP], and for a pair more pieces and [SEP]."""
    tokens, tokenizer = answer.results.levels["token"], service.extractor.tokenizer
    start, stop = tokens.splits[example : example + 2].tolist()
    ids = tokens.columns["token_ids"][start:stop]
    frame = tokenizer.frame
    separators = np.flatnonzero(ids == frame.sep_id)
    first_length = int(separators[0]) + (frame.separators if len(separators) > 1 else 1)
    # Behind the last [SEP] is what fills a query.
    second_length = int(separators[-1]) + 1 - first_length
    filled = len(ids) - first_length - second_length
    kept = int(separators[0]) - 1, max(second_length - 1, 0)
    skip, long_text = answer.prompts[example], answer.preparation.long_text
    offsets = offsets_of(answer.pieces, example, kept, long_text, skip=skip)
    return {
        "tokens": tokenizer.convert_ids_to_tokens(ids.tolist()),
        "token_ids": ids,
        "type_ids": [0] * first_length + [int(frame.has_types)] * second_length + [0] * filled,
        "offsets": [*offsets, *[None] * filled],
    }


def _shown(record: FeatureRecord, feature: OutputSpec) -> np.ndarray | dict[str, Any]:
    """The numbers of a feature: an array, or of a level whose units have names an object."""
    values = _as_numbers(record.features[feature.name])
    if LEVELS[feature.level].is_named:
        numbers = (v if math.isfinite(v) else None for v in values[:, 0].tolist())
        return dict(zip(record.unit_names(feature.level), numbers, strict=True))
    return values


def _as_numbers(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, values.dtype if values.dtype.kind == "i" else np.float32)


def to_arrow(service: Service, answer: Answer) -> bytes:
    """An Arrow stream: the columns of an .arrow features file, then the counts.

    Without a feature of tokens there are `tokens` and `token_ids` if the request wants tokens. The
    last columns are `tokens_lost` and `unknown_tokens`, int32. Arrow lacks bfloat16, so its numbers
    are float32.
    """
    import pyarrow as pa

    features, batch = answer.features, _batch(service, answer)
    schema = schema_of(features, "int")
    table = pa.Table.from_batches([convert_to_arrow(batch, features, schema)])
    if answer.with_tokens and "token" not in batch.levels:
        table = _with_tokens(service, answer, table)
    counts = answer.results.counts
    for name, count in {"tokens_lost": "tokens_lost", "unknown_tokens": "tokens_unknown"}.items():
        table = table.append_column(name, pa.array(counts[count], pa.int32()))
    metadata = {"model": service.model, "features": [f.to_metadata() for f in features]}
    table = table.replace_schema_metadata({METADATA_KEY: dump(metadata)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def _with_tokens(service: Service, answer: Answer, table: Any) -> Any:
    import pyarrow as pa

    tokens = answer.results.levels["token"]
    ids = tokens.columns["token_ids"]
    pieces = service.extractor.tokenizer.convert_ids_to_tokens(ids.tolist())
    splits = pa.array(tokens.splits, pa.int32())
    for name, values in (
        ("tokens", pa.array(pieces, pa.string())),
        ("token_ids", pa.array(ids, pa.int32())),
    ):
        table = table.append_column(name, pa.ListArray.from_arrays(splits, values))
    return table


def to_npy(service: Service, answer: Answer) -> bytes:
    """An .npy array [N, D] of a single feature of level 'sequence'; else raises RequestError."""
    del service
    if len(answer.features) != 1 or not answer.features[0].is_sequence:
        named = ", ".join(feature.name for feature in answer.features)
        raise RequestError(
            "not_acceptable",
            f"{NPY} holds one output of level 'sequence'; the request asks for {named}",
            param="outputs",
        )
    values = answer.results.sequence[answer.features[0].name]
    file = io.BytesIO()
    # The format knows no bfloat16.
    np.save(file, values if values.dtype.kind == "f" else _as_numbers(values), allow_pickle=False)
    return file.getvalue()


def _batch(service: Service, answer: Answer) -> FeatureBatch:
    return with_pieces(answer.results, service.extractor.pieces)


FORMS: dict[str, Callable[[Service, Answer], bytes]] = {
    JSON: to_json,
    ARROW: to_arrow,
    NPY: to_npy,
}


def choose_form(accept: str) -> str:
    """The form that a header `Accept` prefers, a key of `FORMS`; raises RequestError for none."""
    if not accept.strip():
        return JSON
    # The most specific entry that names a form counts (RFC 9110, section 12.5.1).
    ranks = {form: max(_rank(entry, form) for entry in accept.split(",")) for form in FORMS}
    best = max(FORMS, key=lambda form: ranks[form][::-1])
    if not ranks[best][1]:
        raise RequestError(
            "not_acceptable", f"Accept is {accept[:200]!r}; allowed: {', '.join(FORMS)}"
        )
    return best


def _rank(entry: str, form: str) -> tuple[int, float]:
    """How specifically an entry of `Accept` names a form, and how much it wants it."""
    kind, _, parameters = entry.strip().lower().partition(";")
    names = {form: 3, f"{form.partition('/')[0]}/*": 2, "*/*": 1}
    specific = names.get(kind.strip(), 0)
    stated = re.search(r"(?:^|;)\s*q=([^;]*)", parameters)
    try:
        quality = min(max(float(stated[1] if stated else 1), 0.0), 1.0)
    except ValueError:
        quality = 0.0
    return specific, quality if specific else 0.0

"""JSON lines, field for field as google-research/bert's `extract_features.py` writes them.

One line per example. It has these keys, in this order; a level without features has no key:

- `"linex_index": 0`, the example's id: a number or a string;
- `"features": [{"token": "[CLS]", "layers": [{"index": -1, "values": [..]}]}]`, the token features.
  `index` is the layer, as in the official script, or the name of the feature where it is no single
  layer;
- `"words": [{"word": "naïve", "start": 0, "end": 5, "type_id": 0, "num_pieces": 2, "layers":
  [{"index": NAME, "values": [..]}]}]`, the word features; see `records.Rows`;
- `"sequence": [{"index": NAME, "values": [..]}]`, the sequence features;
- `"token_pairs": [{"index": NAME, "values": [[[..]]]}]`, attention by head, from each token to each
  token; `"word_pairs"` the same of words.

`layers` and `sequence` list the features of their level in the order of the metadata, which is in
`PATH.metadata.json`, beside the file. The format has no token ids, and values have 6 decimals; int8
and the bytes of bits are integers.
"""

import itertools
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from bert_features.config.kinds import KINDS
from bert_features.config.levels import LEVELS, TEXT, LevelRow
from bert_features.errors import OutputError
from bert_features.formats.base import FeatureWriter
from bert_features.formats.columns import (
    convert_ids,
    convert_to_batch,
    unit_columns,
    value_dtype,
)
from bert_features.formats.headers import Header, read_sidecar
from bert_features.formats.json_numbers import convert_to_text
from bert_features.formats.record_file import RecordFile
from bert_features.formats.records import (
    Feature,
    FeatureBatch,
    FeatureRecord,
    Rows,
    matrices,
)

# Lines are searched in blocks of this many bytes, an id in the first bytes of its line.
BLOCK_BYTES = 16 << 20
HEAD_BYTES = 1024
_HEAD = re.compile(rb'\s*\{\s*"linex_index"\s*:\s*(-?\d+|"(?:[^"\\]|\\.)*")\s*[,}]')


class Writer(FeatureWriter):
    """Writes JSON lines and their sidecar."""

    has_sidecar = True
    holds_any_text = True

    def _write(self, batch: FeatureBatch) -> None:
        for line in convert_to_lines(batch, self._features):
            self._file.write(line)


class StreamWriter:
    """Writes the lines to standard output, as they are computed: no sidecar, not whole or nothing.

    Args:
      features: what each batch holds, in order.

    Attributes:
      records: number of examples written so far.
      bytes_written: number of bytes written so far.

    Raises:
      OutputError: standard output is closed.
    """

    def __init__(self, features: Sequence[Feature]) -> None:
        self.records = 0
        self.bytes_written = 0
        self.texts_crc32c: str | None = None  # there is no metadata to hold it
        self.crc32c: str | None = None
        self._features = tuple(features)
        if sys.stdout is None:
            raise OutputError("cannot write to standard output: it is closed; pass a file")
        self._file = sys.stdout.buffer

    def write(self, batch: FeatureBatch) -> None:
        """Writes a batch, and hands it on at once.

        Raises BrokenPipeError if the reader has gone, OutputError if the batch cannot be written.
        """
        lines = b"".join(convert_to_lines(batch, self._features))
        try:
            self._file.write(lines)
            self._file.flush()
        except BrokenPipeError:  # not a failure: the reader has had enough
            raise
        except OSError as error:
            raise OutputError(
                f"cannot write to standard output: {error.strerror or error}; what is there is "
                "incomplete"
            ) from error
        self.records += len(batch)
        self.bytes_written += len(lines)


def convert_to_lines(batch: FeatureBatch, features: tuple[Feature, ...]) -> Iterator[bytes]:
    """The line of each example, line end included; raises OutputError if a value is not finite."""
    _check_finite(batch, features)
    levels = _levels(features)
    # A whole batch at once: sequences have few numbers, and a call costs more than they do.
    sequence = _layers([f for f in features if f.is_sequence], batch.sequence)
    for i, unique_id in enumerate(batch.unique_ids.tolist()):
        fields = [f'"linex_index": {json.dumps(unique_id)}']
        for level, of_level in levels.items():
            row = LEVELS[level]
            if not row.axes:
                items = sequence[i]
            else:
                write = _items if row.axes == 1 else _matrices
                items = write(batch.levels[level].part(i, i + 1), row, of_level)
            fields.append(f'"{row.key}": [{items}]')
        yield f"{{{', '.join(fields)}}}\n".encode("ascii")


def _levels(features: Sequence[Feature]) -> dict[str, list[Feature]]:
    """The features of each level that a line has; of pairs the units are there too."""
    levels = {level for feature in features for level in (feature.level, feature.unit)}
    return {level: [f for f in features if f.level == level] for level in LEVELS if level in levels}


def _layers(features: list[Feature], values: Mapping[str, np.ndarray]) -> list[str]:
    """The layers of each row: `{"index": -1, "values": [..]}, ...`."""
    openings = [f'{{"index": {json.dumps(_index(feature))}, "values": ' for feature in features]
    columns = [convert_to_text(values[feature.name]) for feature in features]
    return [
        ", ".join(f"{opening}{vector}}}" for opening, vector in zip(openings, vectors, strict=True))
        for vectors in zip(*columns, strict=True)
    ]


def _items(rows: Rows, level: LevelRow, features: list[Feature]) -> str:
    """The tokens or words of an example."""
    fields = {name: key for name, key in level.fields.items() if name in rows.columns}
    keys = fields.values()
    cells: Any = list(zip(*(rows.columns[name].tolist() for name in fields), strict=True))
    count = int(rows.splits[-1])
    row_layers = _layers(features, rows.features) if features else [""] * count
    return ", ".join(
        "{"
        + "".join(f'"{key}": {json.dumps(cell)}, ' for key, cell in zip(keys, row, strict=True))
        + f'"layers": [{layers}]}}'
        for row, layers in zip(cells or [()] * count, row_layers, strict=True)
    )


def _matrices(rows: Rows, level: LevelRow, features: list[Feature]) -> str:
    """The attention of an example: `{"index": NAME, "values": [[[..], ..], ..]}, ...`."""
    items = []
    for feature in features:
        values = matrices(rows.features[feature.name])
        lines = iter(convert_to_text(values.reshape(-1, values.shape[-1])) if values.size else ())
        heads = [f"[{', '.join(itertools.islice(lines, values.shape[-1]))}]" for _ in values]
        items.append(f'{{"index": {json.dumps(feature.name)}, "values": [{", ".join(heads)}]}}')
    return ", ".join(items)


class File(RecordFile):
    """Reads JSON lines, also lines of the official script; `token_ids` of the records are None."""

    format = "jsonl"
    has_token_ids = False
    _unchecked = ("values",)  # in a file without a checksum

    def _read_header(self) -> Header:
        header = read_sidecar(self.path)
        if header is not None:
            return header
        with self.path.open("rb") as lines:
            first = next(lines, None)
        if first is None:
            return Header({}, (), "int", None)
        example = json.loads(first)
        id_type = "str" if isinstance(example["linex_index"], str) else "int"
        return Header({}, _features_of(example), id_type, None)

    def __iter__(self) -> Iterator[FeatureRecord]:
        # Without a scan for the places of the lines, which reads the file once more.
        return self.guarded(self._all_records())

    def _all_records(self) -> Iterator[FeatureRecord]:
        count = 0
        with self.path.open("rb") as lines:
            for line in lines:
                yield from self._parse(line).records(self.features)
                count += 1
        self._check_count(count)

    def _scan(self) -> np.ndarray:
        ends = [np.zeros(1, np.int64)]
        done = 0
        with self.path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                ends.append(np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + done + 1)
                done += len(block)
        offsets = np.concatenate(ends)
        # The last line may lack its line end.
        return offsets if offsets[-1] == done else np.append(offsets, done)

    def _all_ids(self) -> np.ndarray:
        ids = []
        offsets = self._offsets.tolist()
        with self.path.open("rb", buffering=0) as file:
            for begin, end in pairwise(offsets):
                file.seek(begin)
                match = _HEAD.match(file.read(min(HEAD_BYTES, end - begin)))
                if match is None:  # the id is long, or not the first field
                    file.seek(begin)
                    unique_id = json.loads(file.read(end - begin))["linex_index"]
                else:
                    unique_id = json.loads(match[1])
                ids.append(_check_id(unique_id, self.id_type))
        return convert_ids(ids, self.id_type)

    def _parse(self, piece: bytes) -> FeatureBatch:
        example = json.loads(piece)
        unique_id = _check_id(example["linex_index"], self.id_type)
        columns: dict[str, Any] = {"unique_ids": convert_ids([unique_id], self.id_type)}
        for level, features in _levels(self.features).items():
            row = LEVELS[level]
            items = example[row.key]
            if row.axes == 0:
                columns |= _values([items], features)
            elif row.axes == 2:
                for feature, item in zip(features, items, strict=True):
                    if item["index"] != feature.name:
                        raise ValueError(f"{row.key} has {item['index']}, not {feature.name}")
                    values = np.array(item["values"], value_dtype(feature.dtype))
                    columns[feature.name] = values.reshape(feature.width, -1).T
                    columns[row.splits] = np.array([0, values.size // feature.width])
            else:
                columns[row.splits] = np.array([0, len(items)])
                columns |= _values([item["layers"] for item in items], features)
                for name, kind in unit_columns(level, self.features).items():
                    if (key := row.fields.get(name)) is not None:
                        dtype = object if kind == TEXT else np.int32
                        columns[name] = np.array([item[key] for item in items], dtype)
        return convert_to_batch(columns, self.features)


def _values(
    rows: Sequence[Sequence[Mapping[str, Any]]], features: list[Feature]
) -> dict[str, np.ndarray]:
    """The vectors [rows, D] of each feature, from the layers of each row."""
    expected = [_index(feature) for feature in features]
    for layers in rows:
        received = [layer["index"] for layer in layers]
        if received != expected:
            raise ValueError(f"a token, word or sequence has layers {received}, not {expected}")
    return {
        feature.name: np.array(
            [layers[i]["values"] for layers in rows], value_dtype(feature.dtype)
        ).reshape(len(rows), feature.stored_width)
        for i, feature in enumerate(features)
    }


def _check_id(unique_id: Any, id_type: str) -> int | str:
    if type(unique_id).__name__ != id_type:
        raise ValueError(f"the id {unique_id!r} is not of type {id_type}")
    checked: int | str = unique_id
    return checked


def _index(feature: Feature) -> int | str:
    """The `index` of a feature in a line: the official script has single layers only."""
    has_vectors = KINDS[feature.kind].has_vectors
    is_layer = feature.combine == "none" and has_vectors and not feature.heads
    return feature.layers[0] if is_layer and feature.level == "token" else feature.name


def _features_of(example: Mapping[str, Any]) -> tuple[Feature, ...]:
    """The features of a file without a sidecar, as far as its first example shows them."""
    features = []
    for level, row in LEVELS.items():
        key = row.key
        if key not in example:
            continue
        if row.axes == 2:
            raise ValueError(f"its first line has {key}, which are known only from a sidecar")
        if row.axes and not example[key]:
            raise ValueError(
                f"its first line has no {key}, so its features are known only from a sidecar"
            )
        layers = example[key][0]["layers"] if row.axes else example[key]
        labelled = bool(row.labels) and row.fields[row.labels] in example[key][0]
        described = [_feature_of(layer, level, i) for i, layer in enumerate(layers)]
        features += [replace(feature, labelled=labelled) for feature in described]
    if not features:
        keys = ", ".join(row.key for row in LEVELS.values())
        raise ValueError(f"its first line has none of {keys}")
    return tuple(features)


def _feature_of(layer: Mapping[str, Any], level: Any, number: int) -> Feature:
    index = layer["index"]
    single = level == "token" and (isinstance(index, int) or index == "embeddings")
    return Feature(
        name=f"layer_output_{number}" if single else index,
        layers=(index,) if single else (),
        combine="none" if single else "unknown",
        width=len(layer["values"]),
        dtype="float32",
        level=level,
        pooling="none" if level == "token" else "unknown",
    )


def _check_finite(batch: FeatureBatch, features: Sequence[Feature]) -> None:
    arrays = batch.features
    for feature in features:
        values = arrays[feature.name]
        # NaN is the surprisal of a word that was cut off, and null in JSON.
        wrong = np.isinf(values) if KINDS[feature.kind].may_lack else ~np.isfinite(values)
        bad = np.flatnonzero(wrong.any(axis=1))
        if bad.size:
            splits = batch.row_splits(feature)
            row = int(bad[0])
            example = row if splits is None else int(np.searchsorted(splits, row, "right")) - 1
            raise OutputError(
                f"{feature.name} of example {batch.unique_ids[example]} has a value that is not "
                "finite, which JSON cannot hold; write another format, or look for the cause"
            )

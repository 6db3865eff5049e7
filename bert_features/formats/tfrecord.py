"""TFRecord: one `tf.train.Example` per record.

An example has `unique_id` [1], int64 or bytes; with token features `tokens` bytes [tokens] and
`token_ids` int64 [tokens]; with word features `words` bytes [words] and `word_starts`, `word_ends`,
`word_type_ids`, `word_num_pieces` int64 [words]; and one bytes value per feature of the file, which
`tf.io.parse_tensor` turns into float16, float32 or bfloat16 [tokens, D], [words, D], [pairs, D] or
[D]. Text is UTF-8. The metadata is in `PATH.metadata.json`, beside the file.

In the file each example stands behind its length, uint64, and the checksum of these 8 bytes, and in
front of its own checksum. Checksums are masked CRC-32C, uint32; all is little-endian.
"""

import struct
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from bert_features.config.levels import LEVELS, TEXT
from bert_features.errors import OutputError
from bert_features.files.checksums import masked_checksum
from bert_features.formats.base import FeatureWriter
from bert_features.formats.columns import (
    Column,
    check_columns,
    columns_of,
    convert_ids,
    convert_to_batch,
    convert_to_columns,
    levels_of,
    text_array,
    unit_columns,
)
from bert_features.formats.headers import Header, read_sidecar
from bert_features.formats.record_file import RecordFile
from bert_features.formats.records import FeatureBatch
from bert_features.formats.sidecar import sidecar_path
from bert_features.machine.quiet_tensorflow import import_tensorflow

LENGTH = struct.Struct("<QI")
CHECKSUM = struct.Struct("<I")


class Writer(FeatureWriter):
    """Writes TFRecords and their sidecar."""

    has_sidecar = True

    def _write(self, batch: FeatureBatch) -> None:
        columns = convert_to_columns(batch)
        ends = {level: rows.splits.tolist() for level, rows in batch.levels.items()}
        ends["sequence"] = list(range(len(batch) + 1))
        chosen = {name: column for name, column in self._columns.items() if column.rows in ends}
        for i in range(len(batch)):
            rows = {level: slice(*bounds[i : i + 2]) for level, bounds in ends.items()}
            example = convert_to_example(
                {name: columns[name][rows[column.rows]] for name, column in chosen.items()}, chosen
            )
            # Deterministic: the fields are a map, whose order else differs from process to process.
            self._file.write(frame(example.SerializeToString(deterministic=True)))


class File(RecordFile):
    """Reads TFRecords, whose sidecar must be beside them."""

    format = "tfrecord"

    def _read_header(self) -> Header:
        header = read_sidecar(self.path)
        if header is None:
            raise OutputError(
                f"cannot read {self.path} as tfrecord: there is no {sidecar_path(self.path)}, "
                "which lists its features; copy it beside the file"
            )
        return header

    def _scan(self) -> np.ndarray:
        offsets = [0]
        size = self.path.stat().st_size
        with self.path.open("rb", buffering=0) as file:
            while offsets[-1] < size:
                file.seek(offsets[-1])
                length, _ = LENGTH.unpack(file.read(LENGTH.size))
                offsets.append(offsets[-1] + LENGTH.size + length + CHECKSUM.size)
        if offsets[-1] != size:
            raise ValueError(f"record {len(offsets) - 2} is cut short")
        return np.array(offsets, np.int64)

    def _all_ids(self) -> np.ndarray:
        tf = import_tensorflow()

        ids = []
        for framed in self._pieces(range(len(self._offsets) - 1)):
            # The checksum is not compared: a damaged record leaves the ids of the others readable.
            example = tf.train.Example.FromString(framed[LENGTH.size : -CHECKSUM.size])
            ids.append(_unique_id(example, self.id_type))
        return convert_ids(ids, self.id_type)

    @cached_property
    def _expected(self) -> dict[str, Column]:
        return columns_of(self.features, self.id_type)

    def _parse(self, piece: bytes) -> FeatureBatch:
        tf = import_tensorflow()
        from tensorflow.core.framework import tensor_pb2

        example = tf.train.Example.FromString(check_frame(piece))
        fields = example.features.feature
        columns = {"unique_ids": convert_ids([_unique_id(example, self.id_type)], self.id_type)}
        for level in levels_of(self.features):
            for name, dtype in unit_columns(level, self.features).items():
                if dtype == TEXT:
                    columns[name] = text_array(_texts(fields[name]))
                    columns[LEVELS[level].splits] = np.array([0, len(columns[name])])
                else:
                    columns[name] = np.array(fields[name].int64_list.value, np.int32)
        for feature in self.features:
            (tensor,) = fields[feature.name].bytes_list.value
            values = tf.make_ndarray(tensor_pb2.TensorProto.FromString(tensor))
            columns[feature.name] = values[None] if feature.is_sequence else values
            if not feature.is_sequence:
                splits = LEVELS[feature.level].splits
                columns.setdefault(splits, np.array([0, len(values)]))
        check_columns(columns, self._expected)
        return convert_to_batch(columns, self.features)


def frame(serialized: bytes) -> bytes:
    """A serialized example with its length and its checksums, as it stands in the file."""
    length = len(serialized).to_bytes(8, "little")
    return b"".join(
        [
            length,
            CHECKSUM.pack(masked_checksum(length)),
            serialized,
            CHECKSUM.pack(masked_checksum(serialized)),
        ]
    )


def check_frame(framed: bytes) -> bytes:
    """The serialized example inside its frame; raises ValueError if a checksum is wrong."""
    length, length_checksum = LENGTH.unpack_from(framed)
    data = framed[LENGTH.size : LENGTH.size + length]
    (data_checksum,) = CHECKSUM.unpack_from(framed, LENGTH.size + length)
    computed = masked_checksum(framed[:8]), masked_checksum(data)
    if computed != (length_checksum, data_checksum):
        raise ValueError("the checksum of a record does not match its bytes")
    return data


def _unique_id(example: Any, id_type: str) -> int | str:
    column = example.features.feature["unique_id"]
    (unique_id,) = _texts(column) if id_type == "str" else column.int64_list.value
    checked: int | str = unique_id
    return checked


def _texts(field: Any) -> tuple[str, ...]:
    return tuple(text.decode("utf-8") for text in field.bytes_list.value)


def convert_to_example(values: Mapping[str, np.ndarray], columns: Mapping[str, Column]) -> Any:
    """A `tf.train.Example` of an example's part of each column, but the splits.

    Its fields are those that this module's docstring lists.
    """
    tf = import_tensorflow()

    def field(values: np.ndarray, column: Column) -> Any:
        if column.width is not None:
            # A TensorProto made without an op: nothing is placed on a device.
            tensor = tf.make_tensor_proto(values[0] if column.rows == "sequence" else values)
            encoded = [tensor.SerializeToString()]
        elif column.dtype == TEXT:
            encoded = [text.encode("utf-8") for text in values.tolist()]
        else:
            return tf.train.Feature(int64_list=tf.train.Int64List(value=values.tolist()))
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=encoded))

    fields = {
        "unique_id" if name == "unique_ids" else name: field(values[name], column)
        for name, column in columns.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=fields))

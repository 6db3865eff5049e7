"""TFRecord: one `tf.train.Example` per record.

An example has `unique_id` [1], int64 or bytes; with token features `tokens` bytes [tokens] and
`token_ids` int64 [tokens]; with word features `words` bytes [words] and `word_starts`, `word_ends`,
`word_type_ids`, `word_num_pieces` int64 [words]; and one bytes value per feature of the file, which
`tf.io.parse_tensor` turns into float16, float32 or bfloat16 [tokens, D], [words, D] or [D]. Text is
UTF-8. The metadata is in `PATH.metadata.json`, beside the file.

In the file each example stands behind its length, uint64, and the checksum of these 8 bytes, and in
front of its own checksum. Checksums are masked CRC-32C, uint32; all is little-endian.
"""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from bert_features.errors import OutputError
from bert_features.files.checksums import checksum
from bert_features.formats.base import FeatureWriter
from bert_features.formats.columns import convert_ids, levels_of
from bert_features.formats.headers import Header, read_sidecar
from bert_features.formats.record_file import RecordFile
from bert_features.formats.records import SPANS, Feature, FeatureBatch, FeatureRecord, WordSpans
from bert_features.formats.sidecar import sidecar_path
from bert_features.machine.quiet_tensorflow import import_tensorflow

LENGTH = struct.Struct("<QI")
CHECKSUM = struct.Struct("<I")


class Writer(FeatureWriter):
    """Writes TFRecords and their sidecar."""

    has_sidecar = True

    def _open(self) -> None:
        self._file = self._create_checksummed(self._partial(self.path))

    def _write(self, batch: FeatureBatch) -> None:
        for record in batch.records(self._features):
            # Deterministic: the fields are a map, whose order else differs from process to process.
            example = convert_to_example(record).SerializeToString(deterministic=True)
            self._file.write(frame(example))

    def _finish(self) -> None:
        """Does nothing: `_write` has written everything."""


class File(RecordFile):
    """Reads TFRecords, whose sidecar must be beside them."""

    format = "tfrecord"
    _unchecked = ()  # each record has checksums

    def _read_header(self) -> Header:
        header = read_sidecar(self.path)
        if header is None:
            raise OutputError(
                f"cannot read {self.path} as tfrecord: there is no {sidecar_path(self.path)}, "
                "which lists its features; copy it beside the file"
            )
        return header

    def _records(self, wanted: range) -> Iterator[FeatureRecord]:
        tf = import_tensorflow()

        for framed in self._pieces(wanted):
            serialized = check_frame(framed)
            yield self._parse(tf.train.Example.FromString(serialized))

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

    def _parse(self, example: Any) -> FeatureRecord:
        columns = example.features.feature
        levels = levels_of(self.features)
        parts: dict[str, Any] = {}
        if "token" in levels:
            parts["tokens"] = _texts(columns["tokens"])
            parts["token_ids"] = _integers(columns["token_ids"], len(parts["tokens"]))
        if "word" in levels:
            parts["words"] = _texts(columns["words"])
            parts["word_spans"] = WordSpans(
                *(_integers(columns[name], len(parts["words"])) for name in SPANS)
            )
        return FeatureRecord(
            unique_id=_unique_id(example, self.id_type),
            features={f.name: _values(columns[f.name], f, parts) for f in self.features},
            **parts,
        )


def frame(serialized: bytes) -> bytes:
    """A serialized example with its length and its checksums, as it stands in the file."""
    length = len(serialized).to_bytes(8, "little")
    return b"".join(
        [
            length,
            CHECKSUM.pack(_masked_checksum(length)),
            serialized,
            CHECKSUM.pack(_masked_checksum(serialized)),
        ]
    )


def _masked_checksum(data: bytes) -> int:
    # Rotated and a constant added, so that it differs from the CRC of bytes that hold a CRC.
    crc = checksum(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def check_frame(framed: bytes) -> bytes:
    """The serialized example inside its frame, after both checksums were compared.

    Raises:
      ValueError: a checksum is wrong.
    """
    length, of_length = LENGTH.unpack_from(framed)
    data = framed[LENGTH.size : LENGTH.size + length]
    (of_data,) = CHECKSUM.unpack_from(framed, LENGTH.size + length)
    if (_masked_checksum(framed[:8]), _masked_checksum(data)) != (of_length, of_data):
        raise ValueError("the checksum of a record does not match its bytes")
    return data


def _unique_id(example: Any, id_type: str) -> int | str:
    column = example.features.feature["unique_id"]
    (unique_id,) = _texts(column) if id_type == "str" else column.int64_list.value
    checked: int | str = unique_id
    return checked


def _texts(feature: Any) -> tuple[str, ...]:
    return tuple(text.decode("utf-8") for text in feature.bytes_list.value)


def _integers(feature: Any, count: int) -> np.ndarray:
    values = np.array(feature.int64_list.value, np.int32)
    if len(values) != count:
        raise ValueError(f"an example has {len(values)} numbers for {count} texts")
    return values


def _values(serialized: Any, feature: Feature, parts: dict[str, Any]) -> np.ndarray:
    tf = import_tensorflow()

    (tensor,) = serialized.bytes_list.value
    values: np.ndarray = tf.io.parse_tensor(tensor, feature.dtype).numpy()
    counts = {"token": "tokens", "word": "words"}
    rows = [len(parts[counts[feature.level]])] if feature.level in counts else []
    if values.shape != (*rows, feature.width):
        raise ValueError(f"{feature.name} is {values.shape}, expected {(*rows, feature.width)}")
    return values


def convert_to_example(record: FeatureRecord) -> Any:
    """A `tf.train.Example` with the fields this module's docstring lists."""
    tf = import_tensorflow()

    def integers(values: Any) -> Any:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    def texts(values: Any) -> Any:
        encoded = [text.encode("utf-8") for text in values]
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=encoded))

    def tensor(values: np.ndarray) -> Any:
        # A TensorProto made without an op: nothing is placed on a device.
        serialized = tf.make_tensor_proto(values).SerializeToString()
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[serialized]))

    is_text = isinstance(record.unique_id, str)
    columns = {"unique_id": (texts if is_text else integers)([record.unique_id])}
    if record.tokens is not None:
        ids = [] if record.token_ids is None else record.token_ids.tolist()
        columns |= {"tokens": texts(record.tokens), "token_ids": integers(ids)}
    if record.words is not None:
        columns["words"] = texts(record.words)
        for name in SPANS:
            values = getattr(record.word_spans, name.removeprefix("word_"))
            columns[name] = integers(values.tolist())
    columns |= {name: tensor(values) for name, values in record.features.items()}
    return tf.train.Example(features=tf.train.Features(feature=columns))

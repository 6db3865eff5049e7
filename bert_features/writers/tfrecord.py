"""TFRecord: one `tf.train.Example` per record.

Features of each: `unique_id` int64 [1], `tokens` bytes [tokens] (UTF-8), `token_ids` int64
[tokens], and one bytes value per feature, which `tf.io.parse_tensor` turns into float16 or float32
[tokens, D]. The metadata lies beside the file, in `PATH.metadata.json`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from bert_features.errors import OutputError
from bert_features.quiet_tensorflow import import_tensorflow
from bert_features.records import FeatureBatch, FeatureRecord
from bert_features.writers.base import FeatureWriter, sidecar_path
from bert_features.writers.reader import FeatureFile, Header, read_sidecar


class Writer(FeatureWriter):
    """Writes TFRecords and their sidecar."""

    has_sidecar = True

    def _open(self) -> None:
        tf = import_tensorflow()

        self._writer = tf.io.TFRecordWriter(str(self._partial(self.path)))

    def _write(self, batch: FeatureBatch) -> None:
        for record in batch.records():
            self._writer.write(convert_to_example(record).SerializeToString())

    def _finish(self) -> None:
        self._writer.close()

    def _abandon(self) -> None:
        self._writer.close()


class File(FeatureFile):
    """Reads TFRecords; their sidecar has to lie beside them."""

    format = "tfrecord"

    def _read_header(self) -> Header:
        header = read_sidecar(self.path)
        if header is None:
            raise OutputError(
                f"cannot read {self.path} as tfrecord: there is no {sidecar_path(self.path)}, "
                "which says what its features are; copy it beside the file"
            )
        return header

    def _records(self) -> Iterator[FeatureRecord]:
        tf = import_tensorflow()

        seen = 0
        for serialized in tf.data.TFRecordDataset(str(self.path)).as_numpy_iterator():
            yield self._record(tf.train.Example.FromString(serialized))
            seen += 1
        self._check_count(seen)

    def _record(self, example: Any) -> FeatureRecord:
        tf = import_tensorflow()

        columns = example.features.feature
        tokens = tuple(token.decode("utf-8") for token in columns["tokens"].bytes_list.value)
        features = {}
        for feature in self.features:
            (serialized,) = columns[feature.name].bytes_list.value
            values = tf.io.parse_tensor(serialized, feature.dtype).numpy()
            if values.shape != (len(tokens), feature.width):
                raise ValueError(f"{feature.name} of {len(tokens)} tokens is {values.shape}")
            features[feature.name] = values
        return FeatureRecord(
            unique_id=columns["unique_id"].int64_list.value[0],
            tokens=tokens,
            token_ids=np.array(columns["token_ids"].int64_list.value, np.int32),
            features=features,
        )


def convert_to_example(record: FeatureRecord) -> Any:
    """A `tf.train.Example` with the fields this module's docstring lists."""
    tf = import_tensorflow()

    def integers(values: Any) -> Any:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    def texts(values: list[bytes]) -> Any:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))

    columns = {
        "unique_id": integers([record.unique_id]),
        "tokens": texts([token.encode("utf-8") for token in record.tokens]),
        "token_ids": integers([] if record.token_ids is None else record.token_ids.tolist()),
    }
    for name, values in record.features.items():
        # A TensorProto made without an op: nothing is placed on a device.
        columns[name] = texts([tf.make_tensor_proto(values).SerializeToString()])
    return tf.train.Example(features=tf.train.Features(feature=columns))

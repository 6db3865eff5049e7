"""TFRecords as TensorFlow reads them."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_features.errors import OutputError
from bert_features.formats import IdType, read_features
from bert_features.formats.records import SPANS
from tests.formats.feature_files import ONE, cells_of, make_batch, mix, write


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
@pytest.mark.parametrize("id_type", ["int", "str"])
def test_tfrecord_as_tensorflow_sees_it(tmp_path: Path, dtype: str, id_type: IdType) -> None:
    features = mix("token", "word", "sequence", dtype=dtype)
    batch = make_batch(features, [2, 0], id_type=id_type)
    path = tmp_path / "f.tfrecord"
    write(path, "tfrecord", features, batch, id_type=id_type)
    texts, numbers = tf.io.RaggedFeature(tf.string), tf.io.RaggedFeature(tf.int64)
    identifier = tf.string if id_type == "str" else tf.int64
    spec = {
        "unique_id": tf.io.FixedLenFeature([], identifier),
        **dict.fromkeys(("tokens", "words"), texts),
        **dict.fromkeys(("token_ids", *SPANS), numbers),
        **{f.name: tf.io.FixedLenFeature([], tf.string) for f in features},
    }
    examples = [tf.io.parse_single_example(e, spec) for e in tf.data.TFRecordDataset(str(path))]
    for example, record in zip(examples, batch.records(features), strict=True):
        for name, cell in cells_of(record).items():
            received = example[name]
            if name in record.features:
                received = tf.io.parse_tensor(received, dtype)
            if name in ("tokens", "words") or isinstance(cell, str):
                cell = np.char.encode(np.array(cell, np.str_), "utf-8").astype(object)
            np.testing.assert_array_equal(received.numpy(), cell)
    assert json.loads((tmp_path / "f.tfrecord.metadata.json").read_text())["records"] == 2


def test_a_tfrecord_without_its_sidecar(tmp_path: Path) -> None:
    path = tmp_path / "f.tfrecord"
    write(path, "tfrecord", ONE, make_batch(ONE, [1]))
    (tmp_path / "f.tfrecord.metadata.json").unlink()
    with pytest.raises(OutputError, match=r"no .*\.metadata\.json"):
        read_features(path)


def test_the_fields_of_an_example_are_in_order(tmp_path: Path) -> None:
    """Else the order differs between processes, and the same input gives other bytes."""
    features = tuple(dataclasses.replace(ONE[0], name=name) for name in "zyxwvsrqpo")
    path = tmp_path / "f.tfrecord"
    write(path, "tfrecord", features, make_batch(features, [1]))
    names = sorted([*"opqrsvwxyz", "token_ids", "tokens", "unique_id"])
    # A map entry: its key is field 1, a length and the name; its value is field 2.
    keys = [b"\n" + bytes([len(name)]) + name.encode() + b"\x12" for name in names]
    content = path.read_bytes()
    places = [content.find(key) for key in keys]
    assert -1 not in places
    assert places == sorted(places)

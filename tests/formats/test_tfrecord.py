"""TFRecords as TensorFlow reads them."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from bert_features.errors import OutputError
from bert_features.formats import (
    read_features,
)
from tests.formats.feature_files import (
    ONE,
    assert_refused,
    make_batch,
    make_sidecar_old,
    mix,
    several,
    write,
)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_tfrecord_as_tensorflow_sees_it(tmp_path: Path, dtype: str) -> None:
    tf = pytest.importorskip("tensorflow")
    features = several(dtype)
    batch = make_batch(features, [2, 0])
    path = tmp_path / "f.tfrecord"
    write(path, "tfrecord", features, batch)
    spec = {
        "unique_id": tf.io.FixedLenFeature([], tf.int64),
        "tokens": tf.io.RaggedFeature(tf.string),
        "token_ids": tf.io.RaggedFeature(tf.int64),
        **{f.name: tf.io.FixedLenFeature([], tf.string) for f in features},
    }
    examples = [tf.io.parse_single_example(e, spec) for e in tf.data.TFRecordDataset(str(path))]
    for example, record in zip(examples, batch.records(features), strict=True):
        assert int(example["unique_id"]) == record.unique_id
        assert [t.decode() for t in example["tokens"].numpy().tolist()] == list(record.tokens or ())
        np.testing.assert_array_equal(example["token_ids"].numpy(), record.token_ids)
        values = tf.io.parse_tensor(example["last four"], dtype).numpy()
        np.testing.assert_array_equal(values, record.features["last four"])
    assert json.loads((tmp_path / "f.tfrecord.metadata.json").read_text())["records"] == 2


def test_tfrecord_of_words_and_sequences(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    features = mix("word", "sequence", dtype="bfloat16")
    batch = make_batch(features, [2, 0], id_type="str")
    path = tmp_path / "f.tfrecord"
    write(path, "tfrecord", features, batch, id_type="str")
    spec = {
        "unique_id": tf.io.FixedLenFeature([], tf.string),
        "words": tf.io.RaggedFeature(tf.string),
        "word_num_pieces": tf.io.RaggedFeature(tf.int64),
        "sentence": tf.io.FixedLenFeature([], tf.string),
    }
    examples = [tf.io.parse_single_example(e, spec) for e in tf.data.TFRecordDataset(str(path))]
    for example, record in zip(examples, batch.records(features), strict=True):
        assert example["unique_id"].numpy().decode() == record.unique_id
        assert [w.decode() for w in example["words"].numpy().tolist()] == list(record.words or ())
        assert record.word_spans is not None
        np.testing.assert_array_equal(
            example["word_num_pieces"].numpy(), record.word_spans.num_pieces
        )
        values = tf.io.parse_tensor(example["sentence"], tf.bfloat16).numpy()
        np.testing.assert_array_equal(values, record.features["sentence"])


def test_a_tfrecord_whose_bytes_changed(tmp_path: Path) -> None:
    path = tmp_path / "f.tfrecord"
    write(path, "tfrecord", ONE, make_batch(ONE, [5, 5]))
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
    make_sidecar_old(path)
    assert_refused(path, "tfrecord")


def test_a_tfrecord_without_its_sidecar(tmp_path: Path) -> None:
    path = tmp_path / "f.tfrecord"
    write(path, "tfrecord", ONE, make_batch(ONE, [1]))
    (tmp_path / "f.tfrecord.metadata.json").unlink()
    with pytest.raises(OutputError, match=r"there is no .*\.metadata\.json, .* copy it beside"):
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

"""Several features files read as one, if their vectors may be compared."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from bert_features import nearest, read_features
from bert_features.config.features import OutputSpec
from bert_features.errors import OutputError
from bert_features.formats import open_writer
from bert_features.formats.records import FeatureBatch
from tests.recipes import metadata_of

WHOLE = OutputSpec("whole", (-1,), "none", 4, "float32", "sequence", "mean", states=(3,))
RNG = np.random.default_rng(7)


def make(path, count, first=0, *, feature=WHOLE, metadata=None, ids=None):
    metadata = metadata_of(feature) if metadata is None else metadata
    values = RNG.normal(size=(count, 4)).astype(feature.dtype)
    numbers = np.arange(first, first + count) if ids is None else np.array(ids, object)
    batch = FeatureBatch(numbers, {feature.name: values})
    id_type = "int" if ids is None else "str"
    options = {"features": (feature,), "metadata": metadata, "id_type": id_type}
    with open_writer(path, format=path.suffix[1:], **options) as writer:
        writer.write(batch)
    return values


def test_records_come_in_the_order_of_the_files(tmp_path):
    paths = [tmp_path / name for name in ("a.npz", "b.npz", "c.parquet")]
    parts = [
        make(path, n, first) for path, n, first in zip(paths, (3, 2, 4), (0, 3, 5), strict=True)
    ]
    values = np.concatenate(parts)
    with read_features(paths) as joined:
        assert len(joined) == 9
        assert joined.ids.tolist() == list(range(9))
        for i in (0, 2, 3, 8, -1):
            np.testing.assert_array_equal(joined[i].features["whole"], values[i])
        np.testing.assert_array_equal(joined.by_id(4).features["whole"], values[4])
        np.testing.assert_array_equal(joined.ragged("whole")[0], values)
        np.testing.assert_array_equal(joined[2:6].ragged("whole")[0], values[2:6])
        assert [record.unique_id for record in joined[2:6]] == [2, 3, 4, 5]
        assert joined.verify() == ()
        assert len(joined.to_pandas()) == len(joined.to_arrow()) == 9
        assert [count for count, _ in joined.texts()] == [3, 2, 4]
        again = pickle.loads(pickle.dumps(joined))
        np.testing.assert_array_equal(again.ragged("whole")[0], values)
        assert repr(joined).startswith("<npz+parquet files ")
        assert "in 3 files of whole" in repr(joined)
        best = nearest(joined, values[7].astype(float), top=1)
        assert [found.unique_id for found in best] == [7]
    one = read_features(paths[:1])
    assert len(one) == 3


def test_files_of_two_recipes_are_refused(tmp_path):
    make(tmp_path / "a.npz", 3)
    other = metadata_of(WHOLE, sha256="cd" * 32)
    prompt = metadata_of(WHOLE, texts={"prompt": "query: "})
    half = replace(WHOLE, dtype="float16")
    for name, options, problem in [
        ("b.npz", {"metadata": other}, "whole: other: checkpoint abababababab… and cdcd"),
        ("c.npz", {"metadata": prompt}, "whole: other: prompt None and 'query: '"),
        (
            "d.npz",
            {"feature": half},
            r"they have whole float32 \[4\] and whole float16 \[4\]; extr",
        ),
        ("e.npz", {"ids": ["x", "y"]}, "ids are int and str; extract one of them again"),
        ("f.npz", {"metadata": {}}, "f.npz does not record how its features were made"),
    ]:
        make(tmp_path / name, 2, **options)
        with pytest.raises(OutputError, match=problem):
            read_features([tmp_path / "a.npz", tmp_path / name])
    with pytest.raises(OutputError, match=r"list of .* is empty"):
        read_features([])
    for wrong in (None, 3, [3], read_features(tmp_path / "a.npz")):
        with pytest.raises(OutputError, match=r"path is of type \w+"):
            read_features(wrong)


def test_the_same_layer_by_two_numbers_is_read_as_one(tmp_path):
    make(tmp_path / "a.npz", 3)
    make(tmp_path / "b.npz", 2, feature=replace(WHOLE, layers=(2,)))
    assert len(read_features([tmp_path / "a.npz", tmp_path / "b.npz"])) == 5


def test_codes_of_other_scales_are_refused(tmp_path):
    for name, least in (("a.npz", -1.0), ("b.npz", -1.0), ("c.npz", -2.0)):
        small = replace(WHOLE, dtype="int8", scale=((least,) * 4, (1.0,) * 4))
        make(tmp_path / name, 3, feature=small)
    paths = [tmp_path / name for name in ("a.npz", "b.npz")]
    with read_features(paths, floats=True) as joined:
        assert joined.ragged("whole")[0].dtype == np.float32
        assert len(joined.texts()) == 2
        assert joined.recipe.outputs["whole"]["dtype"] == "int8"
    message = "whole has another scale; extract one of them again, with the other as its scale_f"
    with pytest.raises(OutputError, match=message):
        read_features([tmp_path / "a.npz", tmp_path / "c.npz"])


def test_files_without_a_checksum_of_their_metadata_are_not_damaged(tmp_path, caplog):
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path in paths:
        make(path, 3)
        table = pq.read_table(path)
        metadata = json.loads(table.schema.metadata[b"bert_features"])
        del metadata["metadata_crc32c"]
        pq.write_table(table.replace_schema_metadata({"bert_features": json.dumps(metadata)}), path)
    with read_features(paths, verify=True) as joined:
        assert len(joined) == 6
    assert "not checked: metadata, which have no checksum" in caplog.text

"""Every format keeps the same contract: what is written is read, by every way to a record."""

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from bert_features.errors import OutputError
from bert_features.formats import (
    IdType,
    open_writer,
    output_format,
    read_features,
)
from tests.formats.feature_files import (
    METADATA,
    MIXES,
    MIXES_AND_IDS,
    ONE,
    SUFFIX,
    UNCHECKED,
    all_formats,
    assert_all_same,
    assert_empty,
    assert_reads,
    expected_records,
    make_batch,
    mix,
    some_batches,
    write,
)


@all_formats
@pytest.mark.parametrize(("name", "id_type"), MIXES_AND_IDS)
def test_every_way_to_a_record_gives_the_same(
    tmp_path: Path, format: str, name: str, id_type: IdType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has several groups, and is read in chunks; the longest example is a chunk alone."""
    monkeypatch.setattr("bert_features.formats.groups.ENOUGH_ROWS", 4)
    monkeypatch.setattr("bert_features.formats.reader.CHUNK_RECORDS", 3)
    monkeypatch.setattr("bert_features.formats.reader.CHUNK_BYTES", 200)
    features = MIXES[name]
    batches = some_batches(features, id_type)
    path = tmp_path / f"f{SUFFIX[format]}"
    writer = write(path, format, features, *batches, id_type=id_type)
    file = read_features(path)
    assert (file.path, file.format, len(file)) == (path, format, writer.records)
    assert (file.features, file.id_type, file.metadata["id_type"]) == (features, id_type, id_type)
    assert {k: file.metadata[k] for k in METADATA} == METADATA
    assert file.metadata.keys() == METADATA.keys() | {"features", "format_version", "id_type"}
    assert_reads(file, list(expected_records(format, *batches, features=features)))
    assert set(file.verify()) <= set(UNCHECKED[format])
    if format == "npz":
        assert isinstance(file.ragged(features[0].name)[0], np.memmap)


@all_formats
def test_a_file_without_records(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, ONE)
    file = read_features(path)
    assert_empty(file)
    assert file.metadata["checkpoint"] == "sha256:ab"
    assert file.verify() == UNCHECKED[format]


@all_formats
def test_the_checksum_of_the_texts_is_known_at_the_end(tmp_path: Path, format: str) -> None:
    """Three features of long names: the metadata of Arrow has it at both of its places."""
    path = tmp_path / f"f{SUFFIX[format]}"
    features, batch = MIXES["all"], some_batches(MIXES["all"])[0]
    with open_writer(path, format=format, features=features, metadata=METADATA) as writer:
        writer.write(batch)
        writer.texts_crc32c = "0123abcd"
    file = read_features(path, verify=True)
    assert file.metadata["texts_crc32c"] == "0123abcd"
    assert file.texts() == [(len(batch), "0123abcd")]
    assert_all_same(file, expected_records(format, batch, features=features))


@all_formats
def test_views_and_foreign_layouts_are_written_right(tmp_path: Path, format: str) -> None:
    batch = make_batch(ONE, [4, 1])
    values = np.asfortranarray(batch.features["layer_output_0"])
    values.flags.writeable = False
    odd = batch.copy()
    odd.levels["token"].features["layer_output_0"] = values
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, ONE, odd)
    assert_all_same(read_features(path), expected_records(format, batch))


@pytest.mark.parametrize("format", ["jsonl", "tfrecord"])
def test_bfloat16(tmp_path: Path, format: str) -> None:
    features = mix("token", "word", "sequence", dtype="bfloat16")
    batches = some_batches(features)
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, features, *batches)
    expected = list(expected_records(format, *batches, features=features))
    file = read_features(path)
    assert str(file[0].features["sentence"].dtype) == "bfloat16"
    assert_all_same(file, expected)
    # Arrow has no such type; float32 holds each of its values.
    received = file.to_arrow()["sentence"].to_pylist()
    np.testing.assert_array_equal(
        received, np.array([r.features["sentence"].astype(np.float32) for r in expected])
    )


def test_the_format_of_an_output() -> None:
    assert output_format("f.H5") == "hdf5"
    assert output_format("f.h5", "hdf5") == "hdf5"
    # A suffix that belongs to no format is the user's own business, once the format is named.
    assert output_format("f.csv", "npz") == "npz"
    assert output_format("f", "parquet") == "parquet"
    with pytest.raises(OutputError, match=r"f\.npz"):
        output_format("f.npz", "jsonl")
    with pytest.raises(OutputError, match=r"f\.csv"):
        output_format("f.csv")
    with pytest.raises(OutputError, match="format"):
        output_format("f")


@pytest.mark.slow
def test_importing_the_package_is_cheap() -> None:
    code = """
        import sys, bert_features.formats
        heavy = {"tensorflow", "h5py", "pyarrow", "keras"} & sys.modules.keys()
        assert not heavy, heavy
        from bert_features.formats import parquet, arrow, jsonl, npz, hdf5, tfrecord
        heavy = {"tensorflow", "h5py", "pyarrow", "keras"} & sys.modules.keys()
        assert not heavy, heavy
    """
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, cwd=root)

"""Damage at rest: what is flipped on the disk is noticed, or changes no value."""

import random
from pathlib import Path

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest

from bert_features.errors import OutputError
from bert_features.files.checksums import checksum_of_file
from bert_features.formats import FORMATS, open_writer, read_features
from bert_features.formats.arrow import ColumnChecksums
from tests.formats.feature_files import (
    EVERYTHING,
    ONE,
    SIDECARS,
    SUFFIX,
    UNCHECKED,
    all_formats,
    assert_all_same,
    expected_records,
    make_batch,
    mix,
    some_batches,
    write,
)


@all_formats
@pytest.mark.parametrize("examples", [3, 40_000], ids=["at once", "in a thread"])
def test_a_writer_takes_the_checksum_of_its_file(
    tmp_path: Path, format: str, examples: int
) -> None:
    path = tmp_path / "f"
    with open_writer(path, format=format, features=ONE, metadata={}, checksum=True) as writer:
        writer.write(make_batch(ONE, [3] * examples))
    goes_back = format in {"npz", "hdf5"}
    assert writer.crc32c == (None if goes_back else checksum_of_file(path))


def test_a_checksum_that_nobody_needs_is_not_taken(tmp_path: Path) -> None:
    with open_writer(tmp_path / "f", format="arrow", features=ONE, metadata={}) as writer:
        writer.write(make_batch(ONE, [3]))
    assert writer.crc32c is None


def test_columns_are_summed_however_batches_are_cut() -> None:
    batch = make_batch(EVERYTHING, [3, 0, 7], id_type="str")
    whole, parts = ColumnChecksums(EVERYTHING, "str"), ColumnChecksums(EVERYTHING, "str")
    whole.add(batch)
    for start, stop in ((0, 1), (1, 1), (1, 3)):
        parts.add(batch.part(start, stop))
    assert parts.of_columns() == whole.of_columns()
    by_hand = {
        "unique_ids": "".join(f"{text}\0" for text in batch.unique_ids).encode(),
        "row_splits": np.array([5, 2, 9], "<i8").tobytes(),
        "sum": batch.features["sum"].tobytes(),
    }
    for name, data in by_hand.items():
        assert whole.of_columns()[name] == f"{google_crc32c.value(data):08x}"


FLIPS = 60


@all_formats
def test_a_flipped_bit_is_noticed_or_changes_nothing(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"f{SUFFIX[format]}"
    features = mix("sequence") if UNCHECKED[format] else EVERYTHING  # sequences have no texts
    batches = some_batches(features)
    write(path, format, features, *batches)
    expected = list(expected_records(format, *batches, features=features))
    metadata = read_features(path).metadata
    content = path.read_bytes()
    chosen = random.Random(0)
    noticed = 0
    for _ in range(FLIPS):
        place, bit = chosen.randrange(len(content)), chosen.randrange(8)
        flipped = bytearray(content)
        flipped[place] ^= 1 << bit
        path.write_bytes(flipped)
        try:
            with read_features(path, verify=True) as file:
                assert_all_same(file, expected)
                assert file.metadata == metadata, (place, bit)
        except OutputError:
            noticed += 1
    assert noticed > FLIPS // 10  # most of a small HDF5 file is empty


@pytest.mark.parametrize("format", sorted(FORMATS.keys() - {"jsonl"}))
@pytest.mark.parametrize("name", [feature.name for feature in EVERYTHING])
def test_a_flipped_bit_of_a_value_is_noticed(tmp_path: Path, format: str, name: str) -> None:
    """These flips change a value, so none of them may pass."""
    path = tmp_path / f"f{SUFFIX[format]}"
    batch = make_batch(EVERYTHING, [3, 5, 7])
    write(path, format, EVERYTHING, batch)
    content = bytearray(path.read_bytes())
    values = batch.features[name].tobytes()[:8]  # they lie in the file as they are
    place = content.find(values)
    assert place > 0
    content[place + 2] ^= 4
    path.write_bytes(content)
    with pytest.raises(OutputError, match=DAMAGE[format]):
        read_features(path, verify=True)


def test_a_record_batch_without_the_checksums_that_others_have(tmp_path: Path) -> None:
    path, copy = tmp_path / "f.arrow", tmp_path / "copy.arrow"
    write(path, "arrow", ONE, *(make_batch(ONE, [3] * 1024) for _ in range(2)))
    with pa.ipc.open_file(path) as file, pa.ipc.new_file(copy, file.schema) as written:
        groups = [*map(file.get_batch_with_custom_metadata, range(file.num_record_batches))]
        for number, (group, checksums) in enumerate(groups):
            written.write_batch(group, checksums if number else None)
    assert len(groups) == 2
    with pytest.raises(OutputError, match="lost its checksums"):
        read_features(copy, verify=True)


DAMAGE = {
    "parquet": r"cannot read .* as parquet: it is damaged, .*CRC checksum verification failed",
    "arrow": r"as arrow: it is damaged, .*\(records 0 to 2: the values of .* are not those that w",
    "npz": r"as npz: it is damaged, .*is not as it was written",
    "hdf5": r"as hdf5: it is damaged, .*filter returned failure",
    "tfrecord": r"does not belong to it: the first or last 64 KiB",
}


@pytest.mark.parametrize("format", sorted(SIDECARS))
def test_damage_far_from_both_ends_is_noticed(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every line of JSON can still be read; only the checksum of the file shows the damage."""
    monkeypatch.setattr("bert_features.files.checksums.END_BYTES", 64)
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, ONE, make_batch(ONE, [3] * 30))
    content = bytearray(path.read_bytes())
    place = len(content) // 2
    if format == "jsonl":
        place = content.index(b"values", place) + 13
    content[place] ^= 1  # another digit
    path.write_bytes(content)
    assert len(read_features(path)) == 30  # the cheap check of opening
    with pytest.raises(OutputError, match="its bytes are not those"):
        read_features(path, verify=True)


# Parquet has it a second time, in the schema of Arrow, which is the one that counts.
@pytest.mark.parametrize("format", sorted(FORMATS.keys() - {"parquet"}))
def test_metadata_that_changed(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, ONE, make_batch(ONE, [3]))
    place = path.with_name(f"{path.name}.metadata.json") if format in SIDECARS else path
    old, new = (text.encode("utf-32-le" if format == "npz" else "utf-8") for text in ("ab", "aa"))
    content = place.read_bytes()
    prefix = "sha256:".encode("utf-32-le" if format == "npz" else "utf-8")
    assert prefix + old in content
    place.write_bytes(content.replace(prefix + old, prefix + new))
    assert read_features(path).metadata["checkpoint"] == "sha256:aa"
    with pytest.raises(OutputError, match="metadata is not as"):
        read_features(path, verify=True)


def test_files_without_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Files that another program wrote again are read; `verify` names what was not checked."""
    import pyarrow as pa

    batch = make_batch(ONE, [3, 1])
    write_batch = pa.ipc.RecordBatchFileWriter.write_batch
    with monkeypatch.context() as patch:
        patch.setattr(
            pa.ipc.RecordBatchFileWriter,
            "write_batch",
            lambda self, batch, metadata: write_batch(self, batch),
        )
        for format in FORMATS:
            write(tmp_path / f"f{SUFFIX[format]}", format, ONE, batch)
    monkeypatch.setattr("bert_features.formats.headers.METADATA_CHECKSUM", "of a later version")
    unchecked = {}
    for format in FORMATS:
        path = tmp_path / f"f{SUFFIX[format]}"
        unchecked[format] = read_features(path).verify()
        assert_all_same(read_features(path, verify=True), expected_records(format, batch))
    assert unchecked == {
        "parquet": ("metadata",),
        "arrow": ("values", "metadata"),
        "jsonl": ("metadata",),
        "npz": (),  # an archive has always had checksums
        "hdf5": ("texts", "metadata"),
        "tfrecord": ("metadata",),
    }
    assert (
        f"{tmp_path / 'f.arrow'}: not checked: values and metadata, which have no checksum"
        in caplog.messages
    )

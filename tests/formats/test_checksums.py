"""Damage at rest: what is flipped on the disk is noticed, or changes no value."""

import json
import logging
import random
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest

from bert_features.errors import OutputError
from bert_features.formats import FORMATS, IdType, checksums, open_writer, read_features
from bert_features.formats.checksums import ChecksummedFile, ColumnChecksums, checksum_of_file
from tests.formats.feature_files import (
    EVERYTHING,
    ONE,
    SIDECARS,
    SUFFIX,
    all_formats,
    assert_all_same,
    expected_records,
    make_batch,
    make_sidecar_old,
    some_batches,
    write,
)


def test_a_file_that_is_written_is_summed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "BLOCK_BYTES", 4)
    path = tmp_path / "f"
    with path.open("wb") as raw:
        file = ChecksummedFile(raw)
        for part in (b"1234", b"", b"56789"):
            file.write(part)
    # The check value of CRC-32C.
    assert checksum_of_file(path) == "e3069283" == f"{file.crc:08x}"


def test_columns_are_summed_however_batches_are_cut() -> None:
    batch = make_batch(EVERYTHING, [3, 0, 7], id_type="str")
    whole = ColumnChecksums(EVERYTHING, "str")
    whole.add(batch)
    parts = ColumnChecksums(EVERYTHING, "str")
    for start, stop in ((0, 1), (1, 1), (1, 3)):
        parts.add(batch.part(start, stop))
    assert parts.of_columns() == whole.of_columns()
    by_hand = "".join(f"{text}\0" for text in batch.unique_ids).encode()
    assert whole.of_columns()["unique_ids"] == f"{google_crc32c.value(by_hand):08x}"
    by_hand = np.array([5, 2, 9], "<i8").tobytes()
    assert whole.of_columns()["row_splits"] == f"{google_crc32c.value(by_hand):08x}"
    values = batch.features["sum"].tobytes()
    assert whole.of_columns()["sum"] == f"{google_crc32c.value(values):08x}"


@all_formats
@pytest.mark.parametrize("id_type", ["int", "str"])
def test_a_file_that_is_whole_passes(tmp_path: Path, format: str, id_type: IdType) -> None:
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, EVERYTHING, *some_batches(EVERYTHING, id_type), id_type=id_type)
    assert read_features(path).verify() == ()
    assert len(read_features(path, verify=True)) == 6


@all_formats
def test_a_file_without_records_passes(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, ONE)
    assert read_features(path).verify() == ()


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_the_group_that_is_damaged_is_named(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bert_features.formats.groups.ENOUGH_ROWS", 2)
    monkeypatch.setattr("bert_features.formats.checksums._number_bytes", odd_number_bytes())
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, ONE, *(make_batch(ONE, [3, 1], first_id=2 * i) for i in range(3)))
    monkeypatch.undo()
    message = r"\(records 2 to 3: the values of unique_ids are not those that were written\)"
    with pytest.raises(OutputError, match=message):
        read_features(path, verify=True)


def odd_number_bytes() -> Any:
    """The bytes of numbers, but for the ids 2 and 3."""
    right = checksums._number_bytes
    return lambda values, dtype: b"" if 2 in values and 3 in values else right(values, dtype)


@all_formats
def test_a_flipped_bit_is_noticed_or_changes_nothing(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"f{SUFFIX[format]}"
    batches = some_batches(EVERYTHING)
    write(path, format, EVERYTHING, *batches)
    expected = list(expected_records(format, *batches, features=EVERYTHING))
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
            file = read_features(path, verify=True)
        except OutputError:
            noticed += 1
            continue
        assert_all_same(file, expected)
        assert file.metadata == metadata, (place, bit)
        file.close()
    assert noticed > FLIPS // 2


FLIPS = 60


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
    monkeypatch.setattr("bert_features.formats.sidecar.END_BYTES", 64)
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, ONE, make_batch(ONE, [3] * 30))
    content = bytearray(path.read_bytes())
    place = len(content) // 2
    place = content.index(b"values", place) if format == "jsonl" else place
    content[place] ^= 1
    path.write_bytes(content)
    assert len(read_features(path)) == 30  # the cheap check of opening
    with pytest.raises(OutputError, match=rf"cannot read {path} as {format}: .*\(record \d+: "):
        read_features(path, verify=True)


def test_a_digit_of_jsonl_that_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line can still be read; only the checksum of the file shows it."""
    monkeypatch.setattr("bert_features.formats.sidecar.END_BYTES", 64)
    path = tmp_path / "f.jsonl"
    write(path, "jsonl", ONE, make_batch(ONE, [3] * 30))
    content = bytearray(path.read_bytes())
    place = content.index(b"values", len(content) // 2) + 13
    content[place] = ord("1") if content[place] != ord("1") else ord("2")
    path.write_bytes(content)
    assert len(list(read_features(path))) == 30
    with pytest.raises(OutputError, match=r"\(its bytes are not those that were written\)"):
        read_features(path, verify=True)


@pytest.mark.parametrize("format", sorted(SIDECARS))
def test_a_sidecar_that_changed(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, ONE, make_batch(ONE, [3]))
    sidecar = tmp_path / f"{path.name}.metadata.json"
    sidecar.write_text(sidecar.read_text().replace("sha256:ab", "sha256:aa"))
    assert read_features(path).metadata["checkpoint"] == "sha256:aa"
    with pytest.raises(OutputError, match=r"metadata\.json is not as it was written"):
        read_features(path, verify=True)


def test_files_without_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of earlier versions are read, and it is said what could not be checked."""
    batch = make_batch(ONE, [3, 1])
    unchecked = {}
    for format in FORMATS:
        path = tmp_path / f"f{SUFFIX[format]}"
        with monkeypatch.context() as patch:
            write_as_before(patch, path, format, batch)
        unchecked[format] = read_features(path).verify()
        assert_all_same(read_features(path, verify=True), expected_records(format, batch))
    everything = ("values", "metadata")
    assert unchecked == {
        **dict.fromkeys(("parquet", "arrow", "jsonl", "hdf5"), everything),
        "npz": (),  # an archive has always had checksums
        "tfrecord": ("metadata",),
    }
    assert (
        f"{tmp_path / 'f.parquet'}: not checked: values and metadata, which have no checksum"
        in caplog.messages
    )


def write_as_before(patch: pytest.MonkeyPatch, path: Path, format: str, batch: Any) -> None:
    """Writes a file with the bytes that earlier versions left out left out again."""
    if format == "parquet":
        from bert_features.formats.parquet_pages.row_groups import RowGroupWriter

        close = RowGroupWriter.close
        patch.setattr(RowGroupWriter, "close", lambda self, metadata: close(self, {}))
    if format == "arrow":
        import pyarrow as pa

        write_batch = pa.ipc.RecordBatchFileWriter.write_batch
        patch.setattr(
            pa.ipc.RecordBatchFileWriter,
            "write_batch",
            lambda self, batch, metadata: write_batch(self, batch),
        )
    if format == "hdf5":
        patch.setattr("bert_features.formats.hdf5.Writer._finish", lambda self: self._h5.close())
    with open_writer(path, format=format, features=ONE, metadata={}) as writer:
        writer.write(batch)
    if format in SIDECARS:
        make_sidecar_old(path)


@all_formats
def test_damage_to_the_checksums_themselves(tmp_path: Path, format: str) -> None:
    """A checksum that changed is damage, too: nobody knows which of the two is right."""
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, ONE, make_batch(ONE, [3, 1]))
    found = ColumnChecksums(ONE, "int")
    found.add(make_batch(ONE, [3, 1]))
    place = path
    recorded = found.of_columns()["layer_output_0"].encode()
    if format in SIDECARS:
        place = tmp_path / f"{path.name}.metadata.json"
        recorded = json.loads(place.read_text())["features_file"]["crc32c"].encode()
    if format == "npz":  # a number in the directory of the archive, which is last
        import zipfile

        with zipfile.ZipFile(path) as archive:
            recorded = archive.getinfo("layer_output_0.npy").CRC.to_bytes(4, "little")
    content = bytearray(place.read_bytes())
    content[content.rindex(recorded)] ^= 1
    place.write_bytes(content)
    with pytest.raises(OutputError):
        read_features(path, verify=True)


def test_the_logger_is_silent_about_whole_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    write(tmp_path / "f.npz", "npz", ONE, make_batch(ONE, [1]))
    read_features(tmp_path / "f.npz", verify=True)
    assert caplog.messages == []

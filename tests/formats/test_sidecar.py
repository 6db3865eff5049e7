"""A features file and its sidecar belong together, or the reader says so."""

import json
from pathlib import Path

import pytest

from bert_features.errors import OutputError
from bert_features.files.checksums import checksum_of_file
from bert_features.formats import check_output, open_writer, read_features
from bert_features.formats.records import FeatureBatch
from tests.formats.feature_files import ONE, SIDECARS, make_batch

sidecar_formats = pytest.mark.parametrize("format", sorted(SIDECARS))


def write_run(path: Path, format: str, run: int, batch: FeatureBatch | None = None) -> None:
    batch = make_batch(ONE, [3, 1], seed=run) if batch is None else batch
    metadata = {"run": run}
    with open_writer(
        path, format=format, features=ONE, metadata=metadata, overwrite=True
    ) as writer:
        writer.write(batch)


def sidecar_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.metadata.json")


@sidecar_formats
def test_a_sidecar_records_its_features_file(tmp_path: Path, format: str) -> None:
    path = tmp_path / "f"
    write_run(path, format, 1)
    content = json.loads(sidecar_of(path).read_text())
    assert content["features_file"]["bytes"] == path.stat().st_size
    assert content["features_file"]["crc32c"] == checksum_of_file(path)
    # The file is smaller than 128 KiB.
    assert content["features_file"]["ends_crc32c"] == checksum_of_file(path)
    assert read_features(path, format=format).metadata["run"] == 1


@sidecar_formats
@pytest.mark.parametrize("same_size", [True, False])
def test_a_false_pair_is_refused(tmp_path: Path, format: str, same_size: bool) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    write_run(one, format, 1, make_batch(ONE, [3, 1]))
    write_run(two, format, 2, make_batch(ONE, [3, 1] if same_size else [3, 2], first_id=5))
    one.write_bytes(two.read_bytes())
    sizes_differ = r"the file has [\d,]+ bytes, the sidecar was written for one of [\d,]+"
    ends_differ = "the first or last 64 KiB of the file are not those that the sidecar records"
    # The numbers of tfrecord have a fixed size, those of JSON have not.
    is_sure = same_size and format == "tfrecord"
    reason = ends_differ if is_sure else f"({sizes_differ}|{ends_differ})"
    message = (
        rf"^cannot read {one}: {sidecar_of(one)} does not belong to it: {reason}\. One was damaged"
        r", .*; copy both again, or extract again with --overwrite$"
    )
    with pytest.raises(OutputError, match=message):
        read_features(one, format=format)


@sidecar_formats
def test_an_orphan_is_replaced_without_being_asked(tmp_path: Path, format: str) -> None:
    path = tmp_path / "f"
    write_run(path, format, 1)
    path.unlink()
    check_output(path, format=format)
    with open_writer(path, format=format, features=ONE, metadata={"run": 2}) as writer:
        orphan = sidecar_of(path).read_bytes()
    assert read_features(path, format=format).metadata["run"] == 2
    # Until the file is whole, the orphan stays.
    assert json.loads(orphan)["run"] == 1
    assert writer.bytes_written == sum(each.stat().st_size for each in tmp_path.iterdir())


@sidecar_formats
@pytest.mark.parametrize("text", ["{}", "[]", "no JSON", "\0"])
def test_a_file_that_is_no_sidecar_is_kept(tmp_path: Path, format: str, text: str) -> None:
    sidecar_of(tmp_path / "f").write_text(text)
    for refuse in (
        lambda: check_output(tmp_path / "f", format=format),
        lambda: open_writer(tmp_path / "f", format=format, features=ONE, metadata={}),
    ):
        with pytest.raises(OutputError, match="overwrite"):
            refuse()
    assert sidecar_of(tmp_path / "f").read_text() == text

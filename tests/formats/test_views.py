"""Records by number and id, slices, and all vectors of a feature."""

from pathlib import Path

import pytest

from bert_features.errors import OutputError
from bert_features.formats import read_features
from tests.formats.feature_files import ONE, SUFFIX, all_formats, make_batch, write


@all_formats
def test_requests_that_make_no_sense(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, ONE, make_batch(ONE, [1, 2, 3]))
    file = read_features(path)
    for records, bad in ((file, 3), (file, -4), (file[1:], 2), (file[1:], -3)):
        with pytest.raises(IndexError, match=f"record {bad} is outside"):
            records[bad]
    for step in (2, -1):
        with pytest.raises(OutputError, match=rf"has step 1\. Received: {step}"):
            file[::step]
    with pytest.raises(TypeError, match="'layer_output_0'; by_id"):
        file["layer_output_0"]  # type: ignore[call-overload]
    with pytest.raises(OutputError, match=r"the id 7; .* 3 ids"):
        file.by_id(7)
    with pytest.raises(OutputError, match="has the id '0'"):
        file.by_id("0")
    with pytest.raises(OutputError, match="0 to 0 has the id 2"):
        file[:1].by_id(2)
    with pytest.raises(OutputError, match="no feature 'pooled'"):
        file.ragged("pooled")
    with pytest.raises(OutputError, match="has no feature 'x'"):
        file.blocks("x")


@all_formats
def test_an_id_that_occurs_twice(tmp_path: Path, format: str) -> None:
    batch = make_batch(ONE, [1, 2, 3])
    batch.unique_ids[2] = 0
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, ONE, batch)
    file = read_features(path)
    assert len(file.by_id(0).tokens or ()) == 3  # the first
    assert len(file[1:].by_id(0).tokens or ()) == 5


@all_formats
def test_a_slice_reads_nothing_yet(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, ONE, make_batch(ONE, [1, 2, 3]))
    file = read_features(path)
    path.rename(tmp_path / "away")
    view = file[1:]
    assert len(view) == 2
    with pytest.raises(OutputError, match=r"No such file|cannot read"):
        list(view)
    (tmp_path / "away").rename(path)
    assert [record.unique_id for record in view] == [1, 2]

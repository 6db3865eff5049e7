"""Records by number and id, slices, and all vectors of a feature."""

from pathlib import Path

import numpy as np
import pytest

from bert_features.errors import OutputError
from bert_features.formats import (
    read_features,
)
from tests.formats.feature_files import (
    EVERYTHING,
    ONE,
    SUFFIX,
    all_formats,
    expected_records,
    make_batch,
    some_batches,
    write,
)


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
    with pytest.raises(TypeError, match=r"by slice\. Received: 'layer_output_0'; by_id finds"):
        file["layer_output_0"]  # type: ignore[call-overload]
    with pytest.raises(OutputError, match=r"no example of .* has the id 7; its 3 ids are .* int"):
        file.by_id(7)
    with pytest.raises(OutputError, match="has the id '0'"):
        file.by_id("0")
    with pytest.raises(OutputError, match=r"in records 0 to 0 has the id 2; its 1 ids"):
        file[:1].by_id(2)
    with pytest.raises(OutputError, match="has no feature 'pooled'; allowed: layer_output_0"):
        file.ragged("pooled")


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


@all_formats
@pytest.mark.parametrize("part", [slice(None), slice(1, 5), slice(2, 2)])
def test_ragged(tmp_path: Path, format: str, part: slice) -> None:
    batches = some_batches(EVERYTHING)
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, EVERYTHING, *batches)
    file = read_features(path)
    records = list(expected_records(format, *batches, features=EVERYTHING))[part]
    for feature in EVERYTHING:
        values, row_splits = file[part].ragged(feature.name)
        rows = [record.features[feature.name] for record in records]
        assert values.dtype == np.float32
        if feature.level == "sequence":
            assert row_splits is None
            np.testing.assert_array_equal(values, np.array(rows).reshape(-1, feature.width))
            continue
        assert row_splits is not None
        assert row_splits.dtype == np.int64
        assert row_splits.tolist() == [0, *np.cumsum([len(row) for row in rows])]
        assert values.shape == (row_splits[-1], feature.width)
        for i, row in enumerate(rows):
            np.testing.assert_array_equal(values[row_splits[i] : row_splits[i + 1]], row)
    if format == "npz":
        assert isinstance(file.ragged("sentence")[0], np.memmap)
        assert isinstance(file[1:].ragged("of words")[0], np.memmap)


@all_formats
@pytest.mark.parametrize("part", [slice(None), slice(2, 9), slice(4, 4)])
def test_blocks_are_ragged_in_parts(
    tmp_path: Path, format: str, part: slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bert_features.formats.reader.CHUNK_RECORDS", 3)
    monkeypatch.setattr("bert_features.formats.groups.ENOUGH_ROWS", 4)
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, EVERYTHING, *some_batches(EVERYTHING))
    records = read_features(path)[part]
    for feature in EVERYTHING:
        values, row_splits = records.ragged(feature.name)
        blocks = list(records.blocks(feature.name))
        assert len(blocks) > 1 or len(records) < 4
        joined = [block for block, _ in blocks] or [values]
        np.testing.assert_array_equal(np.concatenate(joined), values)
        if row_splits is None:
            assert all(splits is None for _, splits in blocks)
        else:
            lengths = [length for _, splits in blocks for length in np.diff(splits)]
            assert lengths == np.diff(row_splits).tolist()
    with pytest.raises(OutputError, match="has no feature 'x'; allowed: "):
        records.blocks("x")

"""int8 and binary vectors against a plain reference, in every format, and turned back to floats."""

import dataclasses
import json
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from bert_features.errors import OutputError
from bert_features.formats import read_features
from bert_features.formats.manifest import Manifest
from bert_features.formats.records import Feature, FeatureBatch, Rows
from bert_features.formats.small_vectors import count_clipped, find_scale, quantize, restore
from tests.formats.feature_files import (
    SUFFIX,
    all_formats,
    assert_all_same,
    assert_reads,
    expected_records,
    make_batch,
    mix,
    write,
)
from tests.formats.feature_folders import make_manifest, write_folder
from tests.reference.small_vectors import to_bits, to_int8

WIDTH = 11  # not a multiple of 8
RNG = np.random.default_rng(5)
SCALES = 10.0 ** RNG.uniform(-3, 3, WIDTH)
VECTORS = (RNG.normal(0.3, 1, (400, WIDTH)) * SCALES).astype(np.float32)
FIRST = VECTORS[:50]


def feature(dtype, width=WIDTH, scale=()):
    return Feature(dtype, (-1,), "none", width, dtype, "sequence", "mean", scale=scale)


INT8 = feature("int8", scale=find_scale([FIRST[:20], FIRST[20:]], WIDTH))
BINARY = feature("binary")
FLOATS = feature("float32")
MIXED = (INT8, *mix("token"), FLOATS, BINARY)

# What somebody else may have written; the first two have another width alone.
NO_SCALES: list[Any] = [
    [[0.0] * 3, [1.0] * 3],
    [[], []],
    [[0.0] * WIDTH],
    [[0.0], [1.0, 2.0]],
    [[0.0] * WIDTH, [float("nan")] * WIDTH],
    [[0.0] * WIDTH, [1e39] * WIDTH],
    [[2.0] * WIDTH, [1.0] * WIDTH],
    [["a"] * WIDTH, ["b"] * WIDTH],
    [[10**400] * WIDTH] * 2,
    {"least": 1},
    None,
]


def quantized(vectors, *features):
    ids = np.arange(len(vectors))
    batch = quantize(FeatureBatch(ids, {f.name: vectors for f in features}), features)
    return [batch.sequence[f.name] for f in features]


def batches_of(features, *lengths):
    """Batches of small vectors, whose floats are the first rows of VECTORS."""
    done = 0
    for count in lengths:
        batch = make_batch(features, [2] * count, first_id=done, seed=done)
        part = VECTORS[done : done + count]
        vectors = {f.name: part for f in features if f.level == "sequence"}
        yield quantize(dataclasses.replace(batch, sequence=vectors), features)
        done += count


def test_int8_and_bits_are_those_of_the_reference():
    codes, bits = quantized(VECTORS, INT8, BINARY)
    assert (codes.dtype, bits.dtype, bits.shape) == (np.int8, np.uint8, (400, 2))
    np.testing.assert_array_equal(bits, to_bits(VECTORS))
    expected = to_int8(VECTORS, FIRST)
    assert (expected == -128).sum() > WIDTH  # values below the range
    # Where float64 sees a value half-way between two steps, float32 may see it on the other side.
    differences = np.abs(codes.astype(int) - expected)
    assert differences.max() <= 1
    assert (differences > 0).sum() <= 2


def test_floats_come_back_within_half_a_step():
    codes, bits = quantized(VECTORS, INT8, BINARY)
    least, largest = np.array(INT8.scale)
    inside = np.clip(VECTORS, least, largest)
    error = np.abs(restore(codes, INT8) - inside) / ((largest - least) / 255)
    assert error.max() < 0.5001
    assert restore(codes, INT8).dtype == restore(bits, BINARY).dtype == np.float32
    np.testing.assert_array_equal(restore(bits, BINARY), np.where(VECTORS > 0, 1, -1))


def test_values_without_a_step():
    scale = ((-1.0, 2.0, -1e38), (1.0, 2.0, 2e38))
    wanted = feature("int8", 3, scale)
    strange = [[np.nan, 2, -np.inf], [np.inf, 5, 2e38], [-7, -3e38, -1e38]]
    (codes,) = quantized(np.array(strange, np.float32), wanted)
    np.testing.assert_array_equal(codes, [[0, -128, -128], [127, -125, 127], [-128, -128, -128]])
    np.testing.assert_array_equal(restore(codes, wanted)[:, 1], [2, 2, 2])


@pytest.mark.parametrize(
    ("level", "splits", "clipped"),
    [("sequence", None, [0, 2, 1]), ("token", [0, 2, 2, 3], [2, 0, 1])],
)
def test_values_more_than_half_a_step_outside_are_counted(level, splits, clipped):
    """Steps of 1, from 0 to 255."""
    whole = feature("int8", 2, ((0.0, 0.0), (255.0, 255.0)))
    numbers = dataclasses.replace(whole, level=level)
    vectors = np.array([[-0.5, 255.5], [-0.75, 255.75], [np.inf, 100]], np.float32)
    batch = FeatureBatch(np.arange(3), {"int8": vectors})
    if splits is not None:
        rows = {level: Rows(np.array(splits), {}, {"int8": vectors})}
        batch = FeatureBatch(np.arange(3), {}, rows)
    found, total = count_clipped(batch, (numbers, FLOATS))
    assert (found.tolist(), total) == (clipped, 6)


def test_vectors_that_are_not_finite_have_no_scales():
    bad = VECTORS[:3].copy()
    bad[0, 3], bad[2, 5] = np.nan, np.inf
    least, largest = find_scale([bad, bad[:0]], WIDTH)
    np.testing.assert_array_equal(least, bad[1])
    assert least == largest
    assert find_scale([bad[::2]], WIDTH) == ((0,) * WIDTH, (0,) * WIDTH)


@all_formats
def test_every_format_gives_floats(tmp_path, format, monkeypatch):
    monkeypatch.setattr("bert_features.formats.groups.ENOUGH_ROWS", 4)
    batches = list(batches_of(MIXED, 3, 0, 3))
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, MIXED, *batches)
    file = read_features(path, floats=True)
    assert {each.dtype for each in file.features} == {"float32"}
    expected = [
        dataclasses.replace(
            record,
            features=record.features
            | {f.name: restore(record.features[f.name][None], f)[0] for f in (INT8, BINARY)},
        )
        for record in expected_records(format, *batches, features=MIXED)
    ]
    assert_reads(file, expected)
    table, frame = file.to_arrow(), file.to_pandas()
    for number, record in enumerate(file.to_dataset()):
        for name in ("int8", "binary"):
            np.testing.assert_array_equal(record[name], expected[number].features[name])
            np.testing.assert_array_equal(table[name][number].as_py(), record[name])
            np.testing.assert_array_equal(frame[name][number], record[name])


def test_a_folder_of_them(tmp_path):
    batches = list(batches_of((INT8, BINARY), 3, 2))
    write_folder(tmp_path / "folder", "parquet", (INT8, BINARY), *batches)
    write(tmp_path / "one.parquet", "parquet", (INT8, BINARY), *batches)
    for floats in (False, True):
        file = read_features(tmp_path / "folder", floats=floats)
        assert_all_same(file, read_features(tmp_path / "one.parquet", floats=floats))


def test_others_are_opened_as_they_are(tmp_path):
    write(tmp_path / "f.npz", "npz", mix("token"), make_batch(mix("token"), [1, 2]))
    file = read_features(tmp_path / "f.npz", floats=True)
    assert isinstance(file.ragged("layer_output_0")[0], np.memmap)


def test_parquet_has_one_byte_for_each_value(tmp_path):
    wide = feature("int8", 256, ((-1.0,) * 256, (1.0,) * 256))
    vectors = RNG.uniform(-1, 1, (1000, 256)).astype(np.float32)
    (codes,) = quantized(vectors, wide)
    batch = FeatureBatch(np.arange(1000), {"int8": codes})
    write(tmp_path / "f.parquet", "parquet", (wide,), batch)
    column = pq.ParquetFile(tmp_path / "f.parquet").metadata.row_group(0).column(1)
    assert column.total_compressed_size < 1.2 * codes.size  # and the levels, a bit for each
    read = pq.read_table(tmp_path / "f.parquet")["int8"]
    assert str(read.type) == "fixed_size_list<element: int8>[256]"
    assert read.to_pylist() == codes.tolist()


@pytest.mark.parametrize(
    "damage",
    [*({"scale": rows} for rows in NO_SCALES), {"dtype": "float32"}, {"dtype": "binary"}],
    ids=lambda damage: str(damage)[:40],
)
def test_scales_that_do_not_fit_are_refused(tmp_path, damage):
    path = tmp_path / "f.jsonl"
    write(path, "jsonl", (INT8,), *batches_of((INT8,), 2))
    sidecar = tmp_path / "f.jsonl.metadata.json"
    content = json.loads(sidecar.read_text())
    content["features"][0] |= damage
    sidecar.write_text(json.dumps(content))
    with pytest.raises(OutputError, match=f"{path} as .*(each of 11|is for int8|Out of ran)"):
        read_features(path)


@pytest.mark.parametrize("rows", NO_SCALES[2:], ids=lambda rows: str(rows)[:40])
def test_scales_of_a_manifest_that_are_none_are_refused(tmp_path, rows):
    manifest = make_manifest(tmp_path, "npz", [1])
    outputs = {"int8": {"width": 11, "dtype": "int8", "scale": rows}}
    dataclasses.replace(
        manifest, recipe=dataclasses.replace(manifest.recipe, outputs=outputs)
    ).write()
    with pytest.raises(OutputError, match=r"_manifest\.json: .*scale of 'int8' is not"):
        Manifest.read(tmp_path)


@all_formats
def test_every_format_names_what_was_lost(tmp_path, format, monkeypatch):
    monkeypatch.setattr("bert_features.formats.groups.ENOUGH_ROWS", 4)
    path, lost = tmp_path / f"f{SUFFIX[format]}", np.arange(40) % 3 == 1
    batches = list(batches_of((INT8,), 16, 24))
    for batch in batches:
        rows = lost[batch.unique_ids]
        batch.counts.update(non_finite=rows, clipped=rows * 2, tokens=rows)
    write(path, format, (INT8,), *batches)
    file = read_features(path, verify=True)
    ids = np.flatnonzero(lost)[:10].tolist()
    assert file.metadata["losses"] == {
        "non_finite": {"count": 13, "first_ids": ids},
        "clipped": {"count": 26, "first_ids": ids},
    }
    write(tmp_path / f"g{SUFFIX[format]}", format, (INT8,), *batches_of((INT8,), 16, 24))
    plain = read_features(tmp_path / f"g{SUFFIX[format]}")
    assert "losses" not in plain.metadata
    np.testing.assert_array_equal(file.ragged("int8")[0], plain.ragged("int8")[0])

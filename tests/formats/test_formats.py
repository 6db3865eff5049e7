"""The features files: five formats, one contract."""

import ast
import dataclasses
import gc
import json
import os
import pickle
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_features.config.outputs import Level
from bert_features.errors import MissingExtraError, OutputError
from bert_features.formats import (
    DTYPES,
    FORMATS,
    SUFFIXES,
    FeatureFile,
    FeatureWriter,
    IdType,
    check_output,
    open_writer,
    read_features,
)
from bert_features.formats.arrow import convert_to_arrow, schema_of
from bert_features.formats.columns import value_dtype
from bert_features.formats.json_numbers import convert_to_text
from bert_features.formats.record_framing import compute_crc32c
from bert_features.formats.records import Feature, FeatureBatch, FeatureRecord, Tokens, Words

SUFFIX = {"parquet": ".parquet", "jsonl": ".jsonl", "npz": ".npz", "hdf5": ".h5"} | {
    "tfrecord": ".tfrecord"
}
SIDECARS = {"jsonl", "tfrecord"}
METADATA = {"checkpoint": "sha256:ab", "layers": [-1, "embeddings"], "note": "naïve 東京"}
WORDS = ["the", "##ing", "東", "é", "🙂", 'quo"te', "back\\slash"]

all_formats = pytest.mark.parametrize("format", FORMATS)

ONE = (Feature("layer_output_0", (-1,), "none", 3, "float32"),)


def several(dtype: str) -> tuple[Feature, ...]:
    """A plain block, the embeddings, and a combination; widths differ."""
    return (
        Feature("layer_output_0", (-1,), "none", 4, dtype),
        Feature("layer_output_1", ("embeddings",), "none", 4, dtype),
        Feature("last four", (-4, -3, -2, -1), "concat", 16, dtype),
    )


def make_batch(
    features: tuple[Feature, ...],
    lengths: list[int],
    first_id: int = 0,
    seed: int = 0,
    id_type: IdType = "int",
) -> FeatureBatch:
    """Examples of [CLS] words.. [SEP]; a length counts the words."""
    rng = np.random.default_rng(seed)
    rows = [["[CLS]", *(WORDS[i % len(WORDS)] for i in range(n)), "[SEP]"] for n in lengths]
    pieces = [piece for row in rows for piece in row]
    words = [WORDS[i % len(WORDS)] for n in lengths for i in range(n)]
    count = {"token": len(pieces), "word": len(words), "sequence": len(rows)}
    levels = {f.level for f in features}
    tokens = Tokens(
        row_splits=np.cumsum([0, *map(len, rows)], dtype=np.int64),
        pieces=pieces,
        ids=rng.integers(0, 30522, len(pieces), dtype=np.int32),
    )
    spans = rng.integers(-1, 100, (4, len(words)), dtype=np.int32)
    ids = range(first_id, first_id + len(rows))
    as_text = [f"é{i}" + '"x\\' * (i % 3) for i in ids]  # quotes, and different lengths
    return FeatureBatch(
        unique_ids=np.array(as_text, object) if id_type == "str" else np.array(ids, np.int64),
        features={
            f.name: rng.normal(0, 2, (count[f.level], f.width)).astype(value_dtype(f.dtype))
            for f in features
        },
        tokens=tokens if "token" in levels else None,
        words=Words(np.cumsum([0, *lengths], dtype=np.int64), words, *spans)
        if "word" in levels
        else None,
    )


def first_tokens(batch: FeatureBatch) -> Tokens:
    assert batch.tokens is not None
    return batch.tokens


def write(
    path: Path,
    format: str,
    features: tuple[Feature, ...],
    *batches: FeatureBatch,
    id_type: IdType = "int",
) -> FeatureWriter:
    with open_writer(
        path, format=format, features=features, metadata=METADATA, id_type=id_type
    ) as writer:
        for batch in batches:
            writer.write(batch)
    return writer


def expected_records(
    format: str, *batches: FeatureBatch, features: tuple[Feature, ...] = ONE
) -> Iterator[FeatureRecord]:
    """What a format promises to give back: JSON has 6 decimals and no token ids."""
    for record in (record for batch in batches for record in batch.records(features)):
        if format != "jsonl":
            yield record
            continue
        rounded = {
            name: np.array([round(float(x), 6) for x in values.flat], values.dtype).reshape(
                values.shape
            )
            for name, values in record.features.items()
        }
        yield dataclasses.replace(record, token_ids=None, features=rounded)


def assert_same(received: FeatureRecord, expected: FeatureRecord) -> None:
    assert received.unique_id == expected.unique_id
    assert type(received.unique_id) is type(expected.unique_id)
    assert type(received.unique_id) in (int, str)
    assert received.tokens == expected.tokens
    assert received.words == expected.words
    assert_same_numbers(received.token_ids, expected.token_ids)
    for name in ("starts", "ends", "type_ids", "num_pieces"):
        assert_same_numbers(
            getattr(received.word_spans, name, None), getattr(expected.word_spans, name, None)
        )
    assert list(received.features) == list(expected.features)
    for name, values in expected.features.items():
        assert received.features[name].dtype == values.dtype
        np.testing.assert_array_equal(received.features[name], values)


def assert_same_numbers(received: np.ndarray | None, expected: np.ndarray | None) -> None:
    if expected is None:
        assert received is None
        return
    assert received is not None
    assert received.dtype == expected.dtype == np.int32
    np.testing.assert_array_equal(received, expected)


def mix(*levels: Level, dtype: str = "float32") -> tuple[Feature, ...]:
    """A feature of each level, in this order; widths differ."""
    all_of_them = {
        "token": Feature("layer_output_0", (-1,), "none", 3, dtype),
        "word": Feature("of words", (-1,), "none", 2, dtype, "word", "mean"),
        "sequence": Feature(
            *("sentence", (-2, -1), "weighted", 4, dtype, "sequence", "mean"),
            weights=(0.25, 0.75),
            special_tokens=False,
            normalize=True,
        ),
    }
    return tuple(all_of_them[level] for level in levels)


MIXES = {
    "token": mix("token"),
    "word": mix("word"),
    "sequence": mix("sequence"),
    "all": (*mix("sequence", "token", "word"), Feature("sum", (-2, -1), "sum", 1, "float32")),
    "word and sequence": mix("word", "sequence"),
}
EVERYTHING = MIXES["all"]


def some_batches(
    features: tuple[Feature, ...], id_type: IdType = "int"
) -> tuple[FeatureBatch, ...]:
    """Six examples: one without a word, one alone in its batch, and an empty batch."""
    return (
        make_batch(features, [3, 0, 7], seed=1, id_type=id_type),
        make_batch(features, [1], first_id=3, seed=2, id_type=id_type),
        make_batch(features, [], first_id=4, id_type=id_type),
        make_batch(features, [2, 12], first_id=4, seed=3, id_type=id_type),
    )


def assert_all_same(received: Iterable[FeatureRecord], expected: Iterable[FeatureRecord]) -> None:
    for pair in zip(received, expected, strict=True):
        assert_same(*pair)


# Round trips.


@all_formats
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("count", [1, 3])
def test_what_is_written_is_read(tmp_path: Path, format: str, dtype: str, count: int) -> None:
    features = several(dtype)[:count]
    batches = [
        make_batch(features, [3, 0, 7], seed=1),  # 0: an empty text, [CLS] [SEP]
        make_batch(features, [1], first_id=3, seed=2),
        make_batch(features, [], first_id=4),
        make_batch(features, [2, 12], first_id=4, seed=3),
    ]
    path = tmp_path / f"f{SUFFIX[format]}"
    writer = write(path, format, features, *batches)

    file = read_features(path)
    assert (file.path, file.format, file.features) == (path, format, features)
    assert {k: file.metadata[k] for k in METADATA} == METADATA
    assert file.metadata.keys() == METADATA.keys() | {"features", "format_version", "id_type"}
    assert len(file) == writer.records == 6
    for _ in range(2):  # again and again
        received = list(file)
        expected = list(expected_records(format, *batches, features=features))
        assert len(received) == len(expected) == 6
        for pair in zip(received, expected, strict=True):
            assert_same(*pair)


@all_formats
@pytest.mark.parametrize("name", MIXES)
@pytest.mark.parametrize("id_type", ["int", "str"])
def test_every_way_to_a_record_gives_the_same(
    tmp_path: Path, format: str, name: str, id_type: IdType
) -> None:
    features = MIXES[name]
    batches = some_batches(features, id_type)
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, features, *batches, id_type=id_type)
    expected = list(expected_records(format, *batches, features=features))
    ids = [record.unique_id for record in expected]

    file = read_features(path)
    assert (file.features, file.id_type, file.metadata["id_type"]) == (features, id_type, id_type)
    assert_all_same(file, expected)
    for order in (range(6), range(-1, -7, -1)):
        assert_all_same([file[i] for i in order], [expected[i] for i in order])
    assert_same(file[np.int64(4)], expected[4])
    for part in (slice(None), slice(1, 5), slice(-2, None), slice(2, 3), slice(4, 2), slice(9)):
        view = file[part]
        assert len(view) == len(expected[part])
        assert_all_same(view, expected[part])
        assert view.ids.tolist() == ids[part]
    assert_all_same(file[1:][1:-1][-3:], expected[2:5])
    assert_same(file[2:5][-1], expected[4])

    read_only = read_features(path)
    assert read_only.ids.tolist() == ids
    assert read_only.ids.dtype == (object if id_type == "str" else np.int64)
    assert_all_same([read_only.by_id(i) for i in ids[::-1]], expected[::-1])


@all_formats
def test_a_file_without_records(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, ONE)
    file = read_features(path)
    assert list(file[:]) == []
    assert file.ids.tolist() == []
    with pytest.raises(OutputError, match=r"no example of .* has the id 0"):
        file.by_id(0)
    with pytest.raises(IndexError):
        file[0]
    values, row_splits = file.ragged("layer_output_0")
    assert values.shape == (0, 3)
    assert row_splits is not None
    assert row_splits.tolist() == [0]
    assert file.to_arrow().num_rows == len(file.to_pandas()) == len(file.to_dataset()) == 0
    assert list(file) == []
    assert len(file) == 0
    assert file  # a file, though it is empty
    assert file.features == ONE
    assert file.metadata["checkpoint"] == "sha256:ab"


@all_formats
def test_reading_can_stop_and_begin_again(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, ONE, make_batch(ONE, [1, 2, 3]))
    file = read_features(path)
    assert next(iter(file)).unique_id == 0
    assert [record.unique_id for record in file] == [0, 1, 2]


@all_formats
def test_views_and_foreign_layouts_are_written_right(tmp_path: Path, format: str) -> None:
    batch = make_batch(ONE, [4, 1])
    values = np.asfortranarray(batch.features["layer_output_0"])
    values.flags.writeable = False
    odd = dataclasses.replace(batch, features={"layer_output_0": values})
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, ONE, odd)
    for pair in zip(read_features(path), expected_records(format, batch), strict=True):
        assert_same(*pair)


@pytest.mark.parametrize("format", ["npz", "hdf5"])
def test_columns_are_read_in_chunks(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks of 5 tokens: less than the third example, which is read on its own."""
    monkeypatch.setattr("bert_features.formats.reader.CHUNK_BYTES", 5 * 3 * 4)
    monkeypatch.setattr("bert_features.formats.reader.CHUNK_RECORDS", 2)
    batch = make_batch(ONE, [0, 1, 9, 0, 0, 0, 2])
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, ONE, batch)
    for pair in zip(read_features(path), batch.records(ONE), strict=True):
        assert_same(*pair)


def test_bytes_written_is_what_lies_on_disk(tmp_path: Path) -> None:
    for format in FORMATS:
        folder = tmp_path / format
        folder.mkdir()
        writer = write(folder / f"f{SUFFIX[format]}", format, ONE, make_batch(ONE, [5, 2]))
        sizes = [path.stat().st_size for path in folder.iterdir()]
        assert len(sizes) == (2 if format in SIDECARS else 1)
        assert writer.bytes_written == sum(sizes) > 0


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
    assert_all_same([file[i] for i in range(6)], expected)
    # Arrow has no such type; float32 holds each of its values.
    received = file.to_arrow()["sentence"].to_pylist()
    np.testing.assert_array_equal(
        received, np.array([r.features["sentence"].astype(np.float32) for r in expected])
    )


@pytest.mark.parametrize("format", ["parquet", "npz", "hdf5"])
def test_a_dtype_that_a_format_has_not(tmp_path: Path, format: str) -> None:
    message = (
        f"{format} cannot hold bfloat16, the dtype of sentence; allowed: float16, float32; "
        "or write jsonl, tfrecord"
    )
    features = mix("sequence", dtype="bfloat16")
    with pytest.raises(OutputError, match=message):
        open_writer(tmp_path / "f", format=format, features=features, metadata={})
    assert list(tmp_path.iterdir()) == []
    assert DTYPES.keys() == FORMATS.keys()


def test_an_unknown_type_of_ids(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="id_type 'float' is not known; allowed: int, str"):
        open_writer(
            tmp_path / "f",
            format="npz",
            features=ONE,
            metadata={},
            id_type="float",  # type: ignore[arg-type]
        )


@all_formats
def test_int_ids_where_texts_were_announced(tmp_path: Path, format: str) -> None:
    with pytest.raises(OutputError, match=r"has unique_ids of int64 .*; expected text"):
        write(tmp_path / "f", format, ONE, make_batch(ONE, [1]), id_type="str")
    assert list(tmp_path.iterdir()) == []


@all_formats
@pytest.mark.parametrize("bad", ["a\0", "\ud800"])
def test_texts_that_some_formats_cannot_keep(tmp_path: Path, format: str, bad: str) -> None:
    path = tmp_path / f"f{SUFFIX[format]}"
    batch = make_batch(ONE, [1], id_type="str")
    batch.unique_ids[0] = bad
    if format == "jsonl":
        write(path, format, ONE, batch, id_type="str")
        assert read_features(path).by_id(bad).unique_id == bad
        return
    with pytest.raises(OutputError, match=r"unique_ids holds '.*', whose NUL or lone surrogate"):
        write(path, format, ONE, batch, id_type="str")
    assert list(tmp_path.iterdir()) == []


# Reading one by one.


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
    with pytest.raises(TypeError):
        file["layer_output_0"]  # type: ignore[call-overload]
    with pytest.raises(OutputError, match=r"no example of .* has the id 7; its 3 ids are .* int"):
        file.by_id(7)
    with pytest.raises(OutputError, match="has the id '0'"):
        file.by_id("0")
    with pytest.raises(OutputError, match="its 1 ids"):
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


@pytest.mark.parametrize("format", ["npz", "hdf5"])
def test_columns_are_read_where_they_are_wanted(tmp_path: Path, format: str) -> None:
    """Eight examples of n tokens, n from 2 on: example 3 has tokens 9..13, words 3..5."""
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, EVERYTHING, make_batch(EVERYTHING, list(range(8))))
    file: Any = read_features(path)
    taken: dict[str, list[Any]] = {}

    class Spy:
        def __init__(self, name: str, column: Any) -> None:
            self.name, self.column = name, column

        def __getitem__(self, key: Any) -> Any:
            taken.setdefault(self.name, []).append(key)
            return self.column[key]

    file._open_columns = {name: Spy(name, column) for name, column in file._columns.items()}
    assert_same(file[3], read_features(path)[3])
    token_rows, word_rows = [slice(9, 14)], [slice(3, 6)]
    assert taken == {
        "unique_ids": [slice(3, 4)],
        "row_splits": [slice(3, 5)],
        "word_splits": [slice(3, 5)],
        **dict.fromkeys(("tokens", "token_ids", "layer_output_0", "sum"), token_rows),
        **dict.fromkeys(("words", "word_starts", "word_ends", "word_type_ids"), word_rows),
        **dict.fromkeys(("word_num_pieces", "of words"), word_rows),
        "sentence": [slice(3, 4)],
    }
    taken.clear()
    assert file.ids.tolist() == list(range(8))
    assert taken == {"unique_ids": [slice(None)]}
    taken.clear()
    file[3:4].ragged("of words")
    assert taken == {"word_splits": [slice(3, 5)], "of words": word_rows}


def test_parquet_is_read_where_it_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row groups of two examples; of the last the pages of a feature are damaged."""
    pq = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("bert_features.formats.parquet.ENOUGH_ROWS", 2)
    path = tmp_path / "f.parquet"
    batches = [make_batch(EVERYTHING, [2, 3], first_id=2 * i, seed=i) for i in range(4)]
    write(path, "parquet", EVERYTHING, *batches)
    with pq.ParquetFile(path) as parquet:
        group = parquet.metadata.row_group(3)
        columns = [group.column(i) for i in range(group.num_columns)]
    (damaged,) = (c for c in columns if c.path_in_schema.startswith("layer_output_0"))
    content = bytearray(path.read_bytes())
    begin = damaged.data_page_offset
    content[begin : begin + damaged.total_compressed_size] = b"x" * damaged.total_compressed_size
    path.write_bytes(content)

    file = read_features(path)
    expected = [record for batch in batches for record in batch.records(EVERYTHING)]
    assert_all_same([file[i] for i in (5, 0, 1, 4)], [expected[i] for i in (5, 0, 1, 4)])
    assert_all_same(file[1:6], expected[1:6])
    assert file.ids.tolist() == list(range(8))
    for name in ("sum", "of words", "sentence"):  # columns beside the damaged one
        values, _ = file.ragged(name)
        whole = np.concatenate([batch.features[name] for batch in batches])
        np.testing.assert_array_equal(values, whole)
    for far in (lambda: file[7], lambda: list(file[5:]), lambda: file.ragged("layer_output_0")):
        with pytest.raises(OutputError, match=r"cannot read .* as parquet: it is damaged"):
            far()


def test_parquet_keeps_the_last_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bert_features.formats.parquet.ENOUGH_ROWS", 2)
    path = tmp_path / "f.parquet"
    write(path, "parquet", ONE, *(make_batch(ONE, [2, 3], first_id=2 * i) for i in range(3)))
    file: Any = read_features(path)
    read = file._read_group
    groups: list[int] = []

    def count(group: int) -> Any:
        groups.append(group)
        return read(group)

    monkeypatch.setattr(file, "_read_group", count)
    first = file[2]
    assert [file[i].unique_id for i in (3, 2, 0, 1, 5)] == [3, 2, 0, 1, 5]
    assert groups == [1, 0, 2]
    assert first.features["layer_output_0"].base is None or (
        first.features["layer_output_0"].base.nbytes == 4 * 3 * 4
    )  # it does not hold on to its row group


@pytest.mark.parametrize("format", ["jsonl", "tfrecord"])
def test_records_far_away_are_not_read(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"f{SUFFIX[format]}"
    batch = make_batch(EVERYTHING, [4, 4, 4, 4])
    write(path, format, EVERYTHING, batch)
    content = bytearray(path.read_bytes())
    offsets = read_features(path)._offsets  # type: ignore[attr-defined]
    middle = int(offsets[2] + offsets[3]) // 2
    content[middle] = ord("\\") if format == "jsonl" else content[middle] ^ 1
    path.write_bytes(content)

    file = read_features(path)
    expected = list(expected_records(format, batch, features=EVERYTHING))
    assert_all_same([file[i] for i in (3, 0, 1)], [expected[i] for i in (3, 0, 1)])
    assert_all_same(file[:2], expected[:2])
    for far in (lambda: file[2], lambda: list(file[1:]), lambda: list(file)):
        with pytest.raises(OutputError, match=f"cannot read .* as {format}: it is damaged"):
            far()


@pytest.mark.parametrize("id_type", ["int", "str"])
@pytest.mark.parametrize("format", ["jsonl", "tfrecord"])
def test_ids_are_read_without_the_rest(
    tmp_path: Path, format: str, id_type: IdType, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"f{SUFFIX[format]}"
    batch = make_batch(EVERYTHING, [4, 0, 2], first_id=2**40, id_type=id_type)
    if id_type == "int":
        batch.unique_ids[1] = -(2**62)
    write(path, format, EVERYTHING, batch, id_type=id_type)
    file: Any = read_features(path)

    def refuse(*_: Any) -> None:
        raise AssertionError("an example was parsed")

    monkeypatch.setattr(type(file), "_parse", refuse)
    monkeypatch.setattr(json, "loads", lambda text: ast.literal_eval(text.decode()))
    assert file.ids.tolist() == batch.unique_ids.tolist()


def test_an_id_somewhere_in_a_line(tmp_path: Path) -> None:
    layers = [{"index": -1, "values": [0.5]}]
    features = [{"token": "[CLS]", "layers": layers}]
    long = "x" * 5000
    lines: list[dict[str, Any]] = [
        {"features": features, "linex_index": "b"},
        {"linex_index": long, "features": features},
    ]
    path = tmp_path / "f.jsonl"
    path.write_text("".join(json.dumps(line) + "\r\n" for line in lines))
    file = read_features(path)
    assert file.ids.tolist() == ["b", long]
    assert file.by_id(long).features["layer_output_0"].tolist() == [[0.5]]


@pytest.mark.parametrize("name", ["word", "sequence", "all"])
def test_jsonl_without_its_sidecar(tmp_path: Path, name: str) -> None:
    features = MIXES[name]
    batch = make_batch(features, [2, 1], id_type="str")
    path = tmp_path / "f.jsonl"
    write(path, "jsonl", features, batch, id_type="str")
    with_sidecar = list(read_features(path))
    (tmp_path / "f.jsonl.metadata.json").unlink()
    file = read_features(path)
    assert (file.metadata, file.id_type, len(file)) == ({}, "str", 2)
    assert {f.name: (f.level, f.width) for f in file.features} == {
        f.name: (f.level, f.width) for f in features
    }
    for received, expected in zip(file, with_sidecar, strict=True):
        order = [f.name for f in file.features]
        same = {n: expected.features[n] for n in order}
        assert_same(received, dataclasses.replace(expected, features=same))


@all_formats
def test_what_is_open_is_closed(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, ONE, make_batch(ONE, [1, 2]))

    def is_open() -> bool:
        links = (entry for entry in Path("/proc/self/fd").iterdir())
        return path in [Path(os.path.realpath(link)) for link in links]

    with read_features(path) as file:
        assert not is_open()
        assert file[1].unique_id == 1
        assert isinstance(file, FeatureFile)
    if sys.platform == "linux":
        gc.collect()
        assert not is_open()
    assert file[0].unique_id == 0  # opened again
    file.close()


@all_formats
def test_another_process_gets_the_file_and_not_its_records(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, ONE, make_batch(ONE, [30] * 100))
    file = read_features(path)
    expected = file[99]
    for whole in (file, file[50:]):
        pickled = pickle.dumps(whole)
        assert len(pickled) < 2000
        assert_same(pickle.loads(pickled)[-1], expected)


def test_checksums_of_records() -> None:
    """The check value of CRC-32C; lengths around those where the parts change; RFC 3720, B.4."""
    assert compute_crc32c(b"123456789") == 0xE3069283
    assert compute_crc32c(bytes(32)) == 0x8A9136AA
    assert compute_crc32c(b"\xff" * 32) == 0x62A8AB43
    assert compute_crc32c(bytes(range(32))) == 0x46DD794E
    rng = np.random.default_rng(0)
    for length in [*range(70), 255, 256, 257, 4095, 4097]:
        data = rng.bytes(length)
        crc = 0xFFFFFFFF  # bit by bit
        for byte in data:
            crc ^= byte
            for _ in range(8):
                crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        assert compute_crc32c(data) == crc ^ 0xFFFFFFFF, length


# Conversions.


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


def cells_of(record: FeatureRecord) -> dict[str, Any]:
    """A record by the names of the columns."""
    spans = record.word_spans
    cells = {
        "unique_id": record.unique_id,
        "tokens": record.tokens,
        "token_ids": record.token_ids,
        "words": record.words,
        "word_starts": spans and spans.starts,
        "word_ends": spans and spans.ends,
        "word_type_ids": spans and spans.type_ids,
        "word_num_pieces": spans and spans.num_pieces,
        **record.features,
    }
    return {name: cell for name, cell in cells.items() if cell is not None}


@all_formats
@pytest.mark.parametrize("name", MIXES)
@pytest.mark.parametrize("id_type", ["int", "str"])
def test_to_arrow(tmp_path: Path, format: str, name: str, id_type: IdType) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    features = MIXES[name]
    batches = some_batches(features, id_type)
    path, again = tmp_path / f"f{SUFFIX[format]}", tmp_path / "again.parquet"
    write(path, format, features, *batches, id_type=id_type)
    write(tmp_path / "p.parquet", "parquet", features, *batches, id_type=id_type)
    file = read_features(path)
    table = file.to_arrow()
    layout = pq.read_schema(tmp_path / "p.parquet")
    assert table.schema.equals(layout)
    assert json.loads(table.schema.metadata[b"bert_features"]) == file.metadata
    expected = list(expected_records(format, *batches, features=features))
    rows = table.to_pylist()
    for row, record in zip(rows, expected, strict=True):
        assert row.pop("token_ids", "none") is not None or format == "jsonl"
        cells = cells_of(record)
        cells.pop("token_ids", None)
        assert row == {key: np.array(cell).tolist() for key, cell in cells.items()}
    assert (
        file[1:4].to_arrow().select(["unique_id"]).equals(table.slice(1, 3).select(["unique_id"]))
    )
    assert table.schema.field("unique_id").type == (pa.string() if id_type == "str" else pa.int64())
    if format != "jsonl":  # whose table lacks the token ids
        pq.write_table(table, again)
        assert_all_same(read_features(again), expected)


@all_formats
@pytest.mark.parametrize("id_type", ["int", "str"])
def test_to_pandas(tmp_path: Path, format: str, id_type: IdType) -> None:
    pytest.importorskip("pandas")
    batches = some_batches(EVERYTHING, id_type)
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, EVERYTHING, *batches, id_type=id_type)
    file = read_features(path)
    frame = file.to_pandas()
    assert list(frame.columns) == file.to_arrow().schema.names
    assert frame["unique_id"].tolist() == file.ids.tolist()
    for i, record in enumerate(expected_records(format, *batches, features=EVERYTHING)):
        for name, cell in cells_of(record).items():
            received = frame[name][i]
            if name != "unique_id":
                assert isinstance(received, np.ndarray)
            assert np.shape(received) == np.shape(cell)
            np.testing.assert_array_equal(received, cell)
    if format == "jsonl":
        assert frame["token_ids"].tolist() == [None] * 6
    assert file[2:4].to_pandas()["unique_id"].tolist() == file.ids[2:4].tolist()
    alike = file[3:4].to_pandas()  # an array alone in its column is still a cell
    assert alike["sentence"][0].shape == (4,)


def test_to_pandas_without_pandas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "f.npz", "npz", ONE)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'bert_features\[pandas\]'"):
        read_features(tmp_path / "f.npz").to_pandas()


@all_formats
@pytest.mark.parametrize("id_type", ["int", "str"])
def test_to_dataset(tmp_path: Path, format: str, id_type: IdType) -> None:
    tf = pytest.importorskip("tensorflow")
    dtype = "bfloat16" if "bfloat16" in DTYPES[format] else "float16"
    features = mix("token", "word", "sequence", dtype=dtype)
    batches = some_batches(features, id_type)
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, features, *batches, id_type=id_type)
    file = read_features(path)
    dataset = file.to_dataset()
    numbers = tf.TensorSpec([None], tf.int32)
    specs = {
        "unique_id": tf.TensorSpec([], tf.string if id_type == "str" else tf.int64),
        "tokens": tf.TensorSpec([None], tf.string),
        "token_ids": numbers,
        "words": tf.TensorSpec([None], tf.string),
        **dict.fromkeys(("word_starts", "word_ends", "word_type_ids", "word_num_pieces"), numbers),
        "layer_output_0": tf.TensorSpec([None, 3], dtype),
        "of words": tf.TensorSpec([None, 2], dtype),
        "sentence": tf.TensorSpec([4], dtype),
    }
    if format == "jsonl":
        del specs["token_ids"]
    assert dataset.element_spec == specs
    assert len(dataset) == 6
    expected = list(expected_records(format, *batches, features=features))
    for _ in range(2):
        for element, record in zip(dataset.as_numpy_iterator(), expected, strict=True):
            for name, cell in cells_of(record).items():
                received = element[name]
                if specs[name].dtype == tf.string:
                    texts = [cell] if isinstance(cell, str) else list(cell)
                    received = [text.decode() for text in np.atleast_1d(received)]
                    assert received == texts
                    continue
                np.testing.assert_array_equal(received, cell)
    ids = [row["unique_id"] for row in file[4:].to_dataset().as_numpy_iterator()]
    assert [i.decode() if isinstance(i, bytes) else i for i in ids] == file.ids[4:].tolist()


# Each format as others read it.


def test_jsonl_is_the_official_line(tmp_path: Path) -> None:
    features = (
        Feature("layer_output_0", (-1,), "none", 2, "float32"),
        Feature("layer_output_1", ("embeddings",), "none", 1, "float32"),
        Feature("sum", (-2, -1), "sum", 1, "float32"),
    )
    batch = FeatureBatch(
        unique_ids=np.array([7]),
        tokens=Tokens(np.array([0, 2]), ["[CLS]", "é"], np.array([101, 102], np.int32)),
        features={
            "layer_output_0": np.array([[0.5, -1.25], [1 / 3, -0.0]], np.float32),
            "layer_output_1": np.array([[1e-7], [2e-6]], np.float32),
            "sum": np.array([[123456.789], [10.0]], np.float32),
        },
    )
    path = tmp_path / "f.jsonl"
    write(path, "jsonl", features, batch)
    assert path.read_text(encoding="ascii") == (
        '{"linex_index": 7, "features": [{"token": "[CLS]", "layers": [{"index": -1, "values": '
        '[0.5, -1.25]}, {"index": "embeddings", "values": [0.0]}, {"index": "sum", "values": '
        '[123456.789062]}]}, {"token": "\\u00e9", "layers": [{"index": -1, "values": [0.333333, '
        '-0.0]}, {"index": "embeddings", "values": [2e-06]}, {"index": "sum", "values": [10.0]}]}'
        "]}\n"
    )


def official_row(row: np.ndarray) -> str:
    """As `extract_features.py` writes it."""
    return json.dumps([round(float(x), 6) for x in row.flat])


@pytest.mark.parametrize("scale", [1e-30, 1e-7, 3e-5, 1e-3, 0.5, 3.0, 99.0, 1e4, 1e30])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_numbers_are_rounded_as_python_does(scale: float, dtype: Any) -> None:
    values = np.random.default_rng(5).normal(0, 1, (500, 17)).astype(np.float64)
    values = np.clip(values * scale, -np.finfo(dtype).max, np.finfo(dtype).max).astype(dtype)
    assert convert_to_text(values) == [official_row(row) for row in values]


def test_numbers_of_every_bit_pattern_of_float16() -> None:
    patterns = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    values: np.ndarray = patterns[np.isfinite(patterns)].reshape(-1, 1)
    assert convert_to_text(values) == [official_row(row) for row in values]


def test_numbers_at_the_edges() -> None:
    """Ties, whose seventh decimal is an exact 5, the ends of the tables, and float32's own."""
    ties = (np.arange(-700, 700) + 0.5) / 64 * np.float32(2**-1)
    edges = [
        0.0,
        -0.0,
        1e-7,
        -1e-7,
        5e-7,
        1e-6,
        9.9e-5,
        1e-4,
        0.00099999,
        0.999,
        0.9999999,
        99.9999,
    ]
    edges += [99.9999999, 100.0, 8388607.5, 3.4028235e38, -3.4028235e38, 1e-45, 1.1754944e-38]
    near = np.nextafter(np.array(edges, np.float32), np.float32(1))
    values = np.concatenate([ties, edges, near]).astype(np.float32).reshape(-1, 1)
    assert convert_to_text(values) == [official_row(row) for row in values]
    assert convert_to_text(values.reshape(1, -1)) == [official_row(values)]  # all kinds in one row


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_jsonl_refuses_what_json_has_not(tmp_path: Path, bad: float) -> None:
    batch = make_batch(ONE, [1, 1])
    batch.features["layer_output_0"][4, 1] = bad
    message = "layer_output_0 of example 1 has a value that is not finite"
    with pytest.raises(OutputError, match=message):
        write(tmp_path / "f.jsonl", "jsonl", ONE, batch)
    assert list(tmp_path.iterdir()) == []


def test_jsonl_of_the_official_script_is_read(tmp_path: Path) -> None:
    """There is no sidecar then: the first line tells the features."""
    layers = [{"index": -1, "values": [0.5, 1.5]}, {"index": "embeddings", "values": [2.0, 3.0]}]
    layers.append({"index": "sum", "values": [4.0]})
    line = {"linex_index": 3, "features": [{"token": "[CLS]", "layers": layers}]}
    path = tmp_path / "official.json"
    path.write_text(json.dumps(line) + "\n" + json.dumps(line | {"linex_index": 4}) + "\n")
    file = read_features(path, format="jsonl")
    assert file.metadata == {}
    assert [(f.name, f.layers, f.width, f.dtype) for f in file.features] == [
        ("layer_output_0", (-1,), 2, "float32"),
        ("layer_output_1", ("embeddings",), 2, "float32"),
        ("sum", (), 1, "float32"),
    ]
    first, second = file
    assert (first.unique_id, second.unique_id) == (3, 4)
    np.testing.assert_array_equal(first.features["layer_output_1"], [[2.0, 3.0]])
    assert len(file) == 2  # counted
    assert file[-1].unique_id == 4


def test_parquet_as_pyarrow_sees_it(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    features = several("float16")
    batch = make_batch(features, [2, 0])
    path = tmp_path / "f.parquet"
    write(path, "parquet", features, batch)
    table = pq.read_table(path)
    assert table.schema.names == ["unique_id", "tokens", "token_ids", *batch.features]
    assert table.schema.field("tokens").type == pa.list_(pa.string())
    assert table.schema.field("token_ids").type == pa.list_(pa.int32())
    assert table.schema.field("last four").type == pa.list_(pa.list_(pa.float16(), 16))
    assert json.loads(table.schema.metadata[b"bert_features"])["checkpoint"] == "sha256:ab"
    assert table["unique_id"].to_pylist() == [0, 1]
    assert table["tokens"].to_pylist() == [
        first_tokens(batch).pieces[:4],
        first_tokens(batch).pieces[4:],
    ]
    values = table["last four"].to_pylist()
    np.testing.assert_array_equal(np.array(values[1]), batch.features["last four"][4:])


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("width", [1, 2, 9])
@pytest.mark.parametrize("page_bytes", [1, 40, 1 << 20])
def test_parquet_is_what_pyarrow_would_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, width: int, page_bytes: int
) -> None:
    """Pages of less than an example, of a few, of all; examples without words, alone and in a row.

    pyarrow reads back the table that went in, nulls and offsets checked, and the footer says what
    that of pyarrow's own file of the same table does.
    """
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("bert_features.formats.parquet_pages.PAGE_BYTES", page_bytes)
    levels = mix("word", "sequence", dtype=dtype)
    features = tuple(dataclasses.replace(feature, width=width) for feature in levels)
    batch = make_batch(features, [0, 3, 1, 0, 0, 5, 0])
    path = tmp_path / "f.parquet"
    write(path, "parquet", features, batch)
    schema = schema_of(features, "int")
    expected = pa.Table.from_batches([convert_to_arrow(batch, features, schema)])
    table = pq.read_table(path)
    table.validate(full=True)
    assert table.equals(expected)

    pq.write_table(expected, tmp_path / "pyarrow", compression="none", write_statistics=False)
    ours, theirs = (pq.ParquetFile(file) for file in (path, tmp_path / "pyarrow"))
    with ours, theirs:
        assert ours.schema.equals(theirs.schema)
        group, other = (file.metadata.row_group(0) for file in (ours, theirs))
        for i in range(group.num_columns):
            for name in ("path_in_schema", "physical_type", "num_values", "compression"):
                assert getattr(group.column(i), name) == getattr(other.column(i), name)
        sizes = [group.column(i).total_compressed_size for i in range(group.num_columns)]
        assert group.total_byte_size == sum(sizes)
        assert sum(sizes) < path.stat().st_size


def test_parquet_of_foreign_readers(tmp_path: Path) -> None:
    """DuckDB has a reader of its own."""
    duckdb = pytest.importorskip("duckdb")
    features = mix("token", "word", "sequence")
    batch = make_batch(features, [2, 0, 1])
    path = tmp_path / "f.parquet"
    write(path, "parquet", features, batch)
    table = duckdb.read_parquet(str(path))
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.fetchall()]
    for row, record in zip(rows, batch.records(features), strict=True):
        assert row["words"] == list(record.words or ())
        for name, values in record.features.items():
            np.testing.assert_array_equal(np.array(row[name]).reshape(values.shape), values)


def test_parquet_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An example is 4 tokens of 12 bytes. Small batches are joined, large ones cut."""
    pq = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("bert_features.formats.parquet.ENOUGH_BYTES", 480)  # 10 examples
    monkeypatch.setattr("bert_features.formats.parquet.MOST_BYTES", 960)  # 20 examples
    monkeypatch.setattr("bert_features.formats.parquet.ENOUGH_ROWS", 15)
    sizes = [4, 4, 4, 50, 9, 12, 1]
    batches = [
        make_batch(ONE, [2] * n, first_id=sum(sizes[:i]), seed=i) for i, n in enumerate(sizes)
    ]
    path = tmp_path / "f.parquet"
    write(path, "parquet", ONE, *batches)
    with pq.ParquetFile(path) as file:
        groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    # 4+4+4; 20+20+10 of the 50; 9 would be 21 with the 12, so it goes alone; 12; 1 at the end
    assert groups == [12, 20, 20, 10, 9, 12, 1]
    for pair in zip(read_features(path), expected_records("parquet", *batches), strict=True):
        assert_same(*pair)


def test_npz_as_numpy_sees_it(tmp_path: Path) -> None:
    features = several("float32")
    first, second = make_batch(features, [2, 0]), make_batch(features, [7], first_id=2)
    path = tmp_path / "f.npz"
    write(path, "npz", features, first, second)
    with np.load(path, allow_pickle=False) as arrays:
        assert set(arrays) == {
            *("unique_ids", "row_splits", "token_ids", "tokens", "metadata"),
            *first.features,
        }
        assert arrays["unique_ids"].dtype == np.int64
        assert arrays["unique_ids"].tolist() == [0, 1, 2]
        assert arrays["row_splits"].dtype == np.int64
        assert arrays["row_splits"].tolist() == [0, 4, 6, 15]
        assert arrays["token_ids"].dtype == np.int32
        assert arrays["tokens"].tolist() == first_tokens(first).pieces + first_tokens(second).pieces
        assert arrays["tokens"].dtype == "<U10"  # back\slash
        assert arrays["metadata"].shape == ()
        assert json.loads(str(arrays["metadata"]))["note"] == "naïve 東京"
        for name in first.features:
            both = np.concatenate([first.features[name], second.features[name]])
            np.testing.assert_array_equal(arrays[name], both)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None  # the checksums hold


def test_hdf5_as_h5py_sees_it(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    features = several("float16")
    batch = make_batch(features, [2, 0])
    path = tmp_path / "f.h5"
    write(path, "hdf5", features, batch)
    with h5py.File(path, "r") as file:
        assert file["unique_ids"][:].tolist() == [0, 1]
        assert file["row_splits"][:].tolist() == [0, 4, 6]
        assert file["token_ids"].dtype == np.int32
        assert [token.decode() for token in file["tokens"][:]] == first_tokens(batch).pieces
        assert h5py.check_string_dtype(file["tokens"].dtype).encoding == "utf-8"
        assert json.loads(file["metadata"][()])["checkpoint"] == "sha256:ab"
        assert file["last four"].dtype == np.float16
        np.testing.assert_array_equal(file["last four"][:], batch.features["last four"])


def test_hdf5_metadata_may_be_long(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    long = {"note": "x" * 100_000}  # an attribute holds 64 KB
    with open_writer(path, format="hdf5", features=ONE, metadata=long):
        pass
    assert read_features(path).metadata["note"] == long["note"]


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


def test_jsonl_of_words_and_sequences(tmp_path: Path) -> None:
    features = mix("word", "sequence")
    batch = FeatureBatch(
        unique_ids=np.array(['a"é'], object),
        features={
            "of words": np.array([[0.5, 1.0], [2.0, 0.0]], np.float32),
            "sentence": np.array([[1 / 3, 0, 0, -1]], np.float32),
        },
        words=Words(
            np.array([0, 2]),
            ["naïve", "x"],
            starts=np.array([0, -1], np.int32),
            ends=np.array([5, -1], np.int32),
            type_ids=np.array([0, 1], np.int32),
            num_pieces=np.array([2, 0], np.int32),
        ),
    )
    path = tmp_path / "f.jsonl"
    write(path, "jsonl", features, batch, id_type="str")
    assert path.read_text(encoding="ascii") == (
        '{"linex_index": "a\\"\\u00e9", "words": [{"word": "na\\u00efve", "start": 0, "end": 5, '
        '"type_id": 0, "num_pieces": 2, "layers": [{"index": "of words", "values": [0.5, 1.0]}]}, '
        '{"word": "x", "start": -1, "end": -1, "type_id": 1, "num_pieces": 0, "layers": '
        '[{"index": "of words", "values": [2.0, 0.0]}]}], "sequence": [{"index": "sentence", '
        '"values": [0.333333, 0.0, 0.0, -1.0]}]}\n'
    )


@pytest.mark.parametrize("bad", ["layer_output_0", "of words", "sentence"])
def test_jsonl_says_where_a_value_is_not_finite(tmp_path: Path, bad: str) -> None:
    features = mix("token", "word", "sequence")
    batch = make_batch(features, [2, 2, 2])
    rows = batch.features[bad]
    rows[len(rows) // 3, 0] = np.nan  # the first of example 1
    with pytest.raises(OutputError, match=f"{bad} of example 1 has a value that is not finite"):
        write(tmp_path / "f.jsonl", "jsonl", features, batch)


def test_parquet_of_words_and_sequences(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "f.parquet"
    features = mix("word", "sequence")
    write(path, "parquet", features, make_batch(features, [1, 0], id_type="str"), id_type="str")
    schema = pq.read_schema(path)
    numbers = pa.list_(pa.int32())
    assert dict(zip(schema.names, schema.types, strict=True)) == {
        "unique_id": pa.string(),
        "words": pa.list_(pa.string()),
        **dict.fromkeys(("word_starts", "word_ends", "word_type_ids", "word_num_pieces"), numbers),
        "of words": pa.list_(pa.list_(pa.float32(), 2)),
        "sentence": pa.list_(pa.float32(), 4),
    }


def test_parquet_cuts_words_and_sequences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An example is 3 words of 8 bytes and 16 bytes of a sequence: two fit into a row group."""
    pq = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("bert_features.formats.parquet.MOST_BYTES", 90)
    features = mix("word", "sequence")
    batch = make_batch(features, [3] * 7)
    path = tmp_path / "f.parquet"
    write(path, "parquet", features, batch)
    with pq.ParquetFile(path) as parquet:
        groups = [parquet.metadata.row_group(i).num_rows for i in range(parquet.num_row_groups)]
    assert groups == [2, 2, 2, 1]
    file = read_features(path)
    expected = list(batch.records(features))
    assert_all_same(file, expected)
    assert_all_same(file[1:6], expected[1:6])
    assert_all_same([file[i] for i in range(7)], expected)


def test_npz_of_words_and_sequences(tmp_path: Path) -> None:
    features = mix("word", "sequence")
    first, second = some_batches(features, "str")[:2]
    path = tmp_path / "f.npz"
    write(path, "npz", features, first, second, id_type="str")
    with np.load(path, allow_pickle=False) as arrays:
        assert set(arrays) == {
            *("unique_ids", "word_splits", "words", "word_starts", "word_ends", "word_type_ids"),
            *("word_num_pieces", "of words", "sentence", "metadata"),
        }
        ids = [*first.unique_ids, *second.unique_ids]
        assert arrays["unique_ids"].tolist() == ids
        assert arrays["unique_ids"].dtype == f"<U{max(map(len, ids))}"
        assert arrays["word_splits"].tolist() == [0, 3, 3, 10, 11]
        assert arrays["sentence"].shape == (4, 4)
        assert arrays["of words"].shape == (11, 2)


def test_hdf5_of_words_and_sequences(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    features = mix("word", "sequence")
    first, second = some_batches(features, "str")[:2]
    path = tmp_path / "f.h5"
    write(path, "hdf5", features, first, second, id_type="str")
    with h5py.File(path, "r") as file:
        assert "row_splits" not in file
        ids = [*first.unique_ids, *second.unique_ids]
        assert file["unique_ids"].asstr()[:].tolist() == ids
        assert file["word_splits"][:].tolist() == [0, 3, 3, 10, 11]
        assert file["word_num_pieces"].dtype == np.int32
        assert (file["sentence"].shape, file["of words"].shape) == ((4, 4), (11, 2))


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


# Refusals at the door.


@all_formats
def test_an_existing_file_is_kept(tmp_path: Path, format: str) -> None:
    path = tmp_path / "f"
    path.write_text("older")
    with pytest.raises(OutputError, match=r"f exists; pass --overwrite to replace it$"):
        open_writer(path, format=format, features=ONE, metadata={})
    assert path.read_text() == "older"
    assert list(tmp_path.iterdir()) == [path]


@all_formats
def test_overwrite_replaces_the_file_and_its_sidecar(tmp_path: Path, format: str) -> None:
    path = tmp_path / "f"
    write(path, format, ONE, make_batch(ONE, [1]))
    names = {p.name for p in tmp_path.iterdir()}
    with open_writer(path, format=format, features=ONE, metadata={"run": 2}, overwrite=True) as w:
        w.write(make_batch(ONE, [1, 1]))
    file = read_features(path, format=format)
    assert len(list(file)) == 2
    assert file.metadata["run"] == 2
    assert {p.name for p in tmp_path.iterdir()} == names


def test_a_sidecar_of_another_file_is_kept(tmp_path: Path) -> None:
    sidecar = tmp_path / "f.jsonl.metadata.json"
    sidecar.write_text("{}")
    with pytest.raises(OutputError, match=r"metadata\.json exists; pass --overwrite"):
        open_writer(tmp_path / "f.jsonl", format="jsonl", features=ONE, metadata={})


@all_formats
def test_a_symbolic_link_is_followed(tmp_path: Path, format: str) -> None:
    (tmp_path / "folder").mkdir()
    link, real = tmp_path / "link", tmp_path / "folder" / "real"
    link.symlink_to(real)
    write(link, format, ONE, make_batch(ONE, [1]))
    with pytest.raises(OutputError, match=f"{real}.* exists; pass --overwrite"):
        check_output(link, format=format)
    assert link.is_symlink()
    assert len(read_features(link, format=format)) == len(read_features(real, format=format)) == 1
    beside = tmp_path / "link.metadata.json"
    assert not beside.exists()
    if (sidecar := real.with_name("real.metadata.json")).exists():
        sidecar.rename(beside)  # as in stores that link to files by other names
        assert len(read_features(link, format=format)) == 1


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="is a directory; name a file in it"):
        open_writer(tmp_path, format="npz", features=ONE, metadata={}, overwrite=True)


def test_a_device_is_refused() -> None:
    with pytest.raises(OutputError, match="/dev/null is not a regular file"):
        open_writer("/dev/null", format="npz", features=ONE, metadata={}, overwrite=True)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"there is no folder .*absent; create it"):
        open_writer(tmp_path / "absent" / "f", format="npz", features=ONE, metadata={})


def test_a_folder_without_permission_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not by chmod: root, as which containers run tests, may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(OutputError, match="is not writable; choose another"):
        open_writer(tmp_path / "f", format="npz", features=ONE, metadata={})


@all_formats
def test_a_name_that_is_too_long(tmp_path: Path, format: str) -> None:
    with pytest.raises(OutputError, match="File name too long; nothing was left behind"):
        open_writer(tmp_path / ("x" * 256), format=format, features=ONE, metadata={})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format", ["parquet", "npz", "hdf5"])
def test_the_longest_name(tmp_path: Path, format: str) -> None:
    write(tmp_path / ("x" * 255), format, ONE, make_batch(ONE, [1]))
    assert len(read_features(tmp_path / ("x" * 255), format=format)) == 1


def test_the_name_of_the_sidecar_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="File name too long; nothing was left behind"):
        check_output(tmp_path / ("x" * 250), format="jsonl")


@pytest.mark.parametrize("name", ["tokens", "metadata", "a/b", "", ".."])
def test_names_that_are_columns_already(tmp_path: Path, name: str) -> None:
    feature = dataclasses.replace(ONE[0], name=name)
    with pytest.raises(OutputError, match="a feature cannot be named"):
        open_writer(tmp_path / "f", format="npz", features=[feature], metadata={})


def test_names_occur_once(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="the same name: layer_output_0, layer_output_0"):
        open_writer(tmp_path / "f", format="npz", features=[*ONE, *ONE], metadata={})


def test_metadata_that_is_not_json(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"metadata is not JSON: .*PosixPath"):
        open_writer(tmp_path / "f", format="npz", features=ONE, metadata={"path": tmp_path})


def test_unknown_formats_and_suffixes(tmp_path: Path) -> None:
    allowed = "allowed: parquet, jsonl, npz, hdf5, tfrecord"
    with pytest.raises(OutputError, match=f"format 'csv' is not known; {allowed}"):
        open_writer(tmp_path / "f.csv", format="csv", features=ONE, metadata={})
    with pytest.raises(OutputError, match=f"format 'csv' is not known; {allowed}"):
        read_features(tmp_path / "f.npz", format="csv")
    with pytest.raises(OutputError, match=r"suffix '\.csv' tells no format; allowed: \.parquet, "):
        read_features(tmp_path / "f.csv")
    assert set(SUFFIXES.values()) == set(FORMATS)


def wrong_batches() -> Iterator[FeatureBatch]:
    batch = make_batch(ONE, [1])
    values = batch.features["layer_output_0"]
    for features in (
        {"other": values},
        {},
        {"layer_output_0": values[:, :2]},
        {"layer_output_0": values[:2]},
        {"layer_output_0": values.astype(np.float16)},
    ):
        yield dataclasses.replace(batch, features=features)
    tokens = first_tokens(batch)
    for changes in (
        {"pieces": tokens.pieces[:2]},
        {"pieces": [1, 2, 3]},
        {"ids": tokens.ids[:2]},
        {"ids": tokens.ids.astype(np.float32)},
        {"row_splits": tokens.row_splits + 1},
        {"row_splits": tokens.row_splits[:1]},
        {"row_splits": np.array([0, 1, 3])},
        {"row_splits": np.array([0, 5, 3])},
    ):
        yield dataclasses.replace(batch, tokens=dataclasses.replace(tokens, **changes))
    yield dataclasses.replace(batch, tokens=None)
    words = Words(np.array([0, 0]), [], *np.zeros((4, 0), np.int32))
    yield dataclasses.replace(batch, words=words)  # no feature is of words
    yield dataclasses.replace(batch, unique_ids=np.array(["a"], object))
    yield dataclasses.replace(batch, unique_ids=np.array([0.0]))


@pytest.mark.parametrize("batch", list(wrong_batches()))
def test_a_batch_of_something_else_is_refused(tmp_path: Path, batch: FeatureBatch) -> None:
    with pytest.raises(OutputError, match="a batch "):
        write(tmp_path / "f", "npz", ONE, batch)
    assert list(tmp_path.iterdir()) == []


# Whole or not at all.


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@all_formats
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("older", [True, False])
def test_an_exception_leaves_things_as_they_were(
    tmp_path: Path, format: str, error: type[BaseException], older: bool
) -> None:
    path = tmp_path / "f"
    if older:
        write(path, format, ONE, make_batch(ONE, [5]))
    before = files_of(tmp_path)

    def fail_halfway() -> None:
        with open_writer(path, format=format, features=ONE, metadata={}, overwrite=True) as writer:
            writer.write(make_batch(ONE, [3] * 100))
            during = files_of(tmp_path)
            assert before.items() <= during.items()
            assert len(during) > len(before)  # it does lie somewhere
            raise error("enough")

    with pytest.raises(error, match="enough"):
        fail_halfway()
    assert files_of(tmp_path) == before


@all_formats
def test_an_interrupt_inside_write(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = open_writer(tmp_path / "f", format=format, features=ONE, metadata={})

    def interrupt(batch: FeatureBatch) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(writer, "_write", interrupt)
    with pytest.raises(KeyboardInterrupt):  # no `with`: the writer clears up by itself
        writer.write(make_batch(ONE, [1]))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OutputError, match="it was closed already"):
        writer.write(make_batch(ONE, [1]))


@all_formats
def test_a_failure_of_close_leaves_things_as_they_were(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    write(path, format, ONE, make_batch(ONE, [5]))
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    rename = Path.replace

    def fail_at_the_end(self: Path, target: Path) -> Path:
        if Path(target) == path:
            raise OSError(5, os.strerror(5))
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", fail_at_the_end)
    writer = open_writer(path, format=format, features=ONE, metadata={"run": 2}, overwrite=True)
    writer.write(make_batch(ONE, [1]))
    with pytest.raises(OutputError, match="Input/output error; nothing was left behind"):
        writer.close()
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_file_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "f"
    writer = open_writer(path, format="npz", features=ONE, metadata={})
    path.write_text("of someone else")
    with pytest.raises(OutputError, match="exists; pass --overwrite"):
        writer.close()
    assert path.read_text() == "of someone else"
    assert list(tmp_path.iterdir()) == [path]


def test_closing_twice_is_closing_once(tmp_path: Path) -> None:
    writer = write(tmp_path / "f", "npz", ONE)
    size = writer.bytes_written
    writer.close()
    writer.discard()
    assert (tmp_path / "f").stat().st_size == writer.bytes_written == size


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from bert_features.errors import OutputError
from bert_features.formats import open_writer
from tests.formats.test_formats import ONE, make_batch

path, format, limit, batches = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if format == "tfrecord":
    from bert_features.machine.quiet_tensorflow import import_tensorflow

    import_tensorflow()  # before the limit, which its own files would meet
batch = make_batch(ONE, [30] * 100)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    with open_writer(path, format=format, features=ONE, metadata={}, overwrite=True) as writer:
        for _ in range(batches):
            writer.write(batch)
except OutputError as error:
    print(error)
"""


@all_formats
@pytest.mark.parametrize(
    ("limit", "batches"),
    [
        pytest.param(300_000, 200, id="while writing"),
        pytest.param(1000, 1, id="while closing"),
        pytest.param(0, 0, id="nothing fits"),
    ],
)
def test_a_full_disk_is_one_clear_error(
    tmp_path: Path, format: str, limit: int, batches: int
) -> None:
    path = tmp_path / "f"
    write(path, format, ONE, make_batch(ONE, [5]))
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path), format, str(limit), str(batches)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).resolve().parents[2],
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.stdout == f"cannot write {path}: File too large; nothing was left behind\n"
    assert done.stderr == ""
    assert done.returncode == 0
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


# Files that are not what they seem.


def test_a_missing_file(tmp_path: Path) -> None:
    for format in FORMATS:
        with pytest.raises(OutputError, match=r"cannot read .*absent: No such file or directory"):
            read_features(tmp_path / "absent", format=format)
    with pytest.raises(OutputError, match="Is a directory"):
        read_features(tmp_path, format="npz")


def read_all(path: Path, format: str) -> None:
    for _ in read_features(path, format=format):
        pass


def assert_refused(path: Path, format: str) -> None:
    with pytest.raises(OutputError, match="cannot read") as caught:
        read_all(path, format)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@all_formats
@pytest.mark.parametrize("left", [0.02, 0.3, 0.6, 0.95, -1])
def test_a_file_that_was_cut_short(tmp_path: Path, format: str, left: float) -> None:
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, ONE, make_batch(ONE, [5] * 50))
    content = path.read_bytes()
    path.write_bytes(content[: -1 if left == -1 else int(len(content) * left)])
    if format == "jsonl" and left == -1:
        read_all(path, format)  # only the last line's end is gone: nothing is lost
    else:
        assert_refused(path, format)


@pytest.mark.parametrize("format", sorted(SIDECARS))
def test_a_file_cut_between_two_records(tmp_path: Path, format: str) -> None:
    whole, half = tmp_path / "whole", tmp_path / "half"
    batch = make_batch(ONE, [2, 2])
    write(whole, format, ONE, batch, batch)
    write(half, format, ONE, batch)
    whole.write_bytes(half.read_bytes())
    with pytest.raises(OutputError, match="holds 2 records where 4 were written"):
        read_all(whole, format)


@all_formats
@pytest.mark.parametrize("content", [b"", b"\n", b"hello\nworld\n" * 50, b"[1]\n", b'{"a": 1}\n'])
def test_a_file_of_something_else(tmp_path: Path, format: str, content: bytes) -> None:
    path = tmp_path / "f"
    path.write_bytes(content)
    if format == "jsonl" and content == b"":
        assert list(read_features(path, format=format)) == []  # no lines, no sidecar: no records
    else:
        assert_refused(path, format)


def foreign_npz(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, x=np.zeros(3))


def compressed_npz(path: Path) -> None:
    write(path, "npz", ONE, make_batch(ONE, [1]))
    with np.load(path) as arrays:
        columns = dict(arrays)
    with path.open("wb") as file:
        np.savez_compressed(file, **columns)


def pickled_npz(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, metadata=np.array([print], dtype=object))


def foreign_parquet(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [1, 2]}), path)


def foreign_hdf5(path: Path) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file["x"] = [1, 2]


def other_formats_sidecar(path: Path) -> None:
    write(path, "jsonl", ONE, make_batch(ONE, [1]))


@pytest.mark.parametrize(
    ("format", "make"),
    [
        ("npz", foreign_npz),
        ("npz", compressed_npz),
        ("npz", pickled_npz),
        ("parquet", foreign_parquet),
        ("hdf5", foreign_hdf5),
        ("tfrecord", other_formats_sidecar),
    ],
)
def test_a_file_of_the_format_but_not_ours(
    tmp_path: Path, format: str, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "f")
    assert_refused(tmp_path / "f", format)


def test_a_tfrecord_whose_bytes_changed(tmp_path: Path) -> None:
    path = tmp_path / "f.tfrecord"
    write(path, "tfrecord", ONE, make_batch(ONE, [5, 5]))
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
    assert_refused(path, "tfrecord")


def test_a_tfrecord_without_its_sidecar(tmp_path: Path) -> None:
    path = tmp_path / "f.tfrecord"
    write(path, "tfrecord", ONE, make_batch(ONE, [1]))
    (tmp_path / "f.tfrecord.metadata.json").unlink()
    with pytest.raises(OutputError, match=r"there is no .*\.metadata\.json, .* copy it beside"):
        read_features(path)


@pytest.mark.parametrize("version", [1, 3])
def test_a_file_of_another_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr("bert_features.formats.base.FORMAT_VERSION", version)
    write(tmp_path / "f.npz", "npz", ONE)
    with pytest.raises(OutputError, match=f"format_version is {version}; this release reads 2"):
        read_features(tmp_path / "f.npz")


def test_an_error_of_the_reader_of_records_is_left_alone(tmp_path: Path) -> None:
    """What goes wrong in the user's loop is not the file's fault."""
    write(tmp_path / "f.npz", "npz", ONE, make_batch(ONE, [1]))

    def divide() -> None:
        for record in read_features(tmp_path / "f.npz"):
            len(record.features) / 0

    with pytest.raises(ZeroDivisionError):
        divide()


# Cost.

GROWTH = """
import resource, sys
from pathlib import Path
from bert_features.formats.records import Feature
from bert_features.formats import open_writer, read_features
from tests.formats.test_formats import make_batch

path, format = Path(sys.argv[1]), sys.argv[2]
features = (Feature("layer_output_0", (-1,), "none", 384, "float32"),)
batch = make_batch(features, [30] * 16)  # 512 tokens, 0.8 MB

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

def now():  # without the pages of a mapped file, which the system may drop at any time
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) // 1024

with open_writer(path, format=format, features=features, metadata={}) as writer:
    for i in range(300):
        if i == 100:
            before = peak()
        writer.write(batch)
print(peak() - before)
sizes = [now() for i, record in enumerate(read_features(path, format=format)) if i % 100 == 99]
print(max(sizes[16:]) - max(sizes[:16]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by Linux's /proc")
@pytest.mark.parametrize("format", ["parquet", "npz", "hdf5"])
def test_memory_does_not_grow_with_the_records(tmp_path: Path, format: str) -> None:
    """The last 200 of 300 batches are 157 MB, which neither writing nor reading may hold."""
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, str(tmp_path / "f"), format],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    written, read = (int(megabytes) for megabytes in done.stdout.split())
    assert written < 50
    assert read < 50


def test_importing_the_package_is_cheap() -> None:
    code = """
        import sys, bert_features.formats
        heavy = {"tensorflow", "h5py", "pyarrow", "keras"} & sys.modules.keys()
        assert not heavy, heavy
        from bert_features.formats import parquet, jsonl, npz, hdf5, tfrecord
        heavy = {"tensorflow", "h5py", "pyarrow", "keras"} & sys.modules.keys()
        assert not heavy, heavy
    """
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, cwd=root)

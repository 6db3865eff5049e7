"""What the tests of formats share: batches, files, and what a file must give back."""

import contextlib
import dataclasses
import json
import resource
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_features.config.levels import LEVELS, TEXT
from bert_features.config.poolings import Level
from bert_features.errors import OutputError
from bert_features.files.checksums import checksum_of_ends, checksum_of_file
from bert_features.formats import (
    FORMATS,
    SUFFIXES,
    FeatureFile,
    FeatureView,
    FeatureWriter,
    IdType,
    open_writer,
    read_features,
)
from bert_features.formats.columns import levels_of, value_dtype
from bert_features.formats.records import Feature, FeatureBatch, FeatureRecord, Rows, splits_of

SUFFIX = {name: suffix for suffix, name in SUFFIXES.items()} | {"hdf5": ".h5"}


SIDECARS = {"jsonl", "tfrecord"}

# What has no checksum: HDF5's Fletcher-32 covers numbers alone.
UNCHECKED = {format: ("texts",) if format == "hdf5" else () for format in FORMATS}


METADATA = {"checkpoint": "sha256:ab", "layers": [-1, "embeddings"], "note": "naïve 東京"}


WORDS = ["the", "##ing", "東", "é", "🙂", 'quo"te', "back\\slash"]


all_formats = pytest.mark.parametrize("format", FORMATS)


ONE = (Feature("layer_output_0", (-1,), "none", 3, "float32"),)


def make_batch(
    features: tuple[Feature, ...],
    lengths: list[int],
    first_id: int = 0,
    seed: int = 0,
    id_type: IdType = "int",
) -> FeatureBatch:
    """Examples of [CLS] words.. [SEP]; a length counts the words, spans, terms and vectors."""
    rng = np.random.default_rng(seed)
    rows = [[WORDS[i % len(WORDS)] for i in range(n)] for n in lengths]
    framed = [["[CLS]", *row, "[SEP]"] for row in rows]

    def vectors_of(level: str, count: int) -> dict[str, np.ndarray]:
        arrays = {}
        for f in (each for each in features if each.level == level):
            values, dtype = rng.normal(0, 2, (count, f.stored_width)), value_dtype(f.dtype)
            if dtype == np.uint8:  # what a negative float becomes depends on the processor
                values = values.astype(np.int64)
            arrays[f.name] = values.astype(dtype)
        return arrays

    levels = {}
    for level in levels_of(features):
        units = framed if LEVELS[level].unit == "token" else rows
        is_labelled = any(f.labelled for f in features if f.level == level)
        splits = splits_of(np.array(list(map(len, units))) ** LEVELS[level].axes)
        texts = np.array([text for row in units for text in row], object)
        columns = {
            name: texts if dtype == TEXT else rng.integers(-1, 30522, len(texts), dtype=np.int32)
            for name, dtype in LEVELS[level].columns_of(labelled=is_labelled).items()
        }
        levels[level] = Rows(splits, columns, vectors_of(level, int(splits[-1])))
    numbers = range(first_id, first_id + len(rows))
    as_text = [f"é{i}" + '"x\\' * (i % 3) for i in numbers]  # quotes, and different lengths
    return FeatureBatch(
        np.array(as_text, object) if id_type == "str" else np.array(numbers, np.int64),
        vectors_of("sequence", len(rows)),
        levels,
    )


def tokens_of(batch: FeatureBatch) -> list[str]:
    tokens: list[str] = batch.columns["tokens"].tolist()
    return tokens


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


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@contextlib.contextmanager
def full_disk(limit: int) -> Iterator[None]:
    """No file may grow beyond a size until the block ends."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def fit_sidecar(path: Path) -> None:
    """Gives the sidecar of a file that was changed the checksums of its bytes."""
    sidecar = path.with_name(f"{path.name}.metadata.json")
    content = json.loads(sidecar.read_text())
    size, ends = checksum_of_ends(path)
    found = {"bytes": size, "ends_crc32c": ends, "crc32c": checksum_of_file(path)}
    sidecar.write_text(json.dumps(content | {"features_file": found}))


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
    assert received.word_labels == expected.word_labels
    assert_same_numbers(received.token_ids, expected.token_ids)
    for name in ("starts", "ends", "type_ids", "num_pieces"):
        assert_same_numbers(
            getattr(received.word_spans, name, None), getattr(expected.word_spans, name, None)
        )
    found, units = (
        {name: cell for level in (record.units or {}).values() for name, cell in level.items()}
        for record in (received, expected)
    )
    assert found.keys() == units.keys()
    for name, cell in units.items():
        if isinstance(cell, np.ndarray):
            assert_same_numbers(found[name], cell)
        else:
            assert found[name] == cell
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


_LAST: Any = {"layers": (-1,), "combine": "none", "dtype": "float32"}
_SHOWN: Any = {**_LAST, "kind": "attention"}
ATTENTION = (
    Feature("attention", width=2, level="token_pair", heads=(0, 1), **_SHOWN),
    Feature("of words", width=1, level="word_pair", heads=("mean",), **_SHOWN),
    Feature("of [CLS]", width=2, pooling="cls", heads=(1, 0), **_SHOWN),
)


MIXES = {
    "token": mix("token"),
    "word": mix("word"),
    "sequence": mix("sequence"),
    "all": (*mix("sequence", "token", "word"), Feature("sum", (-2, -1), "sum", 1, "float32")),
    "word and sequence": mix("word", "sequence"),
    # A plain block, the embeddings, and a combination; widths differ.
    "several of tokens": (
        Feature("layer_output_0", (-1,), "none", 4, "float16"),
        Feature("layer_output_1", ("embeddings",), "none", 4, "float16"),
        Feature("last four", (-4, -3, -2, -1), "concat", 16, "float16"),
    ),
    "attention": ATTENTION,
    "attention and others": (*ATTENTION, *mix("sequence", "token")),
    "spans, terms and vectors": (
        Feature("of spans", width=3, level="span", pooling="mean", **_LAST),
        Feature("sparse", width=1, level="term", pooling="max", kind="sparse", **_LAST),
        Feature("late", width=2, level="vector", kind="multi_vector", **_LAST),
    ),
    "small": (
        Feature("int8", (-1,), "none", 3, "int8", "sequence", scale=((-9.0,) * 3, (9.0,) * 3)),
        Feature("bits", (-1,), "none", 11, "binary", "sequence"),
        *mix("token"),
    ),
    "labelled words and numbers of pieces": (
        Feature("tagged", width=2, level="word", pooling="mean", labelled=True, **_LAST),
        Feature("likely", width=2, kind="masked_lm", **_LAST),
        Feature("likely_ids", width=2, kind="masked_lm", **_LAST | {"dtype": "int32"}),
    ),
}
MIXES_AND_IDS = [(name, "str" if "word" in name or name == "all" else "int") for name in MIXES]


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


PARTS = (slice(None), slice(1, 5), slice(-2, None), slice(2, 3), slice(3, 4), slice(4, 2), slice(9))


def assert_reads(file: FeatureFile, expected: list[FeatureRecord]) -> None:
    """Every way to six records gives what is expected: by number, id and slice, and as arrays."""
    ids = [record.unique_id for record in expected]
    assert len(file) == len(expected)
    for _ in range(2):  # again and again
        assert_all_same(file, expected)
    for order in (range(6), range(-1, -7, -1)):
        assert_all_same([file[i] for i in order], [expected[i] for i in order])
    assert_same(file[np.int64(4)], expected[4])
    assert_all_same(file[1:][1:-1][-3:], expected[2:5])
    for part in PARTS:
        view = file[part]
        assert len(view) == len(expected[part])
        assert_all_same(view, expected[part])
        assert view.ids.tolist() == ids[part]
        for feature in file.features:
            rows = [record.features[feature.name] for record in expected[part]]
            assert_arrays(view, feature, rows)
    assert file.ids.dtype == (object if file.id_type == "str" else np.int64)
    assert_all_same([file.by_id(i) for i in ids[::-1]], expected[::-1])


def assert_empty(file: FeatureFile) -> None:
    """Every way to the records of a file without any, whose feature is `ONE`."""
    assert list(file[:]) == []
    assert file.ids.tolist() == []
    with pytest.raises(OutputError, match="has the id 0"):
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


def assert_arrays(view: FeatureView, feature: Feature, rows: list[np.ndarray]) -> None:
    """`ragged` and `blocks` give the vectors of some records."""
    values, splits = view.ragged(feature.name)
    blocks = list(view.blocks(feature.name))
    assert values.dtype == value_dtype(feature.dtype)
    np.testing.assert_array_equal(np.concatenate([values[:0], *(v for v, _ in blocks)]), values)
    if feature.is_paired:
        rows = [pairs_of(row) for row in rows]
    if splits is None:
        assert feature.level == "sequence"
        np.testing.assert_array_equal(values, np.array(rows).reshape(-1, feature.stored_width))
        return
    assert splits.dtype == np.int64
    assert splits.tolist() == [0, *np.cumsum([len(row) for row in rows])]
    np.testing.assert_array_equal(values, np.concatenate([values[:0], *rows]))
    lengths = [int(n) for _, part in blocks if part is not None for n in np.diff(part)]
    assert lengths == np.diff(splits).tolist()


def pairs_of(matrices: np.ndarray) -> np.ndarray:
    """[D, S, S] as files hold it: a vector of D values for each pair, row by row."""
    vectors = [matrices[:, i, j] for i, j in np.ndindex(matrices.shape[1:])]
    return np.array(vectors, matrices.dtype).reshape(-1, len(matrices))


def cells_of(record: FeatureRecord) -> dict[str, Any]:
    """A record by the names of the columns."""
    spans = record.word_spans
    cells = {
        "unique_id": record.unique_id,
        "tokens": record.tokens,
        "token_ids": record.token_ids,
        "words": record.words,
        "word_labels": record.word_labels,
        "word_starts": spans and spans.starts,
        "word_ends": spans and spans.ends,
        "word_type_ids": spans and spans.type_ids,
        "word_num_pieces": spans and spans.num_pieces,
        **{name: cell for level in (record.units or {}).values() for name, cell in level.items()},
        **record.features,
    }
    return {name: cell for name, cell in cells.items() if cell is not None}


def read_all(path: Path, format: str) -> None:
    for _ in read_features(path, format=format):
        pass


def assert_refused(path: Path, format: str) -> None:
    with pytest.raises(OutputError, match="cannot read") as caught:
        read_all(path, format)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)

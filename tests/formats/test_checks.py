"""What a writer refuses: names, ids, texts and batches."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bert_features.errors import OutputError
from bert_features.formats import (
    open_writer,
    read_features,
)
from bert_features.formats.records import FeatureBatch, Rows
from tests.formats.feature_files import (
    ONE,
    SUFFIX,
    all_formats,
    make_batch,
    write,
)


def test_an_unknown_type_of_ids(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="id_type 'float' is unknown; allowed: int, str"):
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
    with pytest.raises(OutputError, match=r"unique_ids holds '.*', which has a NUL or a lone surr"):
        write(path, format, ONE, batch, id_type="str")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["tokens", "Tokens", "WORD_starts", "metadata", "a/b", "", ".."])
def test_names_that_are_columns_already(tmp_path: Path, name: str) -> None:
    feature = dataclasses.replace(ONE[0], name=name)
    with pytest.raises(
        OutputError, match=r"output name .* (is reserved for a column|contains '/')"
    ):
        open_writer(tmp_path / "f", format="npz", features=[feature], metadata={})


def test_names_occur_once(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="two outputs are named 'layer_output_0'; give each a"):
        open_writer(tmp_path / "f", format="npz", features=[*ONE, *ONE], metadata={})
    upper = dataclasses.replace(ONE[0], name="Layer_output_0")
    message = "'layer_output_0' and 'Layer_output_0' differ only by case, which DuckDB and Spark"
    with pytest.raises(OutputError, match=message):
        open_writer(tmp_path / "f", format="npz", features=[*ONE, upper], metadata={})
    assert list(tmp_path.iterdir()) == []


def wrong_batches() -> Iterator[FeatureBatch]:
    batch = make_batch(ONE, [1])
    tokens = batch.level("token")
    columns, features = tokens.columns, tokens.features
    values, ids = features["layer_output_0"], columns["token_ids"]
    splits = tokens.splits
    for wrong in (values[:, :2], values[:2], values.astype(np.float16)):
        yield dataclasses.replace(batch, tokens=Rows(splits, columns, {"layer_output_0": wrong}))
    for changes in (
        {"tokens": columns["tokens"][:2]},
        {"tokens": np.array([1, 2, 3], object)},
        {"token_ids": ids[:2]},
        {"token_ids": ids.astype(np.float32)},
    ):
        yield dataclasses.replace(batch, tokens=Rows(splits, columns | changes, features))
    for name in columns:
        others = {key: column for key, column in columns.items() if key != name}
        yield dataclasses.replace(batch, tokens=Rows(splits, others, features))
    yield dataclasses.replace(batch, tokens=Rows(splits, columns))
    for wrong in (splits + 1, splits[:1], np.array([0, 1, 3]), np.array([0, 5, 3])):
        yield dataclasses.replace(batch, tokens=Rows(wrong, columns, features))
    yield dataclasses.replace(batch, tokens=None)
    yield dataclasses.replace(batch, unique_ids=np.array(["a"], object))
    yield dataclasses.replace(batch, unique_ids=np.array([0.0]))


@pytest.mark.parametrize("batch", list(wrong_batches()))
def test_a_batch_of_something_else_is_refused(tmp_path: Path, batch: FeatureBatch) -> None:
    with pytest.raises(OutputError, match="a batch "):
        write(tmp_path / "f", "npz", ONE, batch)
    assert list(tmp_path.iterdir()) == []

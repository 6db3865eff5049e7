"""What a writer refuses: names, texts and batches."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bert_features.errors import OutputError
from bert_features.formats import read_features
from bert_features.formats.records import FeatureBatch, Rows
from tests.formats.feature_files import ONE, SUFFIX, all_formats, make_batch, write


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
    with pytest.raises(OutputError, match="unique_ids holds"):
        write(path, format, ONE, batch, id_type="str")
    assert list(tmp_path.iterdir()) == []


def wrong_batches() -> Iterator[FeatureBatch]:
    batch = make_batch(ONE, [1])
    tokens = batch.levels["token"]
    columns, features, splits = tokens.columns, tokens.features, tokens.splits
    values, ids = features["layer_output_0"], columns["token_ids"]
    for wrong in (values[:, :2], values[:2], values.astype(np.float16)):
        yield dataclasses.replace(
            batch, levels={"token": Rows(splits, columns, {"layer_output_0": wrong})}
        )
    for changes in ({"tokens": columns["tokens"][:2]}, {"token_ids": ids.astype(np.float32)}):
        yield dataclasses.replace(
            batch, levels={"token": Rows(splits, columns | changes, features)}
        )
    yield dataclasses.replace(batch, levels={"token": Rows(splits, columns)})
    yield dataclasses.replace(batch, levels={"token": Rows(splits[:1], columns, features)})
    yield dataclasses.replace(batch, levels={})
    yield dataclasses.replace(batch, unique_ids=np.array(["a"], object))


@pytest.mark.parametrize("batch", list(wrong_batches()))
def test_a_batch_of_something_else_is_refused(tmp_path: Path, batch: FeatureBatch) -> None:
    with pytest.raises(OutputError, match="not as announced"):
        write(tmp_path / "f", "npz", ONE, batch)
    assert list(tmp_path.iterdir()) == []

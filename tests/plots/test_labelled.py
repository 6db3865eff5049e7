"""Labelled files: the same labels from every format; what is refused."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import BertFeaturesError, ConfigError
from bert_features.plots.labelled import check_classes, read_labelled

TEXTS, LABELS = ["a, b", "c", "d"], ["x", "y z", "x"]


def write(path, kind, labels=LABELS):
    """A file of this kind with the columns body and topic."""
    if kind == "parquet":
        pq.write_table(pa.table({"body": TEXTS, "topic": labels}), path)
    elif kind == "jsonl":
        rows = [{"body": t, "topic": label} for t, label in zip(TEXTS, labels, strict=True)]
        path.write_text("\n\n".join(map(json.dumps, rows)))
    else:
        rows = zip(["body", *TEXTS], ["topic", *labels], strict=True)
        quote, separator = ('"', ",") if kind == "csv" else ("", "\t")
        path.write_text("".join(f"{quote}{t}{quote}{separator}{label}\n" for t, label in rows))
    return str(path)


BODY = ExtractConfig(text_field="body")


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_texts_and_labels(tmp_path, kind):
    found = read_labelled(write(tmp_path / f"in.{kind}", kind), BODY, "topic")
    assert [example.text_a for example in found.examples] == TEXTS
    assert found.labels == LABELS
    assert found.counts() == {"x": 2, "y z": 1}


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("labels", [[0, 1, 0], [True, False, True]])
def test_labels_may_be_numbers(tmp_path, kind, labels):
    path = write(tmp_path / f"in.{kind}", kind, labels)
    assert read_labelled(path, BODY, "topic").labels == [str(label) for label in labels]


def test_without_a_label_field_there_are_none(tmp_path):
    assert read_labelled(write(tmp_path / "in.csv", "csv"), BODY, None).labels is None


@pytest.mark.parametrize(
    ("kind", "labels", "field", "message"),
    [
        ("csv", LABELS, "kind", "no column 'kind'; the columns are body, topic"),
        ("jsonl", LABELS, "kind", "line 1: no field 'kind'; the fields are body, topic"),
        ("parquet", LABELS, "kind", "no column 'kind'; the columns are body, topic"),
        ("jsonl", ["x", None, "x"], "topic", "line 3: the label is None; expected a text, a num"),
        ("parquet", ["x", None, "x"], "topic", "row 2: the label is None"),
        ("csv", ["x", "", "x"], "topic", "line 3: the label is ''"),
        ("jsonl", ["x", ["y"], "x"], "topic", "the label is"),
    ],
)
def test_a_missing_label_is_refused(tmp_path, kind, labels, field, message):
    path = write(tmp_path / f"in.{kind}", kind, labels)
    with pytest.raises(BertFeaturesError, match=message):
        read_labelled(path, BODY, field)


@pytest.mark.parametrize("field", ["topic", None])
def test_ids_are_not_read_with_labels_or_without(tmp_path, field):
    settings = ExtractConfig(text_field="body", id_field="absent")
    found = read_labelled(write(tmp_path / "in.csv", "csv"), settings, field)
    assert [example.unique_id for example in found.examples] == [0, 1, 2]


def test_a_field_without_a_name_is_refused(tmp_path):
    path = write(tmp_path / "in.csv", "csv")
    with pytest.raises(ConfigError, match="label_field is ''; name the field of the labels"):
        read_labelled(path, BODY, "")


def test_a_text_file_has_no_fields(tmp_path):
    (tmp_path / "in.txt").write_text("a\n")
    with pytest.raises(BertFeaturesError, match="is read as text, which has none; pass a file"):
        read_labelled(str(tmp_path / "in.txt"), ExtractConfig(), "topic")


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "in.txt").write_text("")
    with pytest.raises(BertFeaturesError, match="it has no texts"):
        read_labelled(str(tmp_path / "in.txt"), ExtractConfig(), None)


@pytest.mark.parametrize(
    ("labels", "folds", "message"),
    [
        (["x", "x", "x"], 2, "all 3 examples have the label 'x'; a classifier needs at least two"),
        (LABELS, 2, r"fewer than 2 examples, one for each fold, have the label 'y z' \(1\); add e"),
    ],
)
def test_classes_that_cannot_be_told_apart_are_refused(tmp_path, labels, folds, message):
    labelled = read_labelled(write(tmp_path / "in.csv", "csv", labels), BODY, "topic")
    with pytest.raises(BertFeaturesError, match=message):
        check_classes(labelled, folds=folds)


def test_texts_that_stand_more_than_once_are_counted(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("text,topic\na,x\nb,y\na,x\na,y\nb,x\nc,y\n")
    assert read_labelled(str(path), ExtractConfig(), "topic").repeated() == 2

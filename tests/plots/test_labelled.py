"""Labelled files: the same labels from every format; what is refused."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import ConfigError, InputError
from bert_features.plots.labelled import read_labelled

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


def of(field):
    """The settings that name a field of labels, as `plot` makes them."""
    return ExtractConfig(text_field="body", level="word", label_field=field)


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_texts_and_labels(tmp_path, kind):
    found = read_labelled(write(tmp_path / f"in.{kind}", kind), of("topic"))
    assert [example.text_a for example in found.examples] == TEXTS
    assert found.labels == LABELS
    assert found.counts() == {"x": 2, "y z": 1}


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("labels", [[0, 1, 0], [True, False, True]])
def test_labels_may_be_numbers(tmp_path, kind, labels):
    path = write(tmp_path / f"in.{kind}", kind, labels)
    assert read_labelled(path, of("topic")).labels == [str(label) for label in labels]


def test_without_a_label_field_there_are_none(tmp_path):
    assert read_labelled(write(tmp_path / "in.csv", "csv"), BODY).labels is None


@pytest.mark.parametrize("field", ["topic", None])
def test_ids_are_not_read_with_labels_or_without(tmp_path, field):
    settings = BODY if field is None else of(field)
    settings = settings.model_copy(update={"id_field": "absent"})
    found = read_labelled(write(tmp_path / "in.csv", "csv"), settings)
    assert [example.unique_id for example in found.examples] == [0, 1, 2]


@pytest.mark.parametrize("units", [True, False])
def test_labels_of_words_are_for_probes(tmp_path, units):
    (path := tmp_path / "in.jsonl").write_text('{"tokens": ["a", "b"], "pos": ["X", null]}\n')
    settings = ExtractConfig(level="word", label_field="pos")
    if units:
        found = read_labelled(str(path), settings, units=True)
        assert (found.level, found.labels) == ("word", None)
        assert found.labels_of_units() == [("X", "")]
        return
    with pytest.raises(ConfigError, match="label_field"):
        read_labelled(str(path), settings)


def test_texts_and_words_are_not_mixed(tmp_path):
    (path := tmp_path / "in.jsonl").write_text(
        '{"tokens": ["a"], "y": ["X"]}\n{"text": "a", "y": 1}\n'
    )
    settings = ExtractConfig(level="word", label_field="y")
    with pytest.raises(InputError, match="text 2 is a text"):
        read_labelled(str(path), settings, units=True)

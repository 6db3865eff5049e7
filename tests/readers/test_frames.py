"""Tables and columns in memory: refused without a field, else read as files are."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from bert_features.config.input_format import InputFormat
from bert_features.errors import ConfigError, InputError
from bert_features.readers.examples import examples_of_texts
from bert_features.readers.input_example import InputExample
from tests.readers.inputs import of_words


class HuggingFaceDataset:
    """The interface of `datasets.Dataset` that is used: a table, a selection of its rows."""

    __module__ = "datasets.arrow_dataset"

    def __init__(self, table, rows=None, as_arrow=False):
        self.data, self._rows, self._as_arrow = table, rows, as_arrow

    @property
    def column_names(self):
        return self.data.column_names

    def select(self, rows):
        return HuggingFaceDataset(self.data, rows)

    def select_columns(self, names):
        return HuggingFaceDataset(self.data.select(names), self._rows, self._as_arrow)

    def with_format(self, kind):
        return HuggingFaceDataset(self.data, self._rows, kind == "arrow")

    def __getitem__(self, key):
        table = self.data if self._rows is None else self.data.take(self._rows)
        return table[key] if self._as_arrow else table[key].to_pydict()

    def __iter__(self):
        return iter(self.data.to_pylist())


class DatasetDict(dict):
    """`datasets.DatasetDict` is a dict of datasets."""


def record_batch_reader(columns):
    table = pa.table(columns)
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches())


TABLES = {
    "dict": dict,
    "pandas": pd.DataFrame,
    "pandas with an index": lambda columns: pd.DataFrame(columns, index=[7, 7, 9]),
    "polars": pl.DataFrame,
    "Arrow table": pa.table,
    "Arrow batch": pa.record_batch,
    "Arrow reader": record_batch_reader,
    "dataset": lambda columns: HuggingFaceDataset(pa.table(columns)),
}
tables = pytest.mark.parametrize("make", TABLES.values(), ids=TABLES.keys())
COLUMNS = {"id": ["x", "y", "z"], "text": ["one", "two", ""], "n": [1, 2, 3]}


def test_rows_that_come_one_by_one_are_refused():
    stream = type("IterableDataset", (), {"__module__": "datasets.iterable_dataset"})()
    for field in (None, "text"):
        with pytest.raises(InputError, match=r"is no table; .* \(row\['text'\] for row in dataset"):
            list(examples_of_texts(stream, text_field=field))


@tables
def test_without_a_field_a_table_is_refused(make):
    """Iterating gives the names of the columns, which were once taken for the texts."""
    with pytest.raises(InputError, match=r"(keys|columns) id, text, n; name the column .*text_fie"):
        list(examples_of_texts(make(COLUMNS)))
    with pytest.raises(InputError, match="name the column of the texts"):
        list(examples_of_texts(make(COLUMNS), id_field="id"))


@tables
def test_a_table_with_a_field_is_read_as_a_file_is(make):
    read = list(examples_of_texts(make(COLUMNS), text_field="text"))
    assert read == [InputExample("x", "one"), InputExample("y", "two"), InputExample("z", "")]
    read = list(examples_of_texts(make(COLUMNS), text_field="id", id_field="n"))
    assert read == [InputExample(1, "x"), InputExample(2, "y"), InputExample(3, "z")]
    numbered = list(examples_of_texts(make(COLUMNS), text_field="text", id_field=""))
    assert [example.unique_id for example in numbered] == [0, 1, 2]


@tables
def test_pairs_and_words(make):
    columns = {"a": ["one", "two", "three"], "b": ["uno", None, "tres"]}
    read = list(examples_of_texts(make(columns), text_field="a", text_b_field="b"))
    assert read == [
        InputExample(0, "one", "uno"),
        InputExample(1, "two"),
        InputExample(2, "three", "tres"),
    ]
    words = {"w": [["one"], ["two", "words"], []]}
    read = list(examples_of_texts(make(words), tokens_field="w"))
    assert read == [of_words(0, "one"), of_words(1, "two words"), of_words(2, "")]


@tables
def test_missing_values_and_wrong_columns(make):
    columns = {"text": ["one", None, "three"], "n": [1, 2, 3]}
    with pytest.raises(InputError, match=r"row 1 \(counted from 0\): 'text' is null; fill"):
        list(examples_of_texts(make(columns), text_field="text"))
    for field, part in (("body", "no column 'body'"), ("n", "column 'n' is of type")):
        with pytest.raises(InputError, match=part):
            list(examples_of_texts(make(columns), text_field=field))
    repeated = {"text": ["a", "b", "c"], "id": [1, 2, 1]}
    with pytest.raises(InputError, match="the id 1 is also"):
        list(examples_of_texts(make(repeated), text_field="text"))


def test_a_column_without_any_value():
    """Arrow gives it the type null."""
    frame = pd.DataFrame({"text": ["one"], "text_b": pd.Series([None], dtype=object)})
    assert list(examples_of_texts(frame, text_field="text")) == [InputExample(0, "one")]
    with pytest.raises(InputError, match=r"row 0 \(counted from 0\): 'text_b' is null"):
        list(examples_of_texts(frame, text_field="text_b"))
    with pytest.raises(InputError, match=r"row 0 .*: the id is None; allowed: a string"):
        list(examples_of_texts(frame, text_field="text", id_field="text_b"))
    empty = pd.DataFrame({"text": pd.Series([], dtype=object)})
    assert list(examples_of_texts(empty, text_field="text")) == []


def test_columns_that_are_not_needed_may_hold_anything():
    frame = pd.DataFrame({"text": ["one"], "object": [object()], 3: [4]})
    assert list(examples_of_texts(frame, text_field="text")) == [InputExample(0, "one")]
    mixed = pd.DataFrame({"text": pd.Series(["one", 2], dtype=object)})
    with pytest.raises(InputError, match="the DataFrame"):
        list(examples_of_texts(mixed, text_field="text"))
    large = pd.DataFrame({"text": ["one"], "id": pd.Series([1 << 70], dtype=object)})
    with pytest.raises(InputError, match="the DataFrame"):
        list(examples_of_texts(large, text_field="text"))


def test_a_dataset_keeps_its_selection():
    dataset = HuggingFaceDataset(pa.table(COLUMNS)).select([2, 0])
    read = list(examples_of_texts(dataset, text_field="text"))
    assert read == [InputExample("z", ""), InputExample("x", "one")]
    parts = DatasetDict(train=dataset, test=dataset)
    with pytest.raises(InputError, match="texts is a DatasetDict of train"):
        list(examples_of_texts(parts))


def test_the_fields_of_the_settings_are_the_defaults():
    columns = {"body": ["one"], "words": [["two"]], "key": ["k"]}
    settings = InputFormat(text_field="body", id_field="key")
    assert list(examples_of_texts(columns, settings)) == [InputExample("k", "one")]
    words = list(examples_of_texts(columns, settings, tokens_field="words"))
    assert words == [of_words("k", "two")]
    assert list(examples_of_texts(["text"], settings)) == [InputExample(0, "text")]
    with pytest.raises(ConfigError, match="text_field"):
        list(examples_of_texts(["text"], text_field="body"))


def test_what_is_no_column_of_texts():
    with pytest.raises(InputError, match="'text' is one string"):
        list(examples_of_texts({"text": "abc"}, text_field="text"))
    with pytest.raises(InputError, match=r"a LazyFrame, .*; pass what its \.collect\(\) re"):
        list(examples_of_texts(pl.LazyFrame({"text": ["a"]}), text_field="text"))
    with pytest.raises(InputError, match="texts has 2 dimensions; allowed: one"):
        list(examples_of_texts(np.array([["a"]])))
    with pytest.raises(InputError, match=r"texts\[0\] is 1; allowed"):
        list(examples_of_texts(np.array([1, 2])))


@pytest.mark.parametrize(
    "make",
    [
        np.array,
        lambda texts: np.array(texts, object),
        pl.Series,
        pa.array,
        lambda texts: pa.chunked_array([texts[:1], texts[1:]]),
        pd.Index,
    ],
)
def test_a_column_is_numbered_from_zero(make):
    read = list(examples_of_texts(make(["one", "two"])))
    assert read == [InputExample(0, "one"), InputExample(1, "two")]
    assert {type(example.text_a) for example in read} == {str}
    assert {type(example.unique_id) for example in read} == {int}


def test_a_series_keeps_its_index():
    series = pd.Series(["one", "two", "three"])
    assert [e.unique_id for e in examples_of_texts(series)] == [0, 1, 2]
    assert list(examples_of_texts(series[series != "one"])) == [
        InputExample(1, "two"),
        InputExample(2, "three"),
    ]
    named = pd.Series([["a", "b"]], index=["k"])
    assert list(examples_of_texts(named)) == [of_words("k", "a b")]


def test_ids_that_nothing_returns_need_not_be_unique():
    """As in `encode`."""
    series = pd.Series(["a", "b"], index=[5, 5])
    examples = [InputExample(0, "a"), InputExample(1, "b")]
    assert list(examples_of_texts(series, with_ids=False)) == examples
    frame = pd.DataFrame({"text": ["a", "b"], "id": [None, 1.5]})
    assert list(examples_of_texts(frame, text_field="text", with_ids=False)) == examples


@pytest.mark.parametrize(
    ("series", "message"),
    [
        (pd.Series(["a", "b"], index=[5, 5]), "5 occurs more than"),
        (pd.Series(["a"], index=pd.to_datetime(["2020-01-01"])), "the id is Timestamp"),
        (pd.Series(["a", None], index=["x", "y"]), "row 1 .*'y'"),
    ],
)
def test_a_series_that_is_refused(series, message):
    with pytest.raises(InputError, match=message):
        list(examples_of_texts(series))

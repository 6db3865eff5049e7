"""Parquet: texts, words, ids of several types, read in small parts."""

import gzip
import os

import pyarrow as pa
import pytest

from bert_features.errors import InputError
from bert_features.readers.examples import read_examples
from bert_features.readers.input_example import InputExample
from tests.readers.inputs import count_examples, read, write, write_parquet


def test_parquet(tmp_path):
    path = write_parquet(
        tmp_path,
        {
            "id": pa.array([2, 1, 3], pa.uint16()),
            "text": ["a ||| b", "", " c "],
            "text_b": ["x", None, ""],
            "more": [1.0, 2.0, 3.0],
        },
    )
    expected = [InputExample(2, "a ||| b", "x"), InputExample(1, ""), InputExample(3, " c ", "")]
    assert read(path) == expected
    assert count_examples(path) == 3


@pytest.mark.parametrize("list_of", [pa.list_, pa.large_list])
def test_parquet_with_words(tmp_path, list_of):
    columns = {
        "id": pa.array(["x", "y"]).dictionary_encode(),
        "tokens": pa.array([["New York", "is"], []], list_of(pa.string())),
        "tokens_b": pa.array([None, ["b"]], list_of(pa.large_string())),
    }
    assert read(write_parquet(tmp_path, columns)) == [
        InputExample("x", "New York is", words_a=("New York", "is")),
        InputExample("y", "", "b", (), ("b",)),
    ]


def test_parquet_rows_keep_their_order_over_batches_and_row_groups(tmp_path):
    texts = [str(i) for i in range(2000)]
    path = write_parquet(tmp_path, {"text": texts}, row_group_size=700)
    assert read(path) == [InputExample(i, text) for i, text in enumerate(texts)]


def test_damaged_parquet(tmp_path):
    path = write_parquet(tmp_path, {"text": [f"{i}" * 50 for i in range(1000)]})
    whole = path.read_bytes()
    for content in (b"", b"no parquet here", whole[:-20], b"PAR1" + b"\xff" * 500 + whole[504:]):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"in\.parquet"):
            read(path)


def test_compressed_parquet_is_refused(tmp_path):
    path = write_parquet(tmp_path, {"text": ["a"]})
    packed = write(tmp_path, "in.parquet.gz", gzip.compress(path.read_bytes()))
    for use in (read, count_examples):
        with pytest.raises(InputError, match=r"in\.parquet"):
            use(packed)


def test_parquet_cannot_be_streamed(tmp_path):
    with pytest.raises(InputError, match="standard input"):
        read("-", format="parquet")
    pipe = tmp_path / "pipe.parquet"
    os.mkfifo(pipe)
    for use in (read, count_examples):
        with pytest.raises(InputError, match=r"pipe\.parquet"):
            use(pipe)


def test_a_large_row_group_of_parquet_is_read_bit_by_bit(tmp_path):
    texts = [f"{i:06}" * 500 for i in range(7000)]  # 21 MB, one row group
    path = write_parquet(tmp_path, {"text": texts}, use_dictionary=False, compression="none")
    del texts
    assert path.stat().st_size > 20_000_000
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in read_examples(path)]
    assert len(held) == 7000
    assert max(held) < 10_000_000

"""Input files for the tests of readers."""

import bz2
import gzip
import io
import json
import lzma

import pyarrow as pa
import pyarrow.parquet as pq

from bert_features.config.input_format import InputFormat
from bert_features.readers import registry
from bert_features.readers.examples import read_examples, source_of
from bert_features.readers.input_example import InputExample

COMPRESS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}


def write(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_parquet(tmp_path, columns, name="in.parquet", **options):
    path = tmp_path / name
    pq.write_table(pa.table(columns), path, **options)
    return path


def read(path, encoding_errors="strict", **settings):
    return list(read_examples(path, InputFormat(**settings), encoding_errors=encoding_errors))


def count_examples(path, input_format=None):
    return registry.count(source_of(path, input_format, "strict"))


def of_words(unique_id, words_a, words_b=None):
    words_a = tuple(words_a.split())
    if words_b is None:
        return InputExample(unique_id, " ".join(words_a), words_a=words_a)
    words_b = tuple(words_b.split())
    return InputExample(unique_id, " ".join(words_a), " ".join(words_b), words_a, words_b)


def json_lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def with_ids(*unique_ids):
    return json_lines(*({"id": unique_id, "text": "t"} for unique_id in unique_ids))


def standard_input(monkeypatch, content):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content.encode())))

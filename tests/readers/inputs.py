"""Input files for the tests of readers: one sample of each format, and how they are written."""

import bz2
import gzip
import io
import json
import lzma
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Sample:
    """How a format of text writes examples of one word each.

    Attributes:
      row: one example; it has the word at {text}, and its number at {i} where there is room.
      head, between, end: what comes before the first, between two, and after the last.
    """

    row: str
    head: str = ""
    between: str = ""
    end: str = ""

    def chunks(self, texts):
        """The content, a piece for each text, and the end."""
        for i, text in enumerate(texts):
            yield (self.between if i else self.head) + self.row.format(i=i, text=text)
        yield self.end

    def content(self, *texts):
        return "".join(self.chunks(texts)).encode()


# Every format but Parquet, whose content is bytes; the generic tests run over these.
SAMPLES = {
    "text": Sample("{text}\n"),
    "words": Sample("{text}\n"),
    "jsonl": Sample('{{"id": {i}, "text": "{text}"}}\n'),
    "json": Sample('{{"id": {i}, "text": "{text}"}}', head="[", between=",\n", end="]\n"),
    "csv": Sample("{text},{i}\n", head="text,id\n"),
    "tsv": Sample("{text}\t{i}\n", head="text\tid\n"),
    "conll": Sample("{text} O {i}\n\n"),
    "conllu": Sample("1\t{text}\t{i}\n\n"),
}


def write(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_parquet(tmp_path, columns, name="in.parquet", **options):
    path = tmp_path / name
    pq.write_table(pa.table(columns), path, **options)
    return path


def read(path, **settings):
    return list(read_examples(path, InputFormat(**settings)))


def count_examples(path, input_format=None):
    return registry.count(source_of(path, input_format))


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

"""All input formats: which one a path has, bad bytes, streams, and bounded memory."""

import itertools
import json
import os
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest

from bert_features.config.input_format import InputFormat
from bert_features.errors import ConfigError, InputError
from bert_features.readers import ids
from bert_features.readers.examples import read_examples
from bert_features.readers.registry import decide_format
from tests.readers.inputs import COMPRESS, count_examples, read, standard_input, write


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.jsonl", "jsonl"),
        ("a.NDJSON.gz", "jsonl"),
        ("a.csv.xz", "csv"),
        ("a.b.tsv", "tsv"),
        ("a.parquet", "parquet"),
        ("a.conll.bz2", "conll"),
        ("a.conllu.zst", "conllu"),
        ("a.json", "json"),
        ("a.JSON.gz", "json"),
        ("a.txt", "text"),
        ("csv", "text"),
        ("a.gz", "text"),
        ("a", "text"),
        ("-", "text"),
    ],
)
def test_auto_goes_by_the_suffix(name, expected):
    assert decide_format(InputFormat(), name).format == expected
    assert decide_format(InputFormat("words"), name).format == "words"


@pytest.mark.parametrize(
    ("path", "settings", "message"),
    [
        (
            "a.txt",
            {"text_field": "t"},
            "text_field is set, but .* as text; .* jsonl, json, csv, tsv, pa",
        ),
        ("-", {"id_field": "i"}, "id_field is set, but the input is read as text"),
        ("a.csv", {"conll_column": 2}, "conll_column .* read as csv; it is for conll, conllu"),
        ("a.jsonl", {"quoting": False}, "quoting .* read as jsonl; it is for csv, tsv"),
        ("a.conll", {"tokens_field": "t"}, "tokens_field .* read as conll"),
        ("a.tsv", {"delimiter": ";"}, "delimiter .* read as tsv; it is for csv"),
    ],
)
def test_settings_of_another_format_are_refused_at_once(path, settings, message):
    with pytest.raises(ConfigError, match=message):
        read_examples(path, InputFormat(**settings))


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("a.xml.gz", "extract its texts first"),
        ("a.HTM", "extract its texts first"),
        ("a.xlsx", "save its sheet as csv"),
        ("a.docx", "save it as plain text"),
        ("a.tar.gz", "unpack it"),
    ],
)
def test_suffixes_of_files_without_texts_are_refused(tmp_path, name, cure):
    with pytest.raises(InputError, match=rf"a\.\S+ is no file of texts by .*; {cure}, or name its"):
        read_examples(name)
    content = COMPRESS[".gz"](b"<3\n") if name.endswith(".gz") else b"<3\n"
    assert len(read(write(tmp_path, name, content), format="text")) == 1


@pytest.mark.parametrize(
    ("format", "content", "place"),
    [
        ("jsonl", b'{"text": "a\xe9b"}\n', "line 1: byte 0xe9 at file offset 11"),
        ("json", b'[\n{"text": "a\xe9b"}]\n', "line 2: byte 0xe9 at file offset 13"),
        ("csv", b"text\na\xe9b\n", "line 2: byte 0xe9 at file offset 6"),
        ("tsv", b"text\na\xe9b\n", "line 2: byte 0xe9 at file offset 6"),
        ("conll", b"\n\na\xe9b O\n", "line 3: byte 0xe9 at file offset 3"),
        ("conllu", b"1\ta\xe9b\n", "line 1: byte 0xe9 at file offset 3"),
        ("text", b"a\xe9b", "line 1: byte 0xe9 at file offset 1"),
        ("words", b"a\xe9b", "line 1: byte 0xe9 at file offset 1"),
    ],
)
def test_bytes_that_are_not_utf8(tmp_path, format, content, place):
    path = write(tmp_path, "in", content)
    with pytest.raises(InputError, match=f"/in, {place} is not UTF-8"):
        read(path, format=format)
    replaced = read(path, encoding_errors="replace", format=format)
    assert [e.text_a for e in replaced] == ["a\ufffdb"]


@pytest.mark.parametrize("suffix", ["txt", "jsonl", "csv", "parquet", "conll", "txt.gz"])
@pytest.mark.parametrize("use", [read, count_examples])
def test_what_cannot_be_read(tmp_path, suffix, use):
    with pytest.raises(InputError, match=r"cannot read .*absent.*No such file"):
        use(tmp_path / f"absent.{suffix}")
    folder = tmp_path / f"folder.{suffix}"
    folder.mkdir()
    with pytest.raises(InputError, match="is a directory"):
        use(folder)


@pytest.mark.parametrize(
    ("format", "content"),
    [
        ("auto", "a\n"),
        ("words", "a\n"),
        ("jsonl", '{"text": "a"}'),
        ("json", '[{"text": "a"}]'),
        ("csv", "text\na\n"),
        ("tsv", "text\na"),
        ("conll", "a O\n"),
        ("conllu", "1\ta\n"),
    ],
)
def test_standard_input(monkeypatch, format, content):
    standard_input(monkeypatch, content)
    assert count_examples("-", InputFormat(format)) is None
    assert [e.text_a for e in read("-", format=format)] == ["a"]


ENDLESS = {
    "text": "a\n",
    "words": "a\n",
    "jsonl": '{{"id": {}, "text": "a"}}\n',
    "json": '{{"id": {}, "text": "a"}},\n',
    "csv": "a,{}\n",
    "conll": "a O {}\n\n",
    "conllu": "1\ta\t{}\n\n",
}


@pytest.mark.parametrize("format", ENDLESS)
def test_the_first_examples_of_an_endless_input(tmp_path, format):
    """The writer waits in the middle of its output: who reads ahead without bound waits too."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader_is_done = threading.Event()
    waits_in_vain = threading.Event()
    header = {"csv": "text,id\n", "json": "["}.get(format, "")

    def feed():
        with pipe.open("w") as file:
            file.write(header)
            file.writelines(ENDLESS[format].format(i) for i in range(20_000))  # > any buffer
            file.flush()
            if not reader_is_done.wait(20):
                waits_in_vain.set()
            file.write("]" * (format == "json"))

    writer = threading.Thread(target=feed, daemon=True)
    writer.start()
    examples = read_examples(pipe, InputFormat(format))
    assert [e.text_a for e in itertools.islice(examples, 10_000)] == ["a"] * 10_000
    reader_is_done.set()
    assert not waits_in_vain.is_set()
    list(examples)
    writer.join()


def peak_memory(path):
    """Bytes that Python held at most while it read, whatever the number of examples."""
    tracemalloc.start()
    try:
        for _ in read_examples(path):
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["in.jsonl", "in.json", "in.csv", "in.conllu.gz", "in.txt.bz2"])
def test_memory_does_not_grow_with_the_input(tmp_path, monkeypatch, name):
    monkeypatch.setattr(ids, "_HELD", 100)
    word = "x" * 1000
    lines = {
        "in.jsonl": lambda i: json.dumps({"id": f"{i}", "text": word}) + "\n",
        "in.json": lambda i: f'{"[,"[i > 0]}{{"text": "{word}"}}\n{"]" * (i == 2499)}',
        "in.csv": lambda i: f"{i},{word}\n" if i else "id,text\n",
        "in.conllu.gz": lambda i: f"1\t{word}\n\n",
        "in.txt.bz2": lambda i: f"{word}\n",
    }[name]
    content = "".join(lines(i) for i in range(2500)).encode()
    path = write(tmp_path, name, COMPRESS.get(Path(name).suffix, bytes)(content))
    peak_memory(path)  # what is imported and cached once
    assert len(content) > 2_500_000
    assert peak_memory(path) < 1_000_000


def test_importing_readers_imports_no_library_behind_a_format():
    code = (
        "import sys\nfrom bert_features.readers.examples import examples_of_texts\n"
        "list(examples_of_texts(['a', ['b'], ('c', 'd')]))\n"
        "libraries = ('tensorflow', 'pyarrow', 'pandas', 'polars', 'datasets', 'h5py')\n"
        "print([m for m in libraries if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"

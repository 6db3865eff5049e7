"""All input formats: which one a path has, bad bytes, streams, and bounded memory."""

import itertools
import os
import threading
import tracemalloc
from dataclasses import replace
from typing import get_args

import pytest

from bert_features.config.input_format import FIELD_NAMES, INPUT_FORMATS, FormatName, InputFormat
from bert_features.errors import ConfigError, InputError
from bert_features.readers import ids, registry
from bert_features.readers.examples import read_examples, source_of
from bert_features.readers.lines import Place
from bert_features.readers.parts import cut
from bert_features.readers.registry import decide_format
from tests.readers.inputs import COMPRESS, SAMPLES, count_examples, read, standard_input, write

samples = pytest.mark.parametrize("format", SAMPLES)


def test_every_format_of_lines_has_a_sample():
    assert {*SAMPLES} == {name for name, row in INPUT_FORMATS.items() if row.unit == "line"}
    assert INPUT_FORMATS.keys() == {*get_args(FormatName)} - {"auto"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((f"a{suffix}", name) for name, row in INPUT_FORMATS.items() for suffix in row.suffixes),
        ("a.NDJSON.gz", "jsonl"),
        ("a.csv.xz", "csv"),
        ("a.b.tsv", "tsv"),
        ("a.conllu.zst", "conllu"),
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


@samples
def test_a_sample(tmp_path, format):
    """As a file, compressed, counted, and in the parts that runs of shards read."""
    texts = [f"w{i}" for i in range(7)]
    content = SAMPLES[format].content(*texts)
    path = write(tmp_path, "in", content)
    examples = read(path, format=format)
    assert [(e.text_a, e.text_b) for e in examples] == [(text, None) for text in texts]
    assert [int(e.unique_id) for e in examples] == [*range(7)]
    assert count_examples(path, InputFormat(format)) in (None, 7)
    assert read(write(tmp_path, "in.gz", COMPRESS[".gz"](content)), format=format) == examples
    source = source_of(path, InputFormat(format))
    parts = [replace(source, part=each.part, place=Place()) for each in cut(source, 3)]
    assert len(parts) == (3 if INPUT_FORMATS[format].can_be_cut else 1)
    assert [example for part in parts for example in registry.read(part)] == examples


# A value of each setting that is not its default.
SET = {
    **dict.fromkeys(FIELD_NAMES, "t"),
    **{"label_field": "t", "span_field": "t", "delimiter": ";", "max_line_bytes": 7},
}


@pytest.mark.parametrize("format", INPUT_FORMATS)
def test_settings_of_another_format_are_refused_at_once(format):
    assert {"format", *SET} == InputFormat.model_fields.keys()
    for name in SET.keys() - INPUT_FORMATS[format].settings:
        others = ", ".join(other for other, row in INPUT_FORMATS.items() if name in row.settings)
        message = f"^{name} is set, but the input is read as {format}; it is for {others}: name the"
        with pytest.raises(ConfigError, match=message):
            read_examples("a.txt", InputFormat(format, **{name: SET[name]}))


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


def test_no_suffix_is_both_read_and_refused():
    refused = {suffix for suffixes in registry._NO_TEXT.values() for suffix in suffixes.split()}
    assert not refused & registry.INPUT_SUFFIXES.keys()


@samples
def test_bytes_that_are_not_utf8(tmp_path, format):
    content = SAMPLES[format].content("a", "a?b").replace(b"?", b"\xe9")
    path, offset = write(tmp_path, "in", content), content.index(b"\xe9")
    line = content[:offset].count(b"\n") + 1
    place = f"line {line}: byte 0xe9 at file offset {offset}"
    with pytest.raises(InputError, match=f"/in, {place} is not UTF-8"):
        read(path, format=format)


@pytest.mark.parametrize("suffix", [*registry.INPUT_SUFFIXES, ".txt", ".txt.gz"])
@pytest.mark.parametrize("use", [read, count_examples])
def test_what_cannot_be_read(tmp_path, suffix, use):
    with pytest.raises(InputError, match=r"cannot read .*absent.*No such file"):
        use(tmp_path / f"absent{suffix}")
    folder = tmp_path / f"folder{suffix}"
    folder.mkdir()
    with pytest.raises(InputError, match="is a directory"):
        use(folder)


@samples
def test_standard_input(monkeypatch, format):
    standard_input(monkeypatch, SAMPLES[format].content("a").decode())
    assert count_examples("-", InputFormat(format)) is None
    assert [e.text_a for e in read("-", format=format)] == ["a"]


@pytest.mark.slow
@samples
def test_the_first_examples_of_an_endless_input(tmp_path, format):
    """The writer waits in the middle of its output: who reads ahead without bound waits too."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader_is_done = threading.Event()
    waits_in_vain = threading.Event()

    def feed():
        with pipe.open("w") as file:
            *chunks, end = SAMPLES[format].chunks(["a"] * 20_000)  # > any buffer
            file.writelines(chunks)
            file.flush()
            if not reader_is_done.wait(20):
                waits_in_vain.set()
            file.write(end)

    writer = threading.Thread(target=feed, daemon=True)
    writer.start()
    examples = read_examples(pipe, InputFormat(format))
    assert [e.text_a for e in itertools.islice(examples, 10_000)] == ["a"] * 10_000
    reader_is_done.set()
    assert not waits_in_vain.is_set()
    list(examples)
    writer.join()


def peak_memory(path, format):
    """Bytes that Python held at most while it read, whatever the number of examples."""
    tracemalloc.start()
    try:
        for _ in read_examples(path, InputFormat(format)):
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("format", "suffix"),
    [*((format, "") for format in SAMPLES), ("conllu", ".gz"), ("text", ".bz2")],
)
def test_memory_does_not_grow_with_the_input(tmp_path, monkeypatch, format, suffix):
    monkeypatch.setattr(ids, "_HELD", 100)
    content = SAMPLES[format].content(*["x" * 2500] * 1000)
    path = write(tmp_path, f"in{suffix}", COMPRESS.get(suffix, bytes)(content))
    peak_memory(path, format)  # what is imported and cached once
    assert len(content) > 2_500_000
    assert peak_memory(path, format) < 1_000_000

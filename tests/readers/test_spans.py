"""Spans in every kind of input, and what is refused, by the line."""

import json

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from bert_features.config.input_format import InputFormat
from bert_features.errors import ConfigError, InputError
from bert_features.readers import sentences
from bert_features.readers.examples import examples_of_texts, read_examples
from bert_features.readers.input_example import InputExample, Span
from bert_features.readers.sentences import with_sentences
from bert_features.readers.spans import spans_of_tags

TEXTS = ["naïve 😀 cats", "", "a"]
SPANS = [[[0, 5, "X"], [6, 7], [0, 12, "", 0]], None, []]
READ = [(Span(0, 5, "X"), Span(6, 7), Span(0, 12)), (), ()]
OBJECTS = [s and [dict(zip(Span._fields, one, strict=False)) for one in s] for s in SPANS]


def write(path, content):
    path.write_text(content, encoding="utf-8")
    return path


def test_fields_of_every_format(tmp_path):
    lines = [{"text": t, "s": s} for t, s in zip(TEXTS, SPANS, strict=True)]
    by_line = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, lines)))
    array = write(tmp_path / "a.json", json.dumps(lines))
    numbers = [s and [one[:2] for one in s] for s in SPANS]
    tables = [pa.table({"text": TEXTS, "s": OBJECTS}), pa.table({"text": TEXTS, "s": numbers})]
    parquet.write_table(tables[0], tmp_path / "a.parquet")
    settings = InputFormat(span_field="s")
    for path in (by_line, array, tmp_path / "a.parquet"):
        assert [e.spans for e in read_examples(path, settings)] == READ
        assert [e.spans for e in read_examples(path)] == [None] * 3
    frames = [tables[0], pd.DataFrame({"text": TEXTS, "s": OBJECTS}), {"text": TEXTS, "s": OBJECTS}]
    for frame in frames:
        found = examples_of_texts(frame, text_field="text", span_field="s")
        assert [e.spans for e in found] == READ
    found = examples_of_texts(tables[1], settings, text_field="text")
    assert next(found).spans == (Span(0, 5), Span(6, 7), Span(0, 12))
    assert [e.spans for e in examples_of_texts(TEXTS, spans=SPANS)] == READ


def test_a_wrong_span_elsewhere(tmp_path):
    table = pa.table({"text": ["a", "b"], "s": [[[0, 1]], [[0, 2]]]})
    with pytest.raises(InputError, match=r"row 1 \(counted from 0\): s\[0\] is \[0, 2\], outside"):
        list(examples_of_texts(table, text_field="text", span_field="s"))
    with pytest.raises(InputError, match="column 's' is of type string"):
        list(examples_of_texts({"text": ["a"], "s": ["x"]}, text_field="text", span_field="s"))
    with pytest.raises(ConfigError, match="spans"):
        list(examples_of_texts(table, text_field="text", spans=[]))
    for spans in ([[]], [[], [], []]):
        with pytest.raises(InputError, match="spans"):
            list(examples_of_texts(["a", "b"], spans=spans))
    with pytest.raises(InputError, match="outside of its text"):
        list(examples_of_texts([InputExample(0, "a", spans=(Span(0, 2),))]))


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("B-P I-P O B-L", ["P:ab c", "L:e"]),
        ("I-P I-P I-L O", ["P:ab c", "L:dd"]),  # IOB1
        ("B-P B-P O O", ["P:ab", "P:c"]),
        ("B-P E-P S-L O", ["P:ab c", "L:dd"]),  # BIOES
        ("U-L B-P L-P _", ["L:ab", "P:c dd"]),  # BILOU
        ("E-P I-P B O", ["P:ab", "P:c", ":dd"]),
        ("O O O O", []),
    ],
)
def test_tags(tmp_path, tags, spans):
    words = ["ab", "c", "dd", "e"]
    text = " ".join(words)
    found = spans_of_tags(words, tags.split())
    assert [f"{span.label}:{text[span.begin : span.end]}" for span in found] == spans
    lines = "".join(f"{word} x {tag}\n" for word, tag in zip(words, tags.split(), strict=True))
    path = write(tmp_path / "a.conll", f"{lines}\nno x O\n")
    assert [e.spans for e in read_examples(path, InputFormat(span_field="3"))] == [found, ()]


class Splitter:
    """Ends a sentence behind each `.` and its blanks, as sentencex gives them."""

    @staticmethod
    def get_sentence_boundaries(language, text):
        assert language in ("en", "de")
        parts = text.replace(". ", ". |").split("|")
        starts = [sum(map(len, parts[:i])) for i in range(len(parts))]
        return [{"text": p, "start_index": s} for p, s in zip(parts, starts, strict=True) if p]


@pytest.mark.parametrize("rule", ["sentences", "sentences:de"])
def test_sentences(monkeypatch, rule):
    monkeypatch.setattr(sentences, "check_installed", lambda: Splitter)
    examples = [
        InputExample(0, "pr.  Das 😀. Ja. ", "B.", prompt=4),
        InputExample(1, " "),
        InputExample(2, "A. B.", spans=(Span(0, 1),)),
    ]
    first, blank, own = with_sentences(lambda: examples, rule)
    assert first.spans == (Span(1, 7), Span(8, 11), Span(0, 2, "", 1))
    assert first.text_a[4:][1:7] == "Das 😀."
    assert blank.spans == ()
    assert own == examples[2]


def test_the_splitter_itself():
    pytest.importorskip("sentencex", reason="pip install '.[sentences]'")
    text = "Dr. Smith went to Bern.  He saw it.\n\nTwice."
    (example,) = with_sentences(lambda: [InputExample(0, text)], "sentences")
    found = [text[span.begin : span.end] for span in example.spans]
    assert found == ["Dr. Smith went to Bern.", "He saw it.", "Twice."]


def test_a_splitter_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sentencex", None)
    with pytest.raises(ImportError, match=r"sentencex.* bert_features\[sentences\]|\[sentences\]"):
        sentences.check_installed()

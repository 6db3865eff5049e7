"""JSON lines: texts, words, fields of other names, and errors that say where."""

import pytest

from bert_features.readers.input_example import InputExample
from tests.readers.inputs import count_examples, of_words, read, write


def test_jsonl(tmp_path):
    path = write(
        tmp_path,
        "in.jsonl",
        '{"id": "x", "text": " as it is ||| \\u00e9\\ud83d\\ude00", "more": [1]}\n'
        '{"text_b": "b", "text": "a", "id": "y"}\r\n'
        "\n"
        '{"id": "z", "text": "a", "text_b": null}\n'
        '{"id": "w", "tokens": ["New York", ""]}\n'
        '{"id": "v", "tokens": ["a"], "tokens_b": ["b", "c"]}\n\n',
    )
    assert read(path) == [
        InputExample("x", " as it is ||| é😀"),
        InputExample("y", "a", "b"),
        InputExample("z", "a"),
        InputExample("w", "New York ", words_a=("New York", "")),
        of_words("v", "a", "b c"),
    ]
    assert count_examples(path) == 5


def test_jsonl_fields_of_other_names(tmp_path):
    line = '{"id": 7, "key": 1, "text": "t", "tokens": ["w"], "q": "Q", "a": "A", "q_b": ["B"]}\n'
    path = write(tmp_path, "in.ndjson", line)
    assert read(path) == [InputExample(7, "t")]  # texts before words
    assert read(path, id_field="key") == [InputExample(1, "t")]
    assert read(path, id_field="") == [InputExample(0, "t")]
    assert read(path, text_field="q", text_b_field="a") == [InputExample(7, "Q", "A")]
    assert read(path, tokens_field="tokens") == [of_words(7, "w")]


@pytest.mark.parametrize(
    "content",
    [
        '[{"text": "a"}, {"text": "b\\n]"}]',
        '\ufeff\n[\n  {\n    "x": {"y": [\n]},\n    "text": "a"\n  },\n  {"text": "b\\n]"}\n]\n\n',
        '{"text": "a"}\r\n{"text": "b\\n]"}\r\n',
        '[{"text": "a"}\n,{"text"\n:"b\\n]"}\n]',
    ],
)
def test_json_is_an_array_of_objects_or_one_on_each_line(tmp_path, content):
    path = write(tmp_path, "in.json", content)
    assert read(path) == [InputExample(0, "a"), InputExample(1, "b\n]")]
    assert read(path, max_line_bytes=100) == read(path)
    assert count_examples(path) is None


@pytest.mark.parametrize("content", ["", " \n", "[]", "[\n]\n"])
def test_json_without_examples(tmp_path, content):
    assert read(write(tmp_path, "in.json", content)) == []

"""JSON lines: texts, words, fields of other names, and errors that say where."""

import pytest

from bert_features.config.input_format import InputFormat
from bert_features.errors import InputError
from bert_features.readers.examples import read_examples
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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{\n"text": "a"}', "line 1: not JSON: .*; expected an array of objects, or one object on"),
        ('[{"text": "a"}]\n[]', "line 1: something follows the array"),
        ('[{"text": "a"},\n', "line 1: not JSON: Expecting value"),
        ('[\n{"text": "a"},\n{"text": "b"', "line 3: not JSON: Expecting ',' delimiter"),
        ('[\n{"text": "a"},\n{"text": "b\n"},\n{"text": "c"}]', "line 3: not JSON: Invalid con"),
        ('["a"]', "line 1: not a JSON object: 'a'"),
        ('[{"text": "a"},\n\n{"x": 1}]', "line 3: no field 'text'"),
        ('[{"text": "a"},\n{' + '"x": 1,\n' * 40, "line 2: the object is longer than 99 bytes"),
        ('[{"text": "a"},\n{"text": "\\ud800"}]', r"line 2: an escape \\ud800 … \\udfff without"),
        ('{"text": {"0": "a"}}', "line 1: 'text' is {'0': 'a'}; expected a string"),
    ],
)
def test_json_that_is_refused(tmp_path, content, message):
    with pytest.raises(InputError, match=rf"in\.json, {message}"):
        read(write(tmp_path, "in.json", content), max_line_bytes=99)


_TOKENS_WANTED = "expected a list of strings"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{'a': 1}", "not JSON: Expecting property name .*; expected one object on each line"),
        ('{"text": "a"} {"text": "b"}', "not JSON: Extra data"),
        ('{"text": "a"', "not JSON"),
        ("[" * 100_000, "the JSON is nested too deeply"),
        ('{"text": ' + "1" * 5000 + "}", "the JSON holds an integer with too many"),
        ('["a"]', r"not a JSON object: \['a'\]"),
        ("null", "not a JSON object: None"),
        ('{"text": 1}', "'text' is 1; expected a string"),
        ('{"text": null}', "'text' is None; expected a string"),
        ('{"text": "a", "text_b": 1}', "'text_b' is 1; expected a string"),
        ('{"tokens": "a b"}', f"'tokens' is 'a b'; {_TOKENS_WANTED}"),
        ('{"tokens": ["a", 1]}', rf"'tokens' is \['a', 1\]; {_TOKENS_WANTED}"),
        ('{"tokens": ["a"], "tokens_b": {}}', f"'tokens_b' is {{}}; {_TOKENS_WANTED}"),
        ('{"body": "a"}', "no field 'text' and no field 'tokens'; the fields are body; set text_f"),
        ("{}", "no field 'text' and no field 'tokens'; there are no fields"),
        (r'{"text": "\ud83d"}', r"an escape \\ud800 … \\udfff without its other half"),
        (r'{"id": "\uDE00", "text": "a"}', r"an escape \\ud800 … \\udfff without its other half"),
    ],
)
def test_wrong_json_lines(tmp_path, line, message):
    path = write(tmp_path, "in.jsonl", f'{{"text": "fine"}}\n\n{line}\n')
    with pytest.raises(InputError, match=rf"in\.jsonl, line 3: {message}"):
        read(path)


def test_json_fields_that_are_named_must_be_there(tmp_path):
    path = write(tmp_path, "in.jsonl", '{"text": "a", "b": null}\n{"text": "a"}\n')
    assert next(read_examples(path, InputFormat(text_b_field="b"))) == InputExample(0, "a")
    with pytest.raises(InputError, match="line 2: no field 'b'; the fields are text"):
        read(path, text_b_field="b")
    with pytest.raises(InputError, match="line 1: no field 'words'; the fields are text, b"):
        read(path, tokens_field="words")


def test_lone_surrogates_of_json_can_be_replaced(tmp_path):
    path = write(tmp_path, "in.jsonl", r'{"id": "\ud83d", "text": "a\udE00 \ud83d\ude00 \\ud83d"}')
    assert read(path, encoding_errors="replace") == [InputExample("\ufffd", "a\ufffd 😀 \\ud83d")]

"""Reading examples: the official line format, and errors that say where."""

import os
import threading

import pandas as pd
import pytest

from bert_features.errors import InputError
from bert_features.readers.examples import examples_of_texts, read_examples
from bert_features.readers.input_example import InputExample
from tests.readers.inputs import count_examples


def write(tmp_path, content):
    path = tmp_path / "in.txt"
    path.write_bytes(content)
    return path


def test_lines_pairs_and_empty_lines_keep_their_place(tmp_path):
    path = write(tmp_path, b"one\n\n a ||| b \r\na ||| b ||| c\nx|||y\nlast")
    assert list(read_examples(path)) == [
        InputExample(0, "one"),
        InputExample(1, ""),
        InputExample(2, "a", "b"),
        InputExample(3, "a ||| b", "c"),  # greedy, as the official expression
        InputExample(4, "x|||y"),
        InputExample(5, "last"),
    ]


def test_only_line_feeds_end_lines(tmp_path):
    path = write(tmp_path, "a\u2028b\x0bc\x0cd\x85e\rf\n".encode())
    assert [e.text_a for e in read_examples(path)] == ["a\u2028b\x0bc\x0cd\x85e\rf"]


@pytest.mark.parametrize(
    ("content", "count"), [(b"", 0), (b"a", 1), (b"a\n", 1), (b"\n\n", 2), (b"a\nb", 2)]
)
def test_count_agrees_with_reading(tmp_path, content, count):
    path = write(tmp_path, content)
    assert count_examples(path) == len(list(read_examples(path))) == count


def test_a_pipe_is_not_used_up_by_counting(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"a\nb\n",))
    writer.start()
    assert count_examples(path) is None
    assert [e.text_a for e in read_examples(path)] == ["a", "b"]
    writer.join()


def test_texts_are_taken_as_they_are():
    assert list(examples_of_texts([" a ||| b "])) == [InputExample(0, " a ||| b ")]
    assert list(examples_of_texts("text")) == [InputExample(0, "text")]
    assert list(examples_of_texts(InputExample("x", "text"))) == [InputExample("x", "text")]
    with pytest.raises(InputError, match="texts is b'text'"):
        list(examples_of_texts(b"text"))
    for missing in (None, float("nan"), pd.NA):
        with pytest.raises(
            InputError, match=r"texts\[1\] is .*; leave a missing text out, or pass"
        ):
            list(examples_of_texts(["a", missing]))

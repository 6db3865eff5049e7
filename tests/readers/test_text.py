"""Words in text: white space separates them, `|||` separates two texts."""

import itertools

import pytest

from bert_features.config.input_format import InputFormat
from bert_features.readers import text as text_reader
from tests.readers.inputs import count_examples, of_words, read, write


def test_words(tmp_path):
    path = write(tmp_path, "in.txt", " It  's\there \n\na b ||| c\n||| x\na ||| b ||| c |||")
    assert read(path, format="words") == [
        of_words(0, "It 's here"),
        of_words(1, ""),
        of_words(2, "a b", "c"),
        of_words(3, "||| x"),
        of_words(4, "a ||| b", "c |||"),
    ]
    assert count_examples(path, InputFormat("words")) == 5


def test_words_and_text_split_pairs_alike(tmp_path):
    lines = [" ||| ".join(parts) for parts in itertools.product(["", "a", "b c"], repeat=3)]
    path = write(tmp_path, "in.txt", "\n".join(" ".join(line.split()) for line in lines))
    as_text = [(e.text_a, e.text_b) for e in read(path, format="text")]
    as_words = [(e.text_a, e.text_b) for e in read(path, format="words")]
    assert as_words == as_text
    assert sum(b is not None for _, b in as_text) > 5


@pytest.mark.parametrize(
    ("texts", "is_noticed"),
    [
        (["a", "a ||| b"], True),
        ([" ||| b"], True),
        (["a", "|||", "b"], True),  # of words
        (["a|||b", "a |||", "||| b", "a | b", ""], False),  # no pair in a file either
    ],
)
def test_the_separator_in_a_text_is_noticed_once(texts, is_noticed, caplog, monkeypatch):
    monkeypatch.setattr(text_reader, "_noticed", False)
    for _ in range(2):
        text_reader.notice_separator(texts)
    assert len(caplog.messages) == is_noticed
    assert all("as a tuple of two texts, over HTTP" in message for message in caplog.messages)

"""Reading a `vocab.txt`."""

import logging

import pytest

from bert_features.errors import CheckpointError
from bert_features.text.vocabulary import ids_of, matchable, read_vocab, warn_of_duplicates


def test_read_vocab_splits_at_line_feeds_only(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("[UNK]\na\u2028b\n c \r\n\nlast".encode())
    assert read_vocab(path) == ["[UNK]", "a\u2028b", "c", "", "last"]


def test_a_byte_order_mark_and_blank_lines_at_the_end_do_not_count(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"\xef\xbb\xbf[PAD]\r\n\r\na\n\r\n \n\n")
    assert read_vocab(path) == ["[PAD]", "", "a"]
    path = tmp_path / "tokenizer.json"
    path.write_bytes(b"\xef\xbb\xbf[]")
    with pytest.raises(CheckpointError, match="expected a JSON object"):  # so the mark is no error
        read_vocab(path)


def test_read_vocab_refuses(tmp_path):
    for content, message in ((b"\xef\xbb\xbf\n \n", "is empty"), (b"ok\n\xff\n", "offset 3")):
        (tmp_path / "vocab.txt").write_bytes(content)
        with pytest.raises(CheckpointError, match=message):
            read_vocab(tmp_path / "vocab.txt")


def test_the_last_of_equal_pieces_counts(caplog):
    tokens = ["[UNK]", "is", "", "a", "is", "", "##b", "c", "d", "##b", "c", "d"]
    assert ids_of(tokens)["is"] == 4
    assert matchable(tokens) == [
        *("[UNK]", " 1", " 2", "a", "is", " 5", " 6", " 7", " 8", "##b", "c", "d")
    ]
    with caplog.at_level(logging.WARNING, "bert_features"):
        warn_of_duplicates(tokens)
    assert "4 piece(s) more than once: 'is', '##b', 'c', …; the last id of each" in caplog.text
    caplog.clear()
    warn_of_duplicates(["[UNK]", "", "", "a"])  # blank lines match nothing
    assert caplog.text == ""


def test_pieces_that_no_text_can_match():
    tokens = ["[UNK]", "a\0b", "\0", "##\0", "x" * 201, "##" + "é" * 201, "\ud800", "x" * 200]
    assert matchable(tokens)[1:7] == [f" {i}" for i in range(1, 7)]
    assert matchable(tokens)[7] == "x" * 200


def test_a_piece_that_is_too_long_for_the_matcher():
    assert matchable(["##" + "é" * 128]) == ["##" + "é" * 128]
    with pytest.raises(CheckpointError, match=r"in line 2 .* has 258 bytes, é{10}…; at most 256"):
        matchable(["[UNK]", "##" + "é" * 129])

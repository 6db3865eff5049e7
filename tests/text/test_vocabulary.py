"""Reading a `vocab.txt`."""

import pytest

from bert_features.errors import CheckpointError
from bert_features.text.vocabulary import read_vocab


def test_read_vocab_splits_at_line_feeds_only(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("[UNK]\na\u2028b\n c \r\n\nlast".encode())
    assert read_vocab(path) == ["[UNK]", "a\u2028b", "c", "", "last"]


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot read"), (b"", "is empty"), (b"ok\n\xff\n", "not UTF-8: byte 0xff at offset 3")],
)
def test_read_vocab_refuses(tmp_path, content, message):
    path = tmp_path / "vocab.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        read_vocab(path)

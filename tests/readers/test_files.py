"""The bytes of inputs: compressed, damaged, on object stores."""

import pytest

from bert_features.errors import InputError
from bert_features.readers.examples import InputExample, count_examples
from tests.readers.inputs import COMPRESS, read, write

TEXT = "one\ntwo ||| deux\n"


TEXT_EXAMPLES = [InputExample(0, "one"), InputExample(1, "two", "deux")]


compressions = pytest.mark.parametrize("suffix", COMPRESS)


@compressions
def test_compressed_files(tmp_path, suffix):
    compress = COMPRESS[suffix]
    text = write(tmp_path, "in.txt" + suffix, compress(TEXT.encode()))
    assert read(text) == TEXT_EXAMPLES
    assert count_examples(text) is None
    table = write(tmp_path, "in.csv" + suffix.upper(), compress(b"text\na\n"))
    assert read(table) == [InputExample(0, "a")]
    sentences = write(tmp_path, "in.conllu" + suffix, compress(b"1\ta\n\n1\tb\n"))
    assert len(read(sentences)) == 2


@compressions
def test_compressed_in_parts(tmp_path, suffix):
    parts = b"".join(COMPRESS[suffix](line.encode()) for line in TEXT.splitlines(keepends=True))
    assert read(write(tmp_path, "in.txt" + suffix, parts)) == TEXT_EXAMPLES


@compressions
@pytest.mark.parametrize("damage", ["cut", "not compressed", "empty"])
def test_damaged_compressed_files(tmp_path, suffix, damage):
    whole = COMPRESS[suffix](b"".join(b"line %d\n" % i for i in range(1000)))
    content = {"cut": whole[:-20], "not compressed": TEXT.encode(), "empty": b""}[damage]
    path = write(tmp_path, "in.txt" + suffix, content)
    with pytest.raises(InputError, match=r"cannot read .*in\.txt"):
        read(path)

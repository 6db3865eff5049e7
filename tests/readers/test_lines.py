"""Lines: of bounded length in every format, and refused where they are UTF-16."""

import io
import itertools
import tracemalloc

import pytest

from bert_features.config.input_format import InputFormat
from bert_features.errors import InputError
from bert_features.readers.examples import read_examples
from bert_features.readers.input_example import InputExample
from tests.readers.inputs import COMPRESS, read, write

LIMIT = 1 << 15
# The beginning of an input, a part that repeats without end, and the line that the error names.
ENDLESS = {
    "text": ("fine\n", "a", 2),
    "words": ("fine\n", "a ", 2),
    "jsonl": ('{"text": "fine"}\n\n', '{"text": [', 3),
    "csv": ("text\nfine\n", "a", 3),
    "csv in quotes": ('text\n"fine\nfine"\n"', "a\n", 4),
    "csv with line ends": ('text\nfine\n"', "\n", 3),
    "tsv": ("text\nfine\n", "a", 3),
    "conll": ("fine O\n\n", "a O\n", 3),
    "conllu": ("1\tfine\n\n", "1\té\n", 3),
    "conllu of one line": ("1\tfine\n\n", "é", 3),
}


class Endless(io.RawIOBase):
    """A stream that goes on for ever; `served` counts its bytes."""

    def __init__(self, beginning, repeated):
        blocks = itertools.repeat(repeated.encode() * 1000)
        self._blocks = itertools.chain([beginning.encode()], blocks)
        self._rest = b""
        self.served = 0

    def readable(self):
        return True

    def readinto(self, buffer):
        self._rest = self._rest or next(self._blocks)
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        self.served += count
        return count


@pytest.mark.parametrize("name", ENDLESS)
def test_a_line_without_end(monkeypatch, name):
    beginning, repeated, line = ENDLESS[name]
    stream = Endless(beginning, repeated)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(stream)))
    examples = read_examples("-", InputFormat(name.split()[0], max_line_bytes=LIMIT))
    assert "fine" in next(examples).text_a
    tracemalloc.start()
    try:
        with pytest.raises(
            InputError,
            match=rf"^standard input, line {line}: the (line|row|sentence) is longer than "
            r"32,768 bytes; is .* missing\? If not, pass a larger max_line_bytes",
        ):
            list(examples)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert stream.served < LIMIT + 20_000
    # Strings of a character each are what costs: 32,768 bytes of "\n" are as many lines.
    assert peak < 32 * LIMIT


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_compressed_line_without_end(tmp_path, object_store, suffix):
    content = COMPRESS[suffix](b"fine\n" + b"a" * 8_000_000)
    path = write(tmp_path, f"in.txt{suffix}", content)
    object_store.files[f"bucket/in.txt{suffix}"] = content
    for name in (path, f"toy://bucket/in.txt{suffix}"):
        examples = read_examples(name, InputFormat(max_line_bytes=LIMIT))
        assert next(examples).text_a == "fine"
        tracemalloc.start()
        with pytest.raises(InputError, match=rf"in\.txt{suffix}, line 2: the line is longer"):
            next(examples)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2_000_000


def test_the_limit_is_exact_and_counts_bytes(tmp_path):
    path = write(tmp_path, "in.txt", "ab\néé\n")
    assert len(read(path, max_line_bytes=5)) == 2
    with pytest.raises(InputError, match="line 2: the line is longer than 4 bytes"):
        read(path, max_line_bytes=4)
    table = write(tmp_path, "in.csv", 'text\n"éé\né"\n')
    assert read(table, max_line_bytes=10) == [InputExample(0, "éé\né")]
    with pytest.raises(InputError, match="line 2: the row is longer than 9 bytes"):
        read(table, max_line_bytes=9)


SCRIPTS = {
    "ASCII": "one\ntwo lines\n",
    "Cyrillic": "Все люди рождаются свободными\nи равными в своём достоинстве\n" * 3,
    "Arabic": "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق\n" * 3,
}


@pytest.mark.parametrize("encoding", ["UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_utf16_without_a_byte_order_mark(tmp_path, script, encoding):
    """It is valid UTF-8 in these scripts: NULs and control characters."""
    path = write(tmp_path, "in.txt", SCRIPTS[script].encode(encoding))
    message = r"in\.txt, line 1: .* UTF-(16|32).., not UTF-8.*iconv -f UTF-(16|32).. -t UTF-8"
    with pytest.raises(InputError, match=message) as error:
        read(path)
    assert script != "ASCII" or f"iconv -f {encoding} " in str(error.value)


@pytest.mark.parametrize("encoding", ["UTF-16", "UTF-32"])
@pytest.mark.parametrize("format", ["text", "jsonl", "csv", "conll"])
def test_utf16_with_a_byte_order_mark(tmp_path, format, encoding):
    path = write(tmp_path, "in", "text\n一二三\n".encode(encoding))
    with pytest.raises(InputError, match=rf"line 1: .*: iconv -f {encoding} -t UTF-8"):
        read(path, format=format)


def test_a_few_nuls_are_part_of_the_text(tmp_path):
    path = write(tmp_path, "in.txt", "a\0b\n" + "a longer line\n" * 20 + "c\0\0d\n")
    texts = [example.text_a for example in read(path)]
    assert (texts[0], texts[-1]) == ("a\0b", "c\0\0d")

"""Parts: read one by one, they give what the whole input gives."""

import codecs
import collections
import contextlib
from dataclasses import replace
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bert_features.config.input_format import InputFormat
from bert_features.errors import InputError
from bert_features.readers import parts, registry
from bert_features.readers.examples import source_of
from bert_features.readers.ids import Ids
from bert_features.readers.lines import Place
from bert_features.readers.parts import can_be_cut, cut

FILES = {
    "text.txt": "\ufeffhello\nwörld ||| b\n\n last\r\nno end",
    "words.words": "a b c\n\nd ||| e\n",
    "own.jsonl": '\ufeff{"text": "a", "id": "x"}\n\n{"text": "ü", "id": "y"}\n\n'
    '{"text": "", "id": "z"}\n\n',
    "one.txt": "\n",
    "empty.txt": "",
}


def _source(path):
    kind = "words" if path.suffix == ".words" else "auto"
    return source_of(path, InputFormat(format=kind))


@pytest.fixture
def folder(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_bytes(text.encode())
    rows = pa.table({"text": [f"text {i}" for i in range(1000)]})
    pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=130)
    pq.write_table(rows.slice(0, 0), tmp_path / "none.parquet")
    (tmp_path / "table.csv").write_text('text\na\n"b\nc"\n')
    return tmp_path


@pytest.mark.parametrize("name", [*FILES, "rows.parquet", "none.parquet", "table.csv"])
@pytest.mark.parametrize("size", [1, 3, 131, 5000])
def test_the_parts_are_the_whole(folder, name, size):
    whole = _source(folder / name)
    found, numbers = [], []
    for part in cut(whole, size):
        place = Place()
        examples = list(registry.read(replace(whole, part=part.part, place=place)))
        assert len(examples) == part.part.records
        assert part.crc32c == f"{place.crc:08x}"
        found += examples
        numbers.append(part.part.first)
        assert part.id_type == ("str" if name == "own.jsonl" and examples else "int")
    assert found == list(registry.read(whole))
    step = size if can_be_cut(whole) else 1
    assert numbers == list(range(0, max(1, len(found)), step))[: len(numbers)]
    assert numbers


PIECES = [b"a", b"\n", b"\r", "\u00fc".encode(), b"\xc3", b"\xff", b"\x00", b"\xfe", b"a ||| b\n"]
WEIGHTS = [8, 6, 1, 2, 0.1, 0.1, 0.1, 0.1, 1]


def test_lines_as_they_are_give_the_parts_that_examples_give(tmp_path):
    random, path, seen = Random(5), tmp_path / "in.txt", collections.Counter()
    for _ in range(250):
        pieces = random.choices(PIECES, WEIGHTS, k=random.randint(0, 40))
        (mark,) = random.choices([b"", codecs.BOM_UTF8, codecs.BOM_UTF16_LE], [8, 1, 1])
        path.write_bytes(mark + b"".join(pieces))
        source = source_of(path, InputFormat(max_line_bytes=12))
        size = random.randint(1, 5)
        fast = _cut_or_error(cut, source, size)
        assert fast == _cut_or_error(parts._cut_by_examples, source, size)
        seen[type(fast)] += 1
    assert min(seen.values()) > 5  # with and without errors


def _cut_or_error(cut, source, size):
    with contextlib.closing(Ids(source, first=3)) as ids:
        try:
            found = list(cut(source, size, first=3, ids=ids))
        except InputError as error:
            return str(error)
        ids.go_on(source)
        return [*found, ids.of(1)]  # the next number


def test_lines_after_examples_with_ids_are_refused(folder):
    (folder / "first.jsonl").write_text('{"text": "a", "id": 1}\n')
    first, second = _source(folder / "first.jsonl"), _source(folder / "text.txt")
    with contextlib.closing(Ids(first)) as ids:
        list(cut(first, 2, ids=ids))
        with pytest.raises(InputError, match=r"text\.txt, line 1: has no id, but the examples of"):
            list(cut(second, 2, first=1, ids=ids))


def test_numbers_go_on_from_the_first(folder):
    parts = list(cut(_source(folder / "text.txt"), 2, first=70))
    assert [part.part.first for part in parts] == [70, 72, 74]
    source = replace(_source(folder / "text.txt"), part=parts[1].part)
    assert [example.unique_id for example in registry.read(source)] == [72, 73]


def test_errors_name_the_line_of_the_whole_file(tmp_path):
    path = tmp_path / "in.txt"
    path.write_bytes(b"one\ntwo\nthree\nfour\n")
    *_, last = cut(_source(path), 3)
    path.write_bytes(b"one\ntwo\nthree\nf\xffur\n")
    with pytest.raises(InputError, match=r"line 4: byte 0xff at file offset 15 "):
        list(registry.read(replace(_source(path), part=last.part)))


def test_only_the_row_groups_of_a_part_are_read(folder, monkeypatch):
    opened = []
    iter_batches = pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        pq.ParquetFile,
        "iter_batches",
        lambda self, **options: (
            opened.append(options["row_groups"]) or iter_batches(self, **options)
        ),
    )
    parts = list(cut(_source(folder / "rows.parquet"), 400))
    opened.clear()
    source = replace(_source(folder / "rows.parquet"), part=parts[1].part)
    assert [example.unique_id for example in registry.read(source)] == list(range(400, 800))
    assert opened[0][0] == 3  # rows 390 to 519

"""Ids: kept, of one type, none twice, however many there are."""

import contextlib
import sqlite3
import threading

import pytest

from bert_features.errors import InputError
from bert_features.readers import ids, registry
from bert_features.readers.examples import read_examples, source_of
from bert_features.readers.ids import Ids
from tests.readers.inputs import read, with_ids, write


@pytest.mark.parametrize("unique_ids", [[5, -1, 2**63 - 1, -(2**63)], ["5", "05", "é", " "]])
def test_ids_are_kept(tmp_path, unique_ids):
    path = write(tmp_path, "in.jsonl", with_ids(*unique_ids))
    assert [e.unique_id for e in read(path)] == unique_ids


@pytest.mark.parametrize("as_id", [int, str])
@pytest.mark.parametrize("repeated", [None, (3, 83), (41, 42), (3, 96)])
def test_ids_are_compared_on_disk_too(tmp_path, monkeypatch, as_id, repeated):
    monkeypatch.setattr(ids, "_HELD", 10)
    unique_ids = [as_id(i * 7919 % 101) for i in range(97)]  # all different, in no order
    if repeated:
        first, second = repeated
        unique_ids[second] = unique_ids[first]
    path = write(tmp_path, "in.jsonl", with_ids(*unique_ids))
    if repeated is None:
        assert [e.unique_id for e in read(path)] == unique_ids
        return
    message = f"line {second + 1}: the id {unique_ids[first]!r} is also the id of line {first + 1}"
    with pytest.raises(InputError, match=message):
        read(path)


def test_no_room_for_the_ids_on_disk(tmp_path, monkeypatch):
    connect = sqlite3.connect

    def connect_to_a_small_disk(*args, **kwargs):
        database = connect(*args, **kwargs)
        database.execute("PRAGMA max_page_count = 3")
        return database

    monkeypatch.setattr(sqlite3, "connect", connect_to_a_small_disk)
    monkeypatch.setattr(ids, "_HELD", 100)
    path = write(tmp_path, "in.jsonl", with_ids(*(f"{i:0100}" for i in range(1000))))
    with pytest.raises(InputError, match=r"in\.jsonl"):
        read(path)


def test_examples_may_be_taken_by_several_threads(tmp_path, monkeypatch):
    monkeypatch.setattr(ids, "_HELD", 2)
    examples = read_examples(write(tmp_path, "in.jsonl", with_ids(*range(20))))
    taken = []
    for _ in range(20):
        thread = threading.Thread(target=lambda: taken.append(next(examples).unique_id))
        thread.start()
        thread.join()
    assert taken == list(range(20))


def read_all(*paths):
    """The ids of several files that are checked together."""
    sources = [source_of(path, None) for path in paths]
    with contextlib.closing(Ids(sources[0])) as checked:
        found = [e.unique_id for source in sources for e in registry.read(source, checked)]
        checked.finish()
    return found


def test_numbers_go_on_over_sources(tmp_path):
    one, none = write(tmp_path, "a.txt", "a\nb\n"), write(tmp_path, "none.txt", "")
    assert read_all(one, none, write(tmp_path, "b.csv", "text\nc\nd\n")) == [0, 1, 2, 3]


def test_ids_of_several_sources_are_kept(tmp_path):
    a, b = write(tmp_path, "a.jsonl", with_ids(5, 3)), write(tmp_path, "b.jsonl", with_ids(4))
    assert read_all(a, write(tmp_path, "none.jsonl", "\n\n"), b) == [5, 3, 4]


@pytest.mark.parametrize("held", [1, 2, 3, 100])
def test_an_id_that_occurs_in_two_sources(tmp_path, monkeypatch, held):
    monkeypatch.setattr(ids, "_HELD", held)
    a = write(tmp_path, "a.jsonl", "\n" + with_ids(7, 8, 9))
    none = write(tmp_path, "none.jsonl", "\n" * 9)
    b = write(tmp_path, "b.jsonl", with_ids(1, 8))
    message = r"/b\.jsonl, line 2: the id 8 is also the id of .*/a\.jsonl, line 3; ids must"
    with pytest.raises(InputError, match=message):
        read_all(a, none, b)
    b = write(tmp_path, "b.jsonl", with_ids(1, 2, 1))
    message = r"/b\.jsonl, line 3: the id 1 is also the id of line 1; ids must"
    with pytest.raises(InputError, match=message):
        read_all(a, none, b)


def test_an_id_that_is_found_late_is_seen_from_its_own_source(tmp_path, monkeypatch):
    monkeypatch.setattr(ids, "_HELD", 3)
    a, b = write(tmp_path, "a.jsonl", with_ids(1, 2, 3, 1)), write(tmp_path, "b.jsonl", with_ids(5))
    message = r"/a\.jsonl, line 4: the id 1 is also the id of line 1; ids must"
    with pytest.raises(InputError, match=message):
        read_all(a, b)


def test_sources_with_and_without_ids(tmp_path):
    a, b = write(tmp_path, "a.jsonl", with_ids(1)), write(tmp_path, "b.txt", "c\n")
    other = write(tmp_path, "c.csv", "id,text\n1,c\n")  # its ids are texts
    for sources in ((a, b), (b, a), (a, other)):
        with pytest.raises(InputError, match=f"{sources[1].name}, line "):
            read_all(*sources)

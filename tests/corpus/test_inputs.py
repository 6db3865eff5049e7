"""Inputs: what globs and folders stand for, and what is refused."""

import os

import pytest

from bert_features.corpus.inputs import find_inputs, place_of
from bert_features.errors import InputError
from bert_features.formats.manifest import MANIFEST


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("b.txt", "a.txt", "c.jsonl", ".hidden.txt", "sub/d.txt", "sub/deep/e.txt"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "empty" / "folder").mkdir(parents=True)
    (tmp_path / "empty" / ".hidden").touch()
    (tmp_path / "[x]*.txt").touch()
    return tmp_path


@pytest.fixture
def bucket(object_store):
    names = ("b.txt", "a.txt", ".hidden.txt", "sub/d.txt", "with*.txt")
    object_store.files |= {f"bucket/data/{name}": b"" for name in names}
    return object_store


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ("data/b.txt", ["data/b.txt"]),
        (["data/b.txt", "data/a.txt"], ["data/b.txt", "data/a.txt"]),
        ("data/*.txt", ["data/a.txt", "data/b.txt"]),
        ("data/*", ["data/a.txt", "data/b.txt", "data/c.jsonl"]),
        ("data/**/*.txt", ["data/a.txt", "data/b.txt", "data/sub/d.txt", "data/sub/deep/e.txt"]),
        ("data/[bc]*", ["data/b.txt", "data/c.jsonl"]),
        ("data", ["data/a.txt", "data/b.txt", "data/c.jsonl"]),
        ("data/", ["data/a.txt", "data/b.txt", "data/c.jsonl"]),
        (["data/sub", "data/?.txt"], ["data/sub/d.txt", "data/a.txt", "data/b.txt"]),
        ("[x]*.txt", ["[x]*.txt"]),
        ("-", ["-"]),
        ("https://host/a.txt?x=*", ["https://host/a.txt?x=*"]),
        ("toy://bucket/data/a.txt", ["toy://bucket/data/a.txt"]),
        ("toy://bucket/data/?.txt", ["toy://bucket/data/a.txt", "toy://bucket/data/b.txt"]),
        ("toy://bucket/data/with*.txt", ["toy://bucket/data/with*.txt"]),
        ("toy://bucket/data/", [f"toy://bucket/data/{name}.txt" for name in ("a", "b", "with*")]),
    ],
)
def test_the_files_that_inputs_stand_for(here, bucket, inputs, expected):
    assert find_inputs(inputs) == tuple(expected)


def test_a_local_address(here):
    assert find_inputs(f"file://{here}/data/*.txt") == (f"{here}/data/a.txt", f"{here}/data/b.txt")


@pytest.mark.parametrize(
    ("name", "expected"), [("a/../b", "{}/b"), ("-", "-"), ("s3://a//b/../c", "s3://a//b/../c")]
)
def test_the_place_of_an_address_is_its_text(here, name, expected):
    assert place_of(name) == expected.format(here)


def test_a_driver_whose_paths_begin_with_a_slash(here):
    import fsspec

    fsspec.filesystem("memory").pipe({"/globs/b.txt": b"", "/globs/a.txt": b""})
    expected = ("memory://globs/a.txt", "memory://globs/b.txt")
    assert find_inputs("memory://globs/*.txt") == expected
    assert find_inputs("memory://globs") == expected
    # What a name spells out may be hidden, and have brackets.
    fsspec.filesystem("memory").pipe({"/.b/[a].txt": b"", "/.b/.c/d.txt": b"", "/.b/.e": b""})
    for rest in ("", "/[a].txt", "/*.txt", "/?a?.txt", "/**"):
        assert find_inputs(f"memory://.b{rest}") == ("memory://.b/[a].txt",)


def test_folders_are_left_alone_where_they_are_not_allowed(here, bucket):
    assert find_inputs("data", folders=False) == ("data",)
    assert find_inputs("toy://bucket/data", folders=False) == ("toy://bucket/data",)
    assert find_inputs("data/a*", folders=False) == ("data/a.txt",)


def test_features_are_no_texts(tmp_path, object_store):
    manifest = tmp_path / MANIFEST
    manifest.write_text('{"manifest_version": 1')
    object_store.files[f"bucket/run/{MANIFEST}"] = manifest.read_bytes()
    for folder in (tmp_path, "toy://bucket/run"):
        with pytest.raises(InputError, match="holds the features of a run"):
            find_inputs(folder)
    manifest.write_text('{"files": []}')
    assert find_inputs(tmp_path) == (str(manifest),)


def test_a_pipe_is_no_manifest(tmp_path):
    (tmp_path / "a.txt").write_text("a b\n")
    os.mkfifo(tmp_path / MANIFEST)  # opening it would wait for a writer
    assert find_inputs(tmp_path) == (f"{tmp_path}/{MANIFEST}", f"{tmp_path}/a.txt")

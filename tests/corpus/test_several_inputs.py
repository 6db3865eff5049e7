"""A run over several inputs: shards of one input each, ids over all, changes since it began."""

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bert_features import extract, read_features
from bert_features.corpus import resuming
from bert_features.errors import ConfigError, InputError
from bert_features.formats.manifest import Manifest
from bert_features.readers import ids
from tests.corpus.runs import extract_until, shards_of, stop_after


@pytest.fixture
def inputs(tmp_path):
    """Four files of 7, 0, 3 and 2 examples."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text("a b\n" * 7)
    (folder / "b.txt").write_text("")
    (folder / "c.jsonl").write_text('{"text": "it is"}\n' * 3)
    pq.write_table(pa.table({"text": ["no", "the is"]}), folder / "d.parquet")
    return [folder / name for name in ("a.txt", "b.txt", "c.jsonl", "d.parquet")]


def with_ids(path, *unique_ids):
    path.write_text("".join(json.dumps({"id": i, "text": "a b"}) + "\n" for i in unique_ids))
    return path


def test_a_shard_holds_examples_of_one_input(config, inputs, tmp_path):
    summary = extract(config(shard_examples=4), inputs, f"{tmp_path}/out/")
    manifest = Manifest.read(tmp_path / "out")
    assert [(s.input, s.first, s.records) for s in manifest.shards] == [
        (0, 0, 4),
        (0, 4, 3),
        (2, 7, 3),
        (3, 10, 2),
    ]
    assert [(entry.path, entry.records) for entry in manifest.inputs] == list(
        zip(map(str, inputs), [7, 0, 3, 2], strict=True)
    )
    assert [entry.bytes for entry in manifest.inputs] == [p.stat().st_size for p in inputs]
    assert [entry.modified_ns for entry in manifest.inputs] == [
        p.stat().st_mtime_ns for p in inputs
    ]
    file = read_features(tmp_path / "out")
    assert file.ids.tolist() == list(range(12))
    assert [list(file[i].tokens[1:-1]) for i in (6, 7, 10, 11)] == [
        ["a", "b"],
        ["it", "is"],
        ["no"],
        ["the", "is"],
    ]
    assert summary.counts.examples == 12


def test_a_folder_a_glob_and_a_list_are_the_same_inputs(config, inputs, tmp_path):
    extract(config(), inputs, f"{tmp_path}/list/")
    for name, given in (("glob", tmp_path / "in" / "*"), ("folder", tmp_path / "in")):
        extract(config(), given, f"{tmp_path}/{name}/")
        assert shards_of(tmp_path / name) == shards_of(tmp_path / "list")
        summary = extract(config(), inputs, f"{tmp_path}/{name}/", progress=stop_after(0))
        assert summary.before.examples == 12


def test_inputs_without_examples_are_named(config, tmp_path, caplog):
    for name, content in (("a", ""), ("b", ""), ("c", "a\n")):
        (tmp_path / f"{name}.txt").write_text(content)
    extract(config(), tmp_path / "*.txt", f"{tmp_path}/out/")
    assert f"2 of 3 inputs have no examples: {tmp_path}/a.txt, {tmp_path}/b.txt" in caplog.text
    assert len(read_features(tmp_path / "out")) == 1


def test_own_ids_are_kept_and_checked_over_all(config, tmp_path):
    a = with_ids(tmp_path / "a.jsonl", "x", "y")
    b = with_ids(tmp_path / "b.jsonl", "z")
    extract(config(), [a, b], f"{tmp_path}/out/")
    assert read_features(tmp_path / "out").ids.tolist() == ["x", "y", "z"]
    (tmp_path / "c.txt").write_text("a\n")
    for other in (with_ids(b, "z", "y"), tmp_path / "c.txt"):
        with pytest.raises(InputError, match=f"{other.name}, line "):
            extract(config(), [a, other], f"{tmp_path}/new/")
    assert not (tmp_path / "new").exists()
    extract(config(id_field=""), [a, tmp_path / "c.txt"], f"{tmp_path}/new/")
    assert read_features(tmp_path / "new").ids.tolist() == [0, 1, 2]


def test_the_last_ids_are_checked_too(config, tmp_path, monkeypatch):
    monkeypatch.setattr(ids, "_HELD", 3)
    a = with_ids(tmp_path / "a.jsonl", "x", "y", "z")
    b = with_ids(tmp_path / "b.jsonl", "y")
    with pytest.raises(InputError, match=r"b\.jsonl, line 1: the id 'y'"):
        extract(config(), [a, b], f"{tmp_path}/out/")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("a", "b", "c"), "now missing: .*d.parquet"),
        (("a", "b", "c", "d", "e"), "now added: .*e.txt"),
        (("b", "a", "c", "d"), "in another order"),
        ((), "now missing: .*a.txt, .*b.txt, .*c.jsonl and 1 more; now added: "),
    ],
)
def test_other_inputs_are_refused_by_name(config, inputs, tmp_path, names, message):
    extract_until(0, config(), inputs, f"{tmp_path}/out/")
    (tmp_path / "e.txt").write_text("a\n")
    by_name = {path.name[0]: path for path in (*inputs, tmp_path / "e.txt")}
    given = [by_name[name] for name in names] or [by_name["e"]]
    with pytest.raises(ConfigError, match=message):
        extract(config(), given, f"{tmp_path}/out/")


def test_relative_and_absolute_names_are_the_same(config, inputs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    extract(config(), "in/*.txt", "out/")
    extract(config(), inputs[:2], "out/", progress=stop_after(0))


def test_only_inputs_that_look_different_are_read_again(config, inputs, tmp_path, monkeypatch):
    extract_until(0, config(shard_examples=2), inputs, f"{tmp_path}/out/")
    for path in inputs[1:3]:
        os.utime(path, (1, 1))
    cut, read = resuming.cut_input, []
    monkeypatch.setattr(
        resuming, "cut_input", lambda c, path, *a, **k: read.append(path) or cut(c, path, *a, **k)
    )
    assert extract(config(shard_examples=2), inputs, f"{tmp_path}/out/").counts.examples == 12
    assert read == [str(path) for path in inputs[1:3]]


@pytest.mark.parametrize("changed", [0, 1, 2])
def test_an_input_that_changed_is_named(config, inputs, tmp_path, changed):
    extract_until(0, config(), inputs, f"{tmp_path}/out/")
    content = inputs[changed].read_text()
    inputs[changed].write_text(content.replace("a b", "b a").replace("it is", "is it") or "a\n")
    os.utime(inputs[changed], (1, 1))  # whatever the clock's resolution
    with pytest.raises(InputError, match=rf"{inputs[changed].name} has changed since this run"):
        extract(config(), inputs, f"{tmp_path}/out/", progress=stop_after(0))  # before it computes


def test_an_input_without_examples_has_changed_once_it_has_some_in_as_many_bytes(
    config, inputs, tmp_path
):
    content = inputs[2].read_text()
    inputs[2].write_text("\n" * len(content))
    extract_until(0, config(), inputs, f"{tmp_path}/out/")
    inputs[2].write_text(content)
    os.utime(inputs[2], (1, 1))  # whatever the clock's resolution
    with pytest.raises(InputError, match=r"c\.jsonl"):
        extract(config(), inputs, f"{tmp_path}/out/", progress=stop_after(0))


@pytest.mark.parametrize("place", [0, 1])
def test_each_input_is_checked_before_anything_is_read(config, inputs, tmp_path, place):
    inputs[place * 2].write_bytes(b"\xff\n")
    with pytest.raises(InputError, match="line 1: "):
        extract(config(checkpoint="nowhere"), inputs, f"{tmp_path}/out/")
    with pytest.raises(InputError, match=r"cannot read .*gone"):
        extract(config(checkpoint="nowhere"), [inputs[3], tmp_path / "gone"], f"{tmp_path}/out/")
    assert not (tmp_path / "out").exists()


def test_a_glob_of_one_file_is_one_input(config, inputs, tmp_path):
    extract(config(), tmp_path / "in" / "c*", tmp_path / "out.npz")
    assert len(read_features(tmp_path / "out.npz")) == 3

"""What is refused before a framework is imported: files that are both read and written, names."""

import contextlib
import os
import shutil
import sys
from pathlib import Path

import pytest

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.outputs import OutputConfig
from bert_features.config.settings import Marks, describe_allowed
from bert_features.corpus.target import check_run, files_read, find_target
from bert_features.errors import ConfigError, InputError, OutputError
from tests.other_values import ALONE


@pytest.fixture
def files(toy, tmp_path, monkeypatch):
    """The current folder: an input, settings, and a checkpoint of three files and its marks."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(toy, "uncased_toy")
    Path("uncased_toy", "tokenizer_config.json").write_text('{"do_lower_case": true}')
    shutil.copy("uncased_toy/vocab.txt", "words.txt")
    shutil.copy("uncased_toy/bert_config.json", "shape.json")
    Path("in.txt").write_text("a b\n")
    Path("in.jsonl.metadata.json").write_text("a b\n")
    Path("c.toml").write_text("max_seq_length = 16\nlayers = [-1]\n")
    return tmp_path


def check(output="o.npz", input_path="in.txt", ledger=None, **settings):
    config = ExtractConfig.load("c.toml", checkpoint="uncased_toy", **settings)
    return check_run(config, [input_path], find_target(config, output, ledger, overwrite=True))


def everything(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


DATA = "uncased_toy/bert_model.ckpt.data-00000-of-00001"


@pytest.mark.parametrize(
    ("target", "settings", "role"),
    [
        ("in.txt", {}, "the input"),
        ("c.toml", {}, "the settings file"),
        ("shape.json", {"config_file": "shape.json"}, "the checkpoint's config"),
        ("words.txt", {"vocab_file": "words.txt"}, "the vocabulary"),
        ("words.txt", {"vocab_file": "file://{}/words.txt"}, "the vocabulary"),
        ("uncased_toy/vocab.txt", {}, "the vocabulary"),
        ("uncased_toy/bert_config.json", {}, "the checkpoint's config"),
        ("uncased_toy/tokenizer_config.json", {}, "the checkpoint's tokenizer_config.json"),
        ("uncased_toy/bert_model.ckpt.index", {}, "the checkpoint's weights"),
        (DATA, {}, "the checkpoint's weights"),
    ],
)
@pytest.mark.parametrize("link", [None, os.symlink, os.link])
def test_a_file_that_is_read_is_not_written(files, target, settings, role, link):
    settings = {name: value.format(files) for name, value in settings.items()}
    if link:
        link(files / target, "link")
        target = "link"
    before = everything(files)
    for part, arguments in {"output": {"output": target}, "ledger": {"ledger": target}}.items():
        message = rf"^{role} and the {part} are the same file, .*; pass another path for the {part}"
        with pytest.raises(OutputError, match=message):
            check(format="npz", **arguments, **settings)
    assert everything(files) == before


def test_each_file_that_a_setting_names_is_among_those_that_are_read(tmp_path):
    named, file = set(), tmp_path / "file"
    file.write_text("[1.0, 2.0]")
    for name in ExtractConfig.known():
        with contextlib.suppress(ConfigError):  # it takes no path
            config = ExtractConfig.of({**ALONE[name], name: file})
            read = [str(path) for _, path in files_read(config, "in.txt")]
            assert any(path.startswith(str(file)) for path in read), name
            named.add(name)
    marked = {n for n, field in ExtractConfig.known().items() if Marks.of(field).reads}
    assert named == {"checkpoint", "config_file", "vocab_file", "cache"} | marked
    for name, field in OutputConfig.model_fields.items():
        assert bool(Marks.of(field).reads) is ("path" in describe_allowed(field)), name


def test_the_sidecar_is_among_the_files_that_are_written(files):
    with pytest.raises(OutputError, match="the input and the sidecar of the output are the same"):
        check("in.jsonl", "in.jsonl.metadata.json")
    with pytest.raises(OutputError, match="the sidecar of the output and the ledger are the same"):
        check("o.jsonl", ledger="o.jsonl.metadata.json")
    assert check("o.jsonl", ledger="o.metadata.json").name == "uncased_toy"


def test_standard_input_and_output_may_be_files_too(files, monkeypatch):
    with Path("in.txt").open() as stdin, Path("in.txt").open("a") as stdout:
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(OutputError, match="standard input and the output are the same file"):
            check("in.txt", "-", format="npz")
        monkeypatch.setattr(sys, "stdout", stdout)
        for path in ("-", "in.txt"):
            with pytest.raises(OutputError, match="input and standard output are the same file; "):
                check("-", path)


def test_other_files_of_the_checkpoints_folder_may_be_written(files):
    Path("uncased_toy", "o.npz").write_text("of an earlier run")
    assert check("uncased_toy/o.npz").name == "uncased_toy"


def test_what_can_be_read_only_once_is_left_for_the_run(files):
    os.mkfifo("pipe")  # opening it here would wait for a writer
    assert check(input_path="pipe").name == "uncased_toy"
    assert check(input_path="-").name == "uncased_toy"


def test_a_name_that_is_not_utf8_goes_to_no_manifest(files):
    name = os.fsdecode(b"\xe9.txt")
    shutil.copy("in.txt", name)
    config = ExtractConfig.load("c.toml", checkpoint="uncased_toy")
    assert find_target(config, "o.npz").find_inputs(name) == (name,)
    with pytest.raises(InputError, match=r"the name of .udce9\.txt is not UTF-8, as .*; rename it"):
        find_target(config, "o/").find_inputs(["in.txt", name])


def test_a_sidecar_that_a_killed_run_left_alone_is_in_nobodys_way(files):
    Path("o.jsonl.metadata.json").write_text('{"features": [], "format_version": 2}')
    config = ExtractConfig.load("c.toml", checkpoint="uncased_toy")
    target = find_target(config, "o.jsonl")
    check_run(config, ["in.txt"], target)
    Path("o.jsonl").write_text("precious")
    with pytest.raises(OutputError, match="exists"):
        check_run(config, ["in.txt"], target)

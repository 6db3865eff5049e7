"""What all commands share: help without the frameworks, one-line errors, exit status."""

import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import typer

from bert_features.cli import app
from bert_features.config.extract_config import ExtractConfig
from bert_features.formats.records import Feature, FeatureBatch
from tests.cli.command_line import run, run_afresh
from tests.formats.feature_files import write
from tests.formats.feature_folders import write_folder
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, random_weights

FRAMEWORKS = {"tensorflow", "jax", "keras"}
COMMANDS = typer.main.get_command(app).commands


@pytest.mark.slow
def test_help_loads_no_heavy_package_and_reading_no_framework(tmp_path):
    """Of every command, and of every plot."""
    feature = Feature("text", (-1,), "none", 4, "float32", "sequence", "mean")
    batch = FeatureBatch(np.arange(2), {"text": np.zeros((2, 4), np.float32)})
    formats = ("tfrecord", "hdf5", "npz", "parquet", "arrow", "jsonl")
    for format in formats:
        write(tmp_path / f"f.{format}", format, (feature,), batch)
    write_folder(tmp_path / "folder", "parquet", (feature,), batch)
    heavy = {"tensorflow_text", "numpy", "pyarrow", "h5py", "altair", "vl_convert", "sklearn"}
    helps = [[name, "--help"] for name in COMMANDS]
    helps += [["plot", name, "--help"] for name in COMMANDS["plot"].commands]
    assert len(helps) > 17
    wanted = [  # command, part of its output, packages that it does not load
        *((each, f"Usage: root {' '.join(each[:-1])}", FRAMEWORKS | heavy) for each in helps),
        (["check", *(f"f.{format}" for format in formats)], ": ok, 2 examples, ", FRAMEWORKS),
        (["status", "folder"], "state      finished\n", FRAMEWORKS),
    ]
    results = run_afresh([command for command, _, _ in wanted], tmp_path)
    for (command, part, absent), (status, stdout, stderr, modules) in zip(
        wanted, results, strict=True
    ):
        assert (status, stderr, modules & absent) == (0, "", set()), command
        assert stdout.count(part) == (len(formats) if part.startswith(": ok") else 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "line", "imported"),
    [
        ("from bert_features.cli import main; main()", ["status", "--help"], {"status"}),
        ("from bert_features.cli import main; main()", ["--help"], {*COMMANDS}),
        ("from bert_features.cli import app", ["status"], {*COMMANDS}),  # of another program
    ],
)
def test_a_command_imports_its_own_module_alone(call, line, imported):
    code = f"import sys; {call}; print(*sys.modules, file=sys.stderr)"
    run = [sys.executable, "-c", code, *line]
    modules = subprocess.run(run, capture_output=True, text=True, check=True).stderr.split()
    assert {name for name in COMMANDS if f"bert_features.cli.{name}" in modules} == imported


ERRORS = [
    ("extract in.txt -o old.npz", 1, "old.npz exists; pass --overwrite to replace it"),
    ("extract in.txt -o in.txt --format npz --overwrite", 1, "input and the output are"),
    ("extract absent.txt -o o.npz", 1, "cannot read absent.txt: No such file"),
    ("extract toy -o o.npz", 2, "toy is a folder of files, and o.npz is a single file; end --outp"),
    ("extract in.csv -o o.npz", 1, "in.csv: no column 'text'"),
    ("extract in.txt -o o.npz --checkpoint toys", 1, "did you mean 'toy'? "),
    ("extract in.txt -o o.npz --layers=-7", 2, "layer -7 is outside [-3, 2]"),
    ("extract in.txt -o o.npz --layers=-1 --max-seq-length 25", 2, "has 24 positions"),
    ("extract in.txt -o o.npz --layers=-1 --vocab absent", 1, "/absent: No such file"),
    ("extract in.txt -o o.npz --layers=-1 --cased", 1, "contradicts uncased_toy"),
    ("extract in.txt -o o.npz --kind score --checkpoint albert", 1, "albert has no masked-LM h"),
    ("extract half.jsonl -o o.npz --layers=-1", 1, "half.jsonl, line 2: "),
    ("extract twice.jsonl -o o.npz --layers=-1", 1, "line 3: the id 7 is also the id of line 1"),
    ("extract in.txt -o o.npz --layers=-1 --device tpu", 2, "no TPU: this machine has none; pass"),
    ("extract in.txt -o o.npz --layers=-1 --level word --checkpoint albert", 2,
     "--word-split is 'bert', which needs a WordPiece vocabulary, and this checkpoint has anot"),
    ("plan in.txt --layers=-1 --device tpu", 2, "no TPU: this machine has none; pass --device"),
    ("tokenize in.txt --checkpoint toys", 1, "did you mean 'toy'? "),
    ("tokenize in.txt --checkpoint uncased_toy --text-field body", 2, "set, but the input is read"),
    ("tokenize in.txt --checkpoint uncased_toy --max-line-bytes 2", 1, "in.txt, line 1: the line"),
    ("status toy", 1, "toy has no _manifest.json; pass the folder that a run wrote"),
    ("check toy", 1, "Is a directory, without the _manifest.json of a features folder; "),
    ("inspect toys", 1, "did you mean 'toy'? "),
    ("export --signature text --to in.txt", 1, "in.txt is not a directory"),
    ("export --signature text --to x --layers=-7", 2, "layer -7 is outside [-3, 2]"),
    ("export --signature text --to . --overwrite", 1, "holds the checkpoint (uncased_toy)"),
    ("convert toys x --to tf1", 1, "did you mean 'toy'? "),
    ("convert uncased_toy . --to savedmodel --overwrite", 1, "holds the checkpoint (unc"),
    ("plot similarity a -o old.npz", 1, "the file type .npz is unknown; allowed: .png, "),
    ("plot similarity a -o old.png --checkpoint toys", 1, "old.png exists; pass --overwrite"),
    ("plot similarity a -o s3://b/o.png", 1, "is an address; a figure is written to a path on th"),
    ("plot word a --text a -o o.png --layer=7 --checkpoint uncased_toy", 2, "layer 7 is o"),
    ("plot scatter in.csv -o in.csv --overwrite", 1, "in.csv: the file type .csv is unkn"),
    ("plot probe in.csv --label-field x --text-field body -o o.svg", 1, "no column 'x'"),
]  # fmt: skip
LATER = [  # where a tokenizer or a table may have been loaded: in this process
    ("tokenize empty.json --checkpoint uncased_toy", 2, "empty.json has no examples"),
    ("neighbors absent.npz --query x", 1, "/absent.npz: No such file or directory"),
]


@pytest.mark.slow
def test_cheap_errors_come_before_the_frameworks(toy, family_files, tmp_path, monkeypatch):
    """Importing TensorFlow takes seconds."""
    (tmp_path / "in.txt").write_text("a b\n")
    (tmp_path / "in.csv").write_text("id,body\n1,a\n")
    (tmp_path / "empty.json").write_text("[]")
    for name in ("old.npz", "old.png"):
        (tmp_path / name).write_text("precious")
    (tmp_path / "toy").mkdir()
    shutil.copytree(toy, tmp_path / "uncased_toy")
    (tmp_path / "half.jsonl").write_text('{"text": "a"}\n{"body": "b"}\n')
    lines = [f'{{"id": {number}, "text": "a"}}\n' for number in (7, 8, 7)]
    (tmp_path / "twice.jsonl").write_text("".join(lines))
    larger = TOY.model_copy(update={"vocab_size": 1000})
    write_directory(tmp_path / "albert", larger, [], random_weights(larger))
    (tmp_path / "albert" / "vocab.txt").unlink()
    shutil.copy(family_files / "albert" / "spiece.model", tmp_path / "albert")
    commands = [command.split() for command, _, _ in ERRORS]
    for command in commands:
        if command[0] in ("extract", "plan", "export") and "--checkpoint" not in command:
            command += ["--checkpoint", "uncased_toy"]
        if command[0] in ("extract", "plan") and "--max-seq-length" not in command:
            command += ["--max-seq-length", "16"]
    heavy = FRAMEWORKS | {"huggingface_hub", "pandas", "pyarrow"}
    results = run_afresh(commands, tmp_path)
    monkeypatch.chdir(tmp_path)
    later = [run(*command.split()) for command, _, _ in LATER]
    results += [(result.exit_code, result.stdout, result.stderr, set()) for result in later]
    for (command, status, message), (exit_code, _, stderr, modules) in zip(
        ERRORS + LATER, results, strict=True
    ):
        assert exit_code == status, (command, stderr)
        (line,) = stderr.splitlines()
        assert message in line, command
        assert not heavy & modules, command
    assert (tmp_path / "old.npz").read_text() == (tmp_path / "old.png").read_text() == "precious"
    names = ["albert", "empty.json", "half.jsonl", "in.csv", "in.txt", "old.npz", "old.png", "toy"]
    names += ["twice.jsonl", "uncased_toy"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_is_a_sentence_that_stands_alone(name):
    """It begins with a capital or a file's name and ends with a full stop; a default may follow."""
    command = COMMANDS[name]
    descriptions = tuple(field.description for field in ExtractConfig.known().values())
    for parameter in command.params:
        text = getattr(parameter, "help", None)
        assert text, parameter.name
        if text.startswith(descriptions):  # tests/config holds these
            continue
        assert re.match(r"[A-Z]|[\w.]+\.(json|txt)\b", text), text
        assert re.search(r"[.…]( \[default: [^]]*\])?$", text), text

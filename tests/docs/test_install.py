"""docs/tpu.md, Installing: the tables name every extra, and reading works without TensorFlow."""

import configparser
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from typer.testing import CliRunner

from bert_features.cli import app

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "tpu.md").read_text(encoding="utf-8")
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg", encoding="utf-8")
# What the page leaves out where features are only read.
LEFT_OUT = {
    *("huggingface-hub", "keras", "safetensors", "tensorflow", "tensorflow-hub"),
    *("tensorflow-text", "tokenizers"),
}


def section(heading: str) -> str:
    return re.split(r"^#+ ", PAGE.partition(f"\n### {heading}\n")[2], maxsplit=1, flags=re.M)[0]


def test_the_table_has_a_row_for_each_extra():
    rows = re.findall(r"^\| `([\w-]+)` \|", section("Extras and their size"), re.MULTILINE)
    assert sorted(rows) == sorted(SETUP["options.extras_require"])


def test_a_reader_installs_every_requirement_but_those_of_the_model():
    lines = SETUP["options"]["install_requires"].splitlines()
    base = {canonicalize_name(Requirement(line).name) for line in lines if line and line[0] != "#"}
    (listed,) = re.findall(r"^pip install ([a-z].*)$", section("Without TensorFlow"), re.MULTILINE)
    assert {canonicalize_name(name) for name in listed.split()} == base - LEFT_OUT


@pytest.mark.slow
@pytest.mark.release
def test_a_reader_needs_none_of_what_is_left_out(tmp_path):
    texts, features = tmp_path / "texts.txt", tmp_path / "features.parquet"
    texts.write_text("The bank of the river.\nA bank robber.\n")
    made = ["--level", "sequence", "--pooling", "mean", "--layers=-1"]
    ran = CliRunner().invoke(app, ["extract", str(texts), "--output", str(features), *made])
    assert ran.exit_code == 0, ran.output
    program = f"""
        import sys
        for name in {sorted({name.replace("-", "_") for name in LEFT_OUT} | {"jax", "tf_keras"})}:
            sys.modules[name] = None
        from bert_features import Client, compare, read_features
        from bert_features.__main__ import main
        (vector,) = read_features({str(features)!r})[1].features.values()
        assert vector.shape == (384,)
        compare({str(features)!r}, {str(features)!r})
        sys.argv[1:] = sys.argv[1].split()
        main()
    """
    for command in (f"neighbors {features} --query-id 0", f"check {features}"):
        ran = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), command],
            text=True,
            capture_output=True,
        )
        assert ran.returncode == 0, ran.stderr

"""`bert-features export`."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from bert_features import load_export
from bert_features.cli import app


def run(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


@pytest.mark.slow
def test_command_line(toy, tmp_path):
    to = tmp_path / "x"
    specs = [
        "--output-spec", 'name = "mean", level = "sequence", special_tokens = false',
        "--output-spec", 'name = "t", layers = [0]',
    ]  # fmt: skip
    options = ["--to", to, "--signature", "text", "--checkpoint", toy, "--layers=0"]
    result = run(*options, *specs, "--max-seq-length", 8)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"wrote {to} (")
    export = load_export(to)
    assert export.outputs == ("input_mask", "input_word_ids", "mean", "t")
    assert export(["a " * 20], "input_mask").tolist() == [[1] * 8]
    assert json.loads((to / "assets" / "bert_config.json").read_text())["hidden_act"] == "gelu"
    again = run(*options)
    assert again.exit_code == 1
    assert again.stderr.strip() == f"bert-features: {to} exists; pass --overwrite to replace it"
    single = ["--level", "sequence", "--pooling", "max", "--dtype", "float16", "--normalize"]
    assert run(*options, *single, "--overwrite").exit_code == 0
    export = load_export(to)
    assert export.outputs == ("features", "input_mask", "input_word_ids")
    features = export(["a b", "the"], "features")
    assert (features.dtype, features.shape) == (np.float16, (2, 8))
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, rtol=0, atol=2e-3)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.slow
@pytest.mark.release
def test_command_line_where_keras_is_to_run_on_jax(toy, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "bert_features", "export", "--to", str(tmp_path / "out"),
         "--signature=text", "--layers=embeddings", "--checkpoint", str(toy)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "KERAS_BACKEND": "jax"},
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "saved_model.pb").exists()

"""docs/choosing.md: its programs run, and the Dense module that one writes has the fit."""

import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bert_features.cli import app

PAGE = Path(__file__).resolve().parents[2] / "docs" / "choosing.md"


@pytest.mark.slow
def test_the_fitted_folder_centres_and_removes_two_components(minilm_dir, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "the bank of a river was seen by one robber who stole money from vaults in town"
    words = text.split()
    lines = [" ".join(words[i:] + words[:i] + words[i::3]) for i in range(12)]
    Path("texts.txt").write_text("\n".join(lines), encoding="utf-8")
    result = CliRunner().invoke(app, ["convert", "minilm", "fitted", "--to", "safetensors"])
    assert result.exit_code == 0, result.output
    names = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, "docs/choosing.md", "exec"), names)
    found = names["fitted"].encode(lines).astype(np.float64)
    assert found.shape == (12, 382)
    centred = names["vectors"] - names["vectors"].mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    products = (left[:, 2:] * sizes[2:] ** 2) @ left[:, 2:].T
    assert np.abs(found @ found.T - products).max() < 1e-4

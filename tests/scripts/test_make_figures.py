"""scripts/make_figures.py: it makes the figures that docs/plots.md shows."""

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"


SCRIPT = str(ROOT / "scripts" / "make_figures.py")


def test_it_has_the_figures_of_the_page():
    page = (ROOT / "docs" / "plots.md").read_text(encoding="utf-8")
    shown = re.findall(r"\(images/([\w.]+)\)", page)
    # Made by the command above it, from a corpus that the repository does not have.
    made = [name for name in shown if name != "upos.svg"]
    assert list(runpy.run_path(SCRIPT)["CHARTS"]) == made
    assert all((IMAGES / name).stat().st_size < 150_000 for name in shown)


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.usefixtures("minilm_dir")
def test_it_makes_a_figure_of_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", [SCRIPT, "--to", str(tmp_path), "word.svg"])
    runpy.run_path(SCRIPT, run_name="__main__")
    assert [path.name for path in tmp_path.iterdir()] == ["word.svg"]
    assert words_of(tmp_path / "word.svg") == words_of(IMAGES / "word.svg")


def words_of(path):
    """The texts of a picture that hold no number: numbers may differ on another CPU."""
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text(encoding="utf-8"))
    words = {text for text in texts if re.fullmatch(r"[^\d.]+", text)}
    assert len(words) > 2
    return words

"""scripts/make_figures.py: it makes the figures that docs/plots.md shows."""

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"


@pytest.mark.slow
@pytest.mark.usefixtures("one_device", "minilm_dir")
def test_it_makes_the_figures_of_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["make_figures.py", "--to", str(tmp_path)])
    runpy.run_path(str(ROOT / "scripts" / "make_figures.py"), run_name="__main__")
    page = (ROOT / "docs" / "plots.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\(images/([\w.]+)\)", page))
    assert {path.name for path in tmp_path.iterdir()} == shown
    for name in shown:
        assert (IMAGES / name).stat().st_size < 150_000
        assert words_of(tmp_path / name) == words_of(IMAGES / name)


def words_of(path):
    """The texts of a picture that hold no number: numbers may differ on another CPU."""
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text(encoding="utf-8"))
    words = {text for text in texts if re.fullmatch(r"[^\d.]+", text)}
    assert len(words) > 2
    return words

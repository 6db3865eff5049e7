"""mkdocs.yml: the site builds without a warning, and a reader needs no network."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bert_features

ROOT = Path(__file__).resolve().parents[2]
PUBLIC_NAMES = set(bert_features.__all__) - {"__version__"}
# What a browser loads by itself; it follows the `href` of an `a` only after a click.
LOADED = re.compile(r"""<(?!a\b)\w[^>]*?\s(?:src|srcset|poster|data|href)=["']?([^"'\s>]+)""")
ELSEWHERE = re.compile(r"(?:\w+:)?//")
# The scripts of the theme load these from elsewhere, for pages that have them.
LOADS_SCRIPTS = ('class="mermaid"', 'data-md-component="source"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The pages of the site by name; `--strict` refuses links and anchors that lead nowhere."""
    folder = tmp_path_factory.mktemp("site").resolve()
    nowhere = {f"{scheme}_proxy": "http://127.0.0.1:9" for scheme in ("http", "https", "all")}
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        env=os.environ | nowhere | {"NO_MKDOCS_2_WARNING": "1"},
        cwd=ROOT,
        text=True,
        capture_output=True,
    )
    assert built.returncode == 0, built.stderr
    files = [path for kind in ("*.html", "*.css") for path in folder.rglob(kind)]
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in files}


@pytest.mark.slow
@pytest.mark.release
def test_a_reader_needs_no_network(site):
    assert {f"{path.stem}.html" for path in (ROOT / "docs").glob("*.md")} - {"README.html"} <= {
        *site
    }
    for name, text in site.items():
        if name.endswith(".css"):
            assert not re.search(r"""url\(["']?(?:https?:)?//|@import""", text), name
        else:
            assert [address for address in LOADED.findall(text) if ELSEWHERE.match(address)] == []
            assert [mark for mark in LOADS_SCRIPTS if mark in text] == [], name


@pytest.mark.slow
@pytest.mark.release
def test_the_site_shows_what_a_git_host_shows(site):
    assert "<code>text a ||| text b</code>" in site["formats.html"]
    anchors = set(re.findall(r'id="bert_features\.(\w+)"', site["python.html"]))
    assert anchors >= PUBLIC_NAMES


def test_the_page_of_python_lists_every_public_name():
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    table = page.partition("## All public names\n")[2]
    listed = re.findall(r"`(\w+)`", "".join(re.findall(r"^\|(.*?)\|", table, re.MULTILINE)))
    assert sorted(listed) == sorted(PUBLIC_NAMES)

"""mkdocs.yml: the documentation as a site builds without a warning and without the network.

It is read without the network too, and all of its links lead somewhere.
"""

import os
import re
import subprocess
import sys
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import bert_features

ROOT = Path(__file__).resolve().parents[2]
# What a browser loads by itself. Another `href` is followed only by a click.
LOADED = {"src", "srcset", "poster", "data"}
API = re.compile(r"^<!-- docstring: bert_features\.(\w+) -->$", re.MULTILINE)
# The scripts of the theme load these from elsewhere, for pages that have them.
LOADS_SCRIPTS = ('class="mermaid"', 'data-md-component="source"')


class Reader(HTMLParser):
    """Reads a page: what it loads, where it links to, and its anchors."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.loaded: set[str] = set()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value}
        self.loaded |= {values[name] for name in LOADED & values.keys()}
        if "href" in values:
            (self.links if tag == "a" else self.loaded).add(values["href"])
        self.anchors |= {values[name] for name in ("id", "name") if name in values}


def leads(page: Path, link: str, anchors: dict[Path, set[str]]) -> bool:
    """Whether a link of a page leads to another site, to a file of this one, or to a heading."""
    parts = urlsplit(link)
    if parts.scheme:
        return True
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    return target.is_file() and (not parts.fragment or unquote(parts.fragment) in anchors[target])


def is_elsewhere(address: str) -> bool:
    return bool(urlsplit(address).netloc)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Reader]:
    return {path: Reader(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


@pytest.mark.slow
def test_every_page_is_built(site, pages):
    names = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"README"} | {"index"}
    assert names <= {path.stem for path in pages if path.parent == site}


@pytest.mark.slow
def test_a_reader_needs_no_network(site, pages):
    loaded = {address for page in pages.values() for address in page.loaded}
    assert loaded
    assert [address for address in loaded if is_elsewhere(address)] == []
    for sheet in site.rglob("*.css"):
        assert re.findall(r"""url\(["']?(?:https?:)?//|@import""", sheet.read_text()) == [], sheet
    for path in pages:
        assert [mark for mark in LOADS_SCRIPTS if mark in path.read_text(encoding="utf-8")] == []


@pytest.mark.slow
def test_the_site_shows_what_a_git_host_shows(site):
    page = (site / "migrating.html").read_text(encoding="utf-8")
    assert "<code>text a ||| text b</code>" in page
    assert '<a href="performance.html#compared-with-other-programs">Performance</a>' in page
    assert "<!-- docstring" not in (site / "api.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_links_of_the_site_lead_somewhere(pages):
    anchors = defaultdict(set, {path: page.anchors for path, page in pages.items()})
    dead = {
        (path.name, link)
        for path, page in pages.items()
        if path.name != "404.html"  # its links begin at the root of the server
        for link in page.links
        if not leads(path, link, anchors)
    }
    assert dead == set()


@pytest.mark.slow
def test_every_public_name_has_its_docstring(site, pages):
    names = set(bert_features.__all__) - {"__version__"}
    assert {f"bert_features.{name}" for name in names} <= pages[site / "api.html"].anchors


def test_the_page_of_the_api_lists_every_public_name_once():
    names = API.findall((ROOT / "docs" / "api.md").read_text(encoding="utf-8"))
    assert sorted(names) == sorted(set(bert_features.__all__) - {"__version__"})


def test_what_a_page_loads_and_links_to_is_read():
    page = Reader('<link href="//a.b/c"><img src="d.png"><a href="#e" id="f"></a><a href="g"></a>')
    assert (page.loaded, page.links, page.anchors) == ({"//a.b/c", "d.png"}, {"#e", "g"}, {"f"})
    assert [is_elsewhere(address) for address in ("//a.b/c", "https://a", "d.png")] == [1, 1, 0]
    here = Path(__file__)
    found = [leads(here, link, {here: {"f"}}) for link in ("#f", "#e", "nothing.html", __file__)]
    assert found == [True, False, False, True]

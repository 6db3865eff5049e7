"""Links and paths in the documentation exist, and docs/architecture.md names every room."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "tests" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`]+`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
# A repository path between back quotes, alone or in a command. A path with a placeholder, such as
# `tests/<room>/test_<module>.py` or `bert_features/formats/NAME.py`, is no path yet.
FOLDERS = "bert_features|tests|scripts|configs|docs"
PATH = re.compile(rf"(?<![\w./-])(?:{FOLDERS})/[\w./<>*-]*")
NAMED_PAGE = re.compile(r"(?<![\w./-])docs/\w+\.md(?:#[\w-]+)?")
PLACEHOLDER = re.compile(r"[<*]|[A-Z]+\.py$")


def read_links(page: str) -> list[str]:
    """The targets of a page's links that lie in this repository."""
    prose = CODE.sub("", FENCE.sub("", page))  # a label in back quotes leaves an empty label
    return [link for link in LINK.findall(prose) if "://" not in link]


def read_paths(page: str) -> set[str]:
    """The repository paths between back quotes, in code blocks too."""
    code = [*FENCE.findall(page), *CODE.findall(FENCE.sub("", page))]
    paths = {path.rstrip(".") for text in code for path in PATH.findall(text)}
    return {path for path in paths if not PLACEHOLDER.search(path)}


def read_anchors(page: str) -> set[str]:
    """The anchors of a page's headings, made as GitHub makes them."""
    headings = HEADING.findall(FENCE.sub("", page))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads(page: Path, link: str) -> bool:
    """Whether a relative link of a page leads to a file, and to a heading if it names one."""
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    if not target.resolve().is_relative_to(ROOT) or not target.exists():
        return False
    return not anchor or anchor in read_anchors(target.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    links = read_links(page.read_text(encoding="utf-8"))
    assert [link for link in links if not leads(page, link)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_exist(page):
    paths = read_paths(page.read_text(encoding="utf-8"))
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_pages_that_code_names_exist():
    named = {
        page
        for folder in ("bert_features", "configs", "scripts")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".pyi", ".sh", ".toml", ".yaml"}
        for page in NAMED_PAGE.findall(path.read_text(encoding="utf-8"))
    }
    assert [page for page in sorted(named) if not leads(ROOT / "README.md", page)] == []


def test_every_page_is_in_the_index():
    index = set(read_links((ROOT / "docs" / "README.md").read_text(encoding="utf-8")))
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages - index == set()


def test_the_table_of_rooms_is_complete():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = {
        path.name for path in (ROOT / "bert_features").iterdir() if (path / "__init__.py").is_file()
    }
    assert set(re.findall(r"^\| `(\w+)/` \|", page, re.MULTILINE)) == rooms

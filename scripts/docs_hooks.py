"""Hooks of mkdocs: what the pages of docs/ need in order to be a site as well.

A git host shows the pages as they are. There a link may lead out of docs/, to another file of the
repository; the site gets a copy of that file. Where the site shows the docstrings of all public
names, the page has a comment, which a git host does not show.
"""

import os.path
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
# The folder of the site with the copies of files from outside docs/.
COPIES = "repository"
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[(?P<label>[^\]]*)\]\((?P<path>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")
CODE = re.compile(r"`[^`\n]+`")
DOCSTRINGS = "<!-- docstrings of all public names -->"
PUBLIC_NAME = re.compile(r" as (\w+)$", re.MULTILINE)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds a copy of each file outside docs/ that a page, or such a copy, links to."""
    sources = [DOCS / page.src_uri for page in files.documentation_pages()]
    for source in sources:  # grows while it is read
        if source.suffix != ".md":
            continue
        for target in _targets(source):
            if target.is_file() and not files.get_file_from_path(_place(target)):
                files.append(_copy(target, config))
                sources.append(target)
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Points links at the copies, by the titles of pages; puts docstrings in their places."""
    source = Path(page.file.abs_src_path or "")

    def point(link: re.Match[str]) -> str:
        target = _resolve(source, link["path"])
        if target.is_dir():
            return link["label"]  # the site has no page for a folder
        is_bare = link["label"] == link["path"] and target.is_file()
        label = _title(target) if is_bare else link["label"]
        start = str(Path(page.file.src_uri).parent)
        return f"[{label}]({os.path.relpath(_place(target), start)}{link['anchor'] or ''})"

    def convert(prose: str) -> str:
        # In a table a git host needs `a \| b` for `a | b`, and mkdocs would show the backslash.
        prose = CODE.sub(lambda code: code[0].replace(r"\|", "|"), prose)
        return LINK.sub(point, prose).replace(DOCSTRINGS, _docstrings())

    parts = FENCE.split(markdown)
    return "".join(part if part.startswith("```") else convert(part) for part in parts)


def _docstrings() -> str:
    """One directive of mkdocstrings for each public name, in alphabetical order."""
    stub = (ROOT / "bert_features" / "__init__.pyi").read_text(encoding="utf-8")
    return "\n\n".join(f"::: bert_features.{name}" for name in sorted(PUBLIC_NAME.findall(stub)))


def _copy(source: Path, config: MkDocsConfig) -> File:
    return File.generated(
        config,
        _place(source),
        abs_src_path=str(source),
        inclusion=InclusionLevel.NOT_IN_NAV,
    )


def _targets(source: Path) -> list[Path]:
    prose = FENCE.sub("", source.read_text(encoding="utf-8"))
    return [_resolve(source, link["path"]) for link in LINK.finditer(prose)]


def _title(page: Path) -> str:
    """The first heading of a page: on a site, its file name says little."""
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _resolve(source: Path, link: str) -> Path:
    return Path(os.path.normpath(source.parent / link))


def _place(path: Path) -> str:
    """The path of a file of the repository in the site's sources."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return f"{COPIES}/{path.relative_to(ROOT).as_posix()}"

"""Adds the links of a project to the files that a release is built from.

    python scripts/add_links.py https://github.com/OWNER/NAME TAG FOLDER

`setup.cfg` in FOLDER gets `project_urls`. The links in `README.md` to files of the repository
become their addresses at TAG, since PyPI shows README.md alone. `scripts/release.sh` runs it on a
copy.
"""

import re
import sys
from pathlib import Path

PAGES = {
    "Source": "",
    "Documentation": "/blob/{tag}/docs/README.md",
    "Changelog": "/blob/{tag}/CHANGELOG.md",
    "Issues": "/issues",
}
_LINK = re.compile(r"(!?)(\[[^\]]*\]\()(?!https?:|#)([^)\s]+)")


def with_addresses(text: str, repository: str, tag: str) -> str:
    """Markdown whose relative links are addresses; those of images name the file itself."""

    def address(match: re.Match[str]) -> str:
        is_image, label, path = match.groups()
        kind = "raw" if is_image else "blob"
        return f"{is_image}{label}{repository}/{kind}/{tag}/{path}"

    return _LINK.sub(address, text)


def with_project_urls(setup: str, repository: str, tag: str) -> str:
    """The text of `setup.cfg` with `project_urls`."""
    lines = [f"    {name} = {repository}{page.format(tag=tag)}" for name, page in PAGES.items()]
    return setup.replace("[metadata]\n", "\n".join(["[metadata]", "project_urls =", *lines, ""]), 1)


def main() -> None:
    """Changes the two files."""
    repository, tag, folder = sys.argv[1:]
    for name, change in (("README.md", with_addresses), ("setup.cfg", with_project_urls)):
        path = Path(folder, name)
        path.write_text(change(path.read_text("utf-8"), repository, tag), "utf-8")


if __name__ == "__main__":
    main()

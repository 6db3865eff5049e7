"""scripts/release.sh: what it refuses before it builds. It checks what it built itself."""

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the files that the script reads before it builds."""
    folder = tmp_path / "checkout"
    (folder / "scripts").mkdir(parents=True)
    for name in ("scripts/release.sh", "setup.cfg"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "CHANGELOG.md").write_text("# Changes\n\n## Unreleased\n")
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "-m", "x"]):
        subprocess.run([*GIT, *command], cwd=folder, check=True)
    return folder


def refusal(checkout: Path) -> str:
    ran = subprocess.run(
        ["bash", checkout / "scripts" / "release.sh", checkout / "dist"],
        env=os.environ | {"PYTHON": sys.executable},
        text=True,
        capture_output=True,
    )
    assert (ran.returncode, (checkout / "dist").exists()) == (1, False)
    return ran.stderr


def test_a_version_without_a_section_is_refused(checkout: Path) -> None:
    assert refusal(checkout).startswith("release.sh: CHANGELOG.md has no section '## ")


def test_uncommitted_changes_are_refused(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text("# Changes\n")
    assert "uncommitted changes; commit them first:  M CHANGELOG.md" in refusal(checkout)


def test_a_tag_of_another_version_is_refused(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text(f"# Changes\n\n## {version()}\n")
    for command in (["commit", "--quiet", "--all", "-m", "x"], ["tag", "v0.0.1"]):
        subprocess.run([*GIT, *command], cwd=checkout, check=True)
    assert f"tag of this commit is v0.0.1, but setup.cfg has version {version()}" in refusal(
        checkout
    )


def test_links_of_a_release_are_addresses_and_the_checkout_keeps_its_own(tmp_path: Path) -> None:
    for name in ("README.md", "setup.cfg"):
        shutil.copy(ROOT / name, tmp_path / name)
    script = ROOT / "scripts" / "add_links.py"
    subprocess.run(
        [sys.executable, script, "https://example.org/a/b", "v1", tmp_path], check=True, cwd="/"
    )
    readme = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "](docs/" not in readme
    paths = re.findall(r"\]\(https://example.org/a/b/(?:blob|raw)/v1/([^)#]+)", readme)
    assert len(paths) > 10
    assert all((ROOT / path).exists() for path in paths)
    assert "](https://example.org/a/b/raw/v1/docs/images/word.svg)" in readme
    setup = configparser.ConfigParser()
    setup.read(tmp_path / "setup.cfg", encoding="utf-8")
    urls = dict(line.split(" = ") for line in setup["metadata"]["project_urls"].split("\n") if line)
    assert urls["Changelog"] == "https://example.org/a/b/blob/v1/CHANGELOG.md"
    assert setup["metadata"]["name"] == "bert_features"


def version() -> str:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    return setup["metadata"]["version"]


def test_the_wheel_gets_every_file_of_the_package() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    package = ROOT / "bert_features"
    patterns = setup["options.package_data"]["bert_features"].split()
    found = {path for pattern in patterns for path in package.glob(pattern)}
    files = {path for path in package.rglob("*") if path.is_file()}
    left_out = {path for path in files - found if path.suffix not in (".py", ".pyc", ".md")}
    assert left_out == set()


def test_one_file_states_the_version() -> None:
    stated = re.compile(r"""(?m)^\s*(__version__|version)\s*=\s*["']?\d""")
    files = [path for kind in ("toml", "cfg", "py", "yml") for path in ROOT.glob(f"*.{kind}")]
    files += [path for path in (ROOT / "bert_features").rglob("*.py*") if path.suffix != ".pyc"]
    assert [path.name for path in files if stated.search(path.read_text())] == ["setup.cfg"]

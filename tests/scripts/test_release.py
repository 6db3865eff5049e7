"""scripts/release.sh: the wheel and the source distribution hold what a user needs, and run.

A copy of this repository is released under another version, which only setup.cfg and CHANGELOG.md
state.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = "98.7.6"
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org")
# Where they are in the repository, a reader of the code needs them; a user of the wheel does not.
NOT_IN_THE_WHEEL = re.compile(r".*\.md")
# Tools read them in a checkout alone.
NOT_IN_THE_SOURCES = re.compile(r"\.ci/.*|\.gitignore|MANIFEST\.in")


def tracked_files(root: Path) -> list[str]:
    """The files of a checkout, with new ones that git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, text=True, capture_output=True)
    if listed.returncode:
        pytest.skip("a release is made from a git checkout")
    return [name for name in listed.stdout.splitlines() if (root / name).is_file()]


def copy_repository(to: Path, *, version: str) -> None:
    for name in tracked_files(ROOT):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, to / name)
    settings = (to / "setup.cfg").read_text()
    (to / "setup.cfg").write_text(re.sub(r"(?m)^version = .*$", f"version = {version}", settings))
    commit(to)


def commit(folder: Path) -> None:
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "-m", "x"]):
        subprocess.run([*GIT, *command], cwd=folder, check=True)


def release(checkout: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", checkout / "scripts" / "release.sh", folder],
        env=os.environ | {"PYTHON": sys.executable},
        text=True,
        capture_output=True,
    )


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what a release of this repository uploads."""
    checkout, folder = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("released")
    copy_repository(checkout, version=VERSION)
    early = release(checkout, folder)
    assert early.stderr.startswith(f"release.sh: CHANGELOG.md has no section '## {VERSION}'; ")
    assert (early.returncode, list(folder.iterdir())) == (1, [])
    with (checkout / "CHANGELOG.md").open("a") as changelog:
        changelog.write(f"\n## {VERSION}\n")
    uncommitted = release(checkout, folder)
    assert "uncommitted changes; commit them first:  M CHANGELOG.md" in uncommitted.stderr
    commit(checkout)
    made = release(checkout, folder)
    if "from versions: none" in made.stderr:
        pytest.skip("no package registry to install setuptools from")
    assert made.returncode == 0, made.stderr
    assert f"bert_features-{VERSION}.tar.gz\n" in made.stdout
    return folder


def wheel(folder: Path) -> Path:
    return folder / f"bert_features-{VERSION}-py3-none-any.whl"


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(released: Path) -> None:
    names = {n for n in zipfile.ZipFile(wheel(released)).namelist() if ".dist-info/" not in n}
    package = {name for name in tracked_files(ROOT) if name.startswith("bert_features/")}
    assert names == {name for name in package if not NOT_IN_THE_WHEEL.fullmatch(name)}
    assert {"bert_features/py.typed", "bert_features/__init__.pyi"} < names
    assert "bert_features/config/presets/minilm.toml" in names


@pytest.mark.slow
def test_the_sources_hold_every_file_of_the_repository(released: Path) -> None:
    with tarfile.open(released / f"bert_features-{VERSION}.tar.gz") as sources:
        names = {m.name.partition("/")[2] for m in sources.getmembers() if m.isfile()}
    made = {name for name in names if name == "PKG-INFO" or ".egg-info/" in name}
    tracked = {name for name in tracked_files(ROOT) if not NOT_IN_THE_SOURCES.fullmatch(name)}
    assert names - made - {"MANIFEST.in"} == tracked


@pytest.mark.slow
def test_the_wheel_extracts_features(released: Path, tmp_path: Path) -> None:
    """From a folder of its own, which is the first on the path."""
    package = tmp_path / "package"
    zipfile.ZipFile(wheel(released)).extractall(package)
    (tmp_path / "texts.txt").write_text("A bank.\n")
    extract = ["extract", "texts.txt", "--output", "features.npz", "--config", "pogiatzis"]
    ran = subprocess.run(
        [sys.executable, "-m", "bert_features", *extract],
        env=os.environ | {"PYTHONPATH": str(package)},
        cwd=tmp_path,
        text=True,
        capture_output=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "features.npz").is_file()


def test_one_file_states_the_version() -> None:
    stated = re.compile(r"""(?m)^\s*(__version__|version)\s*=\s*["']?\d""")
    files = [path for kind in ("toml", "cfg", "py", "yml") for path in ROOT.glob(f"*.{kind}")]
    files += [path for path in (ROOT / "bert_features").rglob("*.py*") if path.suffix != ".pyc"]
    assert [path.name for path in files if stated.search(path.read_text())] == ["setup.cfg"]

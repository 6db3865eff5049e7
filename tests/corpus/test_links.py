"""Links in a features folder, which may come from anyone: a run writes nothing through them."""

import shutil

import pytest

from bert_features import extract
from bert_features.corpus.job import repair
from bert_features.errors import OutputError
from tests.corpus.runs import extract_until

PART = "part-00003-of-00004"
PARTIAL = f".{PART}.npz.0123abcd.partial"


def contents(folder):
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}


@pytest.fixture
def victim(tmp_path):
    """A folder that no run may change."""
    victim = tmp_path / "victim"
    (victim / "older" / f"{PART}.npz").mkdir(parents=True)
    (victim / "file").write_text("precious")
    return victim


def stopped_run(config, texts, out, format, **settings):
    extract_until(13, config(format=format, **settings), texts, f"{out}/")


@pytest.mark.parametrize(
    ("name", "to", "format", "refused"),
    [
        (".running", "file", "npz", None),
        (".running", "absent", "npz", None),
        (".lock", "file", "npz", "Too many levels of symbolic links"),
        (".finished", "", "npz", r"\.finished: it is a symbolic link, .*; remove it"),
        (".finished/00003.json", "file", "npz", r"cannot read .*00003\.json: it is dam"),
        (f"{PART}.npz", "file", "npz", r"00004\.npz: it is a symbolic link"),
        (f"{PART}.npz", "absent", "npz", r"00004\.npz: it is a symbolic link"),
        (f"{PART}.jsonl.metadata.json", "file", "jsonl", "is a symbolic link"),
        (f"{PART}.jsonl.metadata.json", "absent", "jsonl", "is a symbolic link"),
        (PARTIAL, "", "npz", None),
        (f"{PARTIAL}/older", "older", "npz", None),
        (f"{PARTIAL}/lock", "file", "npz", None),
    ],
)
@pytest.mark.usefixtures("quick")
def test_a_resumed_run_follows_none(config, texts, tmp_path, victim, name, to, format, refused):
    stopped_run(config, texts, tmp_path / "out", format)
    before, link = contents(victim), tmp_path / "out" / name
    if name == ".finished":
        shutil.rmtree(link)
    link.unlink(missing_ok=True)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(victim / to)
    if refused is None:
        extract(config(format=format), texts, f"{tmp_path}/out/")
    else:
        with pytest.raises(OutputError, match=refused):
            extract(config(format=format), texts, f"{tmp_path}/out/")
    assert contents(victim) == before


@pytest.mark.parametrize("settings", [{}, {"dedupe": True}])
def test_the_manifest_is_no_link(config, texts, tmp_path, victim, settings):
    stopped_run(config, texts, tmp_path / "out", "npz", dedupe=bool(settings))
    (manifest,) = (tmp_path / "out").glob("*manifest.json")
    manifest.rename(victim / "moved")
    manifest.symlink_to(victim / "moved")
    before, changed = contents(victim), victim.stat().st_mtime_ns
    with pytest.raises(OutputError, match=r"manifest\.json"):
        extract(config(format="npz", **settings), texts, f"{tmp_path}/out/")
    assert (contents(victim), victim.stat().st_mtime_ns) == (before, changed)


@pytest.mark.usefixtures("quick")
def test_repair_follows_none(config, texts, tmp_path, victim):
    extract(config(format="npz"), texts, f"{tmp_path}/out/")
    (tmp_path / "out" / f"{PART}.npz").unlink()
    (tmp_path / "out" / f"{PART}.npz").symlink_to(victim / "file")
    with pytest.raises(OutputError, match=r"00004\.npz: it is a symbolic link"):
        repair(tmp_path / "out")
    assert (victim / "file").read_text() == "precious"


@pytest.mark.usefixtures("quick")
def test_overwrite_removes_links_alone(config, texts, tmp_path, victim):
    extract(config(format="npz"), texts, f"{tmp_path}/out/")
    before = contents(victim)
    for name, to in ((".finished", ""), (f"{PART}.npz", "file"), (PARTIAL, "")):
        (tmp_path / "out" / name).unlink(missing_ok=True)
        (tmp_path / "out" / name).symlink_to(victim / to)
    extract(config(format="npz"), texts, f"{tmp_path}/out/", overwrite=True)
    assert contents(victim) == before
    assert not any(path.is_symlink() for path in (tmp_path / "out").iterdir())

"""Files that appear whole or not at all, and what killed runs leave."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bert_features.errors import CheckpointError, OutputError
from bert_features.files import (
    Staging,
    check_target,
    real_target,
    remove_leftovers,
    replacing,
    write_whole,
)
from bert_features.files.staging import _SteadyFile, find_leftovers


def contents(folder):
    """Path below the folder -> bytes, or None for a folder."""
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
    }


def stage(*targets, text="new", **options):
    staging = Staging(targets, **options)
    for target in targets:
        staging.create(staging.path(target)).write(text.encode())
    return staging


def refuse_replacing(monkeypatch, target):
    """Makes the renaming to one path fail."""
    rename = Path.replace

    def replace(path, to):
        if Path(to) == target:
            raise OSError(5, os.strerror(5))
        return rename(path, to)

    monkeypatch.setattr(Path, "replace", replace)


class TestStaging:
    def test_a_group_appears_at_once(self, tmp_path):
        side, main = tmp_path / "side", tmp_path / "main"
        staging = stage(side, main)
        staging.scratch("column").write_text("scratch")
        assert not side.exists()
        assert not main.exists()
        assert staging.commit() == 6
        assert contents(tmp_path) == {"side": b"new", "main": b"new"}
        staging.discard()
        assert contents(tmp_path) == {"side": b"new", "main": b"new"}

    def test_nothing_is_left_of_what_is_discarded(self, tmp_path):
        (tmp_path / "main").write_text("old")
        staging = stage(tmp_path / "side", tmp_path / "main", overwrite=True)
        staging.discard()
        staging.discard()
        assert contents(tmp_path) == {"main": b"old"}

    @pytest.mark.parametrize("older", [True, False])
    @pytest.mark.parametrize("links", [True, False])
    def test_a_group_that_fails_leaves_what_was_there(self, tmp_path, monkeypatch, older, links):
        side, main = tmp_path / "side", tmp_path / "main"
        if older:
            side.write_text("old side")
            main.write_text("old main")
        before = contents(tmp_path)
        if not links:
            monkeypatch.setattr(os, "link", no_links)
        refuse_replacing(monkeypatch, main)
        staging = stage(side, main, overwrite=True)
        with pytest.raises(OSError, match="Input/output error"):
            staging.commit()
        staging.discard()
        assert contents(tmp_path) == before

    def test_the_order_is_the_one_stated(self, tmp_path, monkeypatch):
        placed = []
        rename = Path.replace
        monkeypatch.setattr(Path, "replace", lambda a, b: placed.append(b.name) or rename(a, b))
        stage(*(tmp_path / name for name in "bac"), overwrite=True).commit()
        assert placed == ["b", "a", "c"]

    def test_what_fails_after_the_renaming_fails_nothing(self, tmp_path, monkeypatch):
        def fail(*arguments, **options):
            raise OSError(5, os.strerror(5))

        staging = stage(tmp_path / "f")
        release = staging._lock.release
        monkeypatch.setattr(staging._lock, "release", lambda: release() or fail())
        monkeypatch.setattr(shutil, "rmtree", fail)  # of a `close`
        assert staging.commit() == 3
        monkeypatch.undo()
        stage(tmp_path / "f", overwrite=True).commit()
        assert contents(tmp_path) == {"f": b"new"}

    @pytest.mark.parametrize("folder", [True, False])
    def test_folders_are_brought_to_the_disk_too(self, tmp_path, monkeypatch, folder):
        synced, sync = [], os.fsync

        def note(file):
            synced.append(Path(f"/proc/self/fd/{file}").readlink())
            sync(file)

        monkeypatch.setattr(os, "fsync", note)
        if folder:
            replace_folder(tmp_path / "f")
            *before, last = synced
            assert {path.name for path in before} == {"f", "half"}
        else:
            stage(tmp_path / "f").commit()
            *_, last = synced
        assert last == tmp_path

    def test_two_runs_never_share_a_file(self, tmp_path):
        target = tmp_path / "f"
        one, two = stage(target, text="one", overwrite=True), stage(target, text="two")
        assert one.path(target) != two.path(target)
        one.commit()
        with pytest.raises(OutputError, match="overwrite"):
            two.commit()
        two.discard()
        assert contents(tmp_path) == {"f": b"one"}

    @pytest.mark.parametrize("links", [True, False])
    def test_what_appears_last_of_all_is_kept(self, tmp_path, monkeypatch, links):
        """Another run puts its file in place between this one's last look and its renaming."""
        target = tmp_path / "f"
        staging = stage(target)
        if not links:
            monkeypatch.setattr(os, "link", no_links)
        check = staging._check
        monkeypatch.setattr(staging, "_check", lambda: (check(), target.write_text("other")))
        with pytest.raises(OutputError, match="overwrite"):
            staging.commit()
        staging.discard()
        assert contents(tmp_path) == {"f": b"other"}

    def test_a_file_that_cannot_be_written_keeps_its_failure(self, tmp_path):
        staging = Staging([tmp_path / "f"])
        staging.path(tmp_path / "f").symlink_to("/dev/full")
        raw = _SteadyFile(staging.path(tmp_path / "f"), "r+b")
        assert raw.write(b"abc") == 3
        assert raw.write(b"abc") == 3
        assert raw.truncate(7) == 7
        assert "No space left" in str(raw.failure)
        raw.close()
        staging.discard()

    def test_the_longest_name_that_is_allowed(self, tmp_path):
        target = tmp_path / ("ü" * 127)
        stage(target).commit()
        assert contents(tmp_path) == {target.name: b"new"}

    def test_file_systems_without_locks(self, tmp_path, monkeypatch):
        def acquire(lock, *, timeout):
            raise OSError(37, "No locks available")

        monkeypatch.setattr("filelock.FileLock.acquire", acquire)
        staging = stage(tmp_path / "f")
        remove_leftovers(tmp_path / "f")
        staging.commit()
        assert contents(tmp_path) == {"f": b"new"}

    @pytest.mark.parametrize("links", [True, False])
    def test_a_folder_taken_for_a_leftover_as_it_is_made(self, tmp_path, monkeypatch, links):
        """Another run's `remove_leftovers` comes between the making of a folder and its lock."""
        make, made = Path.mkdir, []

        def mkdir(path, *arguments, **options):
            make(path, *arguments, **options)
            made.append(path)
            if len(made) == 1:
                remove_leftovers(tmp_path / "f")
                if links:
                    make(path)  # as if it were half removed

        monkeypatch.setattr(Path, "mkdir", mkdir)
        stage(tmp_path / "f").commit()
        assert (tmp_path / "f").read_text() == "new"


def no_links(*arguments):
    raise PermissionError(1, "Operation not permitted")


def old_folder(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "old").write_text("old")
    return contents(tmp_path)


def replace_folder(target, *, error=None):
    with replacing(target, overwrite=True, folder=True) as new:
        new.mkdir()
        (new / "half").write_text("half")
        if error:
            raise error


class TestReplacing:
    def test_a_folder(self, tmp_path):
        target = tmp_path / "deep" / "folder"
        for text in ("one", "two"):
            with replacing(target, overwrite=text == "two", folder=True) as new:
                new.mkdir()
                (new / "in").mkdir()
                (new / "in" / text).write_text(text)
        assert contents(tmp_path / "deep") == {
            "folder": None,
            "folder/in": None,
            "folder/in/two": b"two",
        }

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
    def test_an_exception_leaves_what_was_there(self, tmp_path, error):
        before = old_folder(tmp_path)
        with pytest.raises(error):
            replace_folder(tmp_path / "folder", error=error)
        assert contents(tmp_path) == before

    def test_a_renaming_that_fails_brings_the_old_folder_back(self, tmp_path, monkeypatch):
        def fail(staging, target):
            assert not target.exists()
            raise OSError(5, os.strerror(5))

        before = old_folder(tmp_path)
        monkeypatch.setattr(Staging, "_put", fail)
        with pytest.raises(OutputError, match="Input/output error"):
            replace_folder(tmp_path / "folder")
        assert contents(tmp_path) == before

    @pytest.mark.parametrize("last_of_all", [True, False])
    def test_a_folder_that_appears_meanwhile_is_kept(self, tmp_path, monkeypatch, last_of_all):
        """Another run puts its folder in place, perhaps after this one's last look."""
        staging = Staging([tmp_path / "folder"], folder=True, error=CheckpointError)
        staging.path(tmp_path / "folder").mkdir()
        check = staging._check
        if last_of_all:
            monkeypatch.setattr(staging, "_check", lambda: (check(), old_folder(tmp_path)))
        else:
            old_folder(tmp_path)
        with pytest.raises(CheckpointError, match="overwrite"):
            staging.commit()
        staging.discard()
        assert contents(tmp_path) == {"folder": None, "folder/old": b"old"}

    def test_every_failure_or_those_of_the_disk_alone(self, tmp_path):
        def write(failure, **report):
            with replacing(tmp_path / "f", overwrite=True, **report):
                raise failure

        with pytest.raises(ValueError, match="odd"):
            write(ValueError("odd"))
        with pytest.raises(OutputError, match="/f: odd thing;"):
            write(ValueError("odd\nthing"), every=True)
        with pytest.raises(OutputError, match="/f: KeyError;"):
            write(KeyError(), every=True)
        with pytest.raises(CheckpointError, match="No space left on device"):
            write(OSError(28, os.strerror(28)), error=CheckpointError, advice="make room")
        assert contents(tmp_path) == {}

    def test_a_small_file_of_another_class(self, tmp_path, monkeypatch):
        report = {"error": CheckpointError, "advice": "make room"}
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        with pytest.raises(CheckpointError, match=r"f: the .*; make room$"):
            write_whole(tmp_path / "f", "x", **report)
        monkeypatch.undo()
        monkeypatch.setattr(os, "fsync", lambda file: exec("raise OSError(28, 'full')"))
        with pytest.raises(CheckpointError, match=r"f: full; make room$"):
            write_whole(tmp_path / "f", "x", **report)
        monkeypatch.undo()
        (tmp_path / "link").symlink_to("real")
        for text in "xä":
            write_whole(tmp_path / "link", text)
        assert contents(tmp_path) == {"link": "ä".encode(), "real": "ä".encode()}
        assert (tmp_path / "link").is_symlink()


def raise_interrupt(*arguments, **options):
    raise KeyboardInterrupt


class TestCtrlC:
    """Ctrl-C comes right after the Nth renaming or linking, before its caller learns of it."""

    @staticmethod
    def interrupt(monkeypatch, owner, name, count):
        wrapped, left = getattr(owner, name), [count]

        def call(*arguments, **options):
            wrapped(*arguments, **options)
            left[0] -= 1
            if left[0] < 0:
                monkeypatch.setattr(owner, name, wrapped)
                raise KeyboardInterrupt

        monkeypatch.setattr(owner, name, call)

    @pytest.mark.parametrize(("count", "whole"), [(0, "old"), (1, "half")])
    def test_a_folder(self, tmp_path, monkeypatch, count, whole):
        old_folder(tmp_path)
        self.interrupt(monkeypatch, Path, "replace", count)
        with pytest.raises(KeyboardInterrupt):
            replace_folder(tmp_path / "folder")
        assert contents(tmp_path) == {"folder": None, f"folder/{whole}": whole.encode()}

    @pytest.mark.parametrize("older", [True, False])
    @pytest.mark.parametrize(("count", "text"), [(0, "old"), (1, "new")])
    def test_files(self, tmp_path, monkeypatch, older, count, text):
        targets = [tmp_path / "side", tmp_path / "main"]
        if older:
            for target in targets:
                target.write_text("old")
        staging = stage(*targets, overwrite=True)
        self.interrupt(monkeypatch, Path, "replace", count)
        with pytest.raises(KeyboardInterrupt):
            staging.commit()
        staging.discard()
        there = {"side": text.encode(), "main": text.encode()}
        assert contents(tmp_path) == (there if older or text == "new" else {})

    @pytest.mark.parametrize("count", [0, 1])
    def test_files_that_are_linked_into_place(self, tmp_path, monkeypatch, count):
        staging = stage(tmp_path / "side", tmp_path / "main")
        self.interrupt(monkeypatch, os, "link", count)
        with pytest.raises(KeyboardInterrupt):
            staging.commit()
        staging.discard()
        assert contents(tmp_path) == ({"side": b"new", "main": b"new"} if count else {})

    def test_while_the_hidden_folder_is_locked(self, tmp_path, monkeypatch):
        monkeypatch.setattr("filelock.FileLock.acquire", raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            Staging([tmp_path / "main"])
        assert contents(tmp_path) == {}

    @pytest.mark.parametrize("count", [0, 1, 2])
    def test_as_a_hidden_folder_is_made(self, tmp_path, monkeypatch, count):
        self.interrupt(monkeypatch, Path, "mkdir", count)
        with pytest.raises(KeyboardInterrupt):
            Staging([tmp_path / "main"])
        assert contents(tmp_path) == {}

    def test_an_old_folder_that_cannot_be_put_back_stays(self, tmp_path, monkeypatch):
        old_folder(tmp_path)
        staging = Staging([tmp_path / "folder"], overwrite=True, folder=True)
        staging.path(tmp_path / "folder").mkdir()
        with monkeypatch.context() as patch:
            refuse_replacing(patch, tmp_path / "folder")
            for end in (staging.commit, staging.discard):
                with pytest.raises(OSError, match="Input/output error"):
                    end()
        staging.discard()
        assert contents(tmp_path) == {"folder": None, "folder/old": b"old"}


# A run that is killed at one of its calls of a function, the Nth.
KILLED = """
import os, signal, sys
from pathlib import Path
from bert_features.files import Staging

folder, owner, name, count = Path(sys.argv[1]), *sys.argv[2:4], int(sys.argv[4])
owner = {"Path": Path, "os": os}[owner]
wrapped = getattr(owner, name)

def kill(*arguments):
    global count
    count -= 1
    if count < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return wrapped(*arguments)

targets = [folder / "side", folder / "main"] if sys.argv[5] == "files" else [folder / "main"]
staging = Staging(targets, overwrite=True, folder=sys.argv[5] == "folder")
for target in targets:
    if sys.argv[5] == "folder":
        staging.path(target).mkdir()
        (staging.path(target) / "in").write_text("new")
    else:
        staging.create(staging.path(target)).write(b"new")
setattr(owner, name, kill)
staging.commit()
"""


def kill_at(folder, owner, name, count, kind):
    command = [sys.executable, "-c", KILLED, str(folder), owner, name, str(count), kind]
    return subprocess.run(command, check=False).returncode


def hidden(folder):
    return [path for path in folder.iterdir() if path.name.startswith(".")]


class TestLeftovers:
    @pytest.mark.parametrize(
        ("owner", "name", "count"),
        [("os", "fsync", 0), ("os", "link", 0), ("Path", "replace", 0), ("Path", "replace", 1)],
    )
    def test_files_of_a_killed_run_are_removed(self, tmp_path, caplog, owner, name, count):
        caplog.set_level("INFO", logger="bert_features")
        for file in ("side", "main"):
            (tmp_path / file).write_text("old")
        assert kill_at(tmp_path, owner, name, count, "files") == -signal.SIGKILL
        (leftover,) = hidden(tmp_path)
        assert re.fullmatch(r"\.main\.\w{8}\.partial", leftover.name)
        # Both files are there at any time, each of them whole.
        assert (tmp_path / "side").read_text() == ("new" if count == 1 else "old")
        assert (tmp_path / "main").read_text() == "old"
        stage(tmp_path / "side", tmp_path / "main", overwrite=True, text="third").commit()
        assert contents(tmp_path) == {"side": b"third", "main": b"third"}
        assert caplog.messages == [f"removed {leftover}, which a killed run had left"]

    @pytest.mark.parametrize("count", [0, 1])
    def test_a_folder_that_was_moved_aside_comes_back(self, tmp_path, count):
        target = tmp_path / "main"
        target.mkdir()
        (target / "in").write_text("old")
        before = contents(tmp_path)
        assert kill_at(tmp_path, "Path", "replace", count, "folder") == -signal.SIGKILL
        assert target.exists() == (count == 0)
        remove_leftovers(target)
        assert contents(tmp_path) == before

    def test_a_living_run_keeps_its_files(self, tmp_path):
        staging = stage(tmp_path / "f")
        remove_leftovers(tmp_path / "f")
        check = "import sys; from pathlib import Path; from bert_features import files;"
        check += "files.remove_leftovers(Path(sys.argv[1]))"
        subprocess.run([sys.executable, "-c", check, str(tmp_path / "f")], check=True)
        staging.commit()
        assert contents(tmp_path) == {"f": b"new"}

    def test_leftovers_of_other_targets_stay(self, tmp_path):
        names = [".g.abcd1234.partial", ".f.g.abcd1234.partial", ".f.abcd1234", ".f.abc.partial"]
        for name in names:
            (tmp_path / name).mkdir()
        remove_leftovers(tmp_path / "f")
        assert sorted(contents(tmp_path)) == sorted(names)

    @pytest.mark.parametrize("link", [".folder.abcd1234.partial", ".folder.abcd1234.partial/older"])
    def test_a_link_in_the_place_of_a_leftover_stays(self, tmp_path, link):
        """No run makes one: it may lead to folders of somebody else."""
        (tmp_path / "elsewhere/folder").mkdir(parents=True)
        (tmp_path / "elsewhere/older").symlink_to(".")
        (tmp_path / link).parent.mkdir(exist_ok=True)
        (tmp_path / link).symlink_to(tmp_path / "elsewhere")
        before = contents(tmp_path)
        remove_leftovers(tmp_path / "folder")
        assert contents(tmp_path) == before


class TestTargets:
    @pytest.mark.parametrize("folder", [True, False])
    def test_what_may_not_be_replaced(self, tmp_path, folder):
        target = tmp_path / "x"
        target.mkdir() if folder else target.write_text("")
        check_target(target, overwrite=True, folder=folder)
        with pytest.raises(CheckpointError, match="overwrite"):
            check_target(target, overwrite=False, folder=folder, error=CheckpointError)
        other = "is not a directory" if not folder else "is a directory"
        with pytest.raises(OutputError, match=f"x {other}"):
            check_target(target, overwrite=True, folder=not folder)

    def test_a_symbolic_link_leads_to_its_file(self, tmp_path):
        (tmp_path / "real").write_text("old")
        (tmp_path / "link").symlink_to("real")
        assert real_target(tmp_path / "link") == tmp_path / "real"
        assert real_target("relative") == Path.cwd() / "relative"
        with pytest.raises(OutputError, match="overwrite"):
            check_target(real_target(tmp_path / "link"), overwrite=False)
        stage(real_target(tmp_path / "link"), overwrite=True).commit()
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "real").read_text() == "new"

    def test_a_symbolic_link_leads_to_its_folder(self, tmp_path):
        old_folder(tmp_path)
        (tmp_path / "link").symlink_to("folder")
        replace_folder(tmp_path / "link")
        assert (tmp_path / "link").readlink() == Path("folder")
        assert [path.name for path in (tmp_path / "folder").iterdir()] == ["half"]
        (tmp_path / "dangling").symlink_to("absent")
        replace_folder(tmp_path / "dangling")
        assert [path.name for path in (tmp_path / "absent").iterdir()] == ["half"]

    def test_links_that_lead_nowhere(self, tmp_path):
        (tmp_path / "dangling").symlink_to("absent")
        stage(real_target(tmp_path / "dangling")).commit()
        assert (tmp_path / "absent").read_text() == "new"
        (tmp_path / "loop").symlink_to("loop")
        with pytest.raises(OutputError, match="loop is a symbolic link"):
            check_target(real_target(tmp_path / "loop"), overwrite=True)


def test_the_targets_of_hidden_folders_are_found(tmp_path):
    (tmp_path / ".other.npz").touch()
    staging = stage(tmp_path / "side", tmp_path / "main.npz")
    assert find_leftovers(tmp_path) == {tmp_path / "main.npz"}
    staging.discard()
    assert find_leftovers(tmp_path) == set()

"""What is read is never what is written."""

import os
from pathlib import Path

import pytest

from bert_features.errors import OutputError
from bert_features.files import check_apart
from bert_features.files.targets import check_target


class TestApart:
    """What is read is never what is written."""

    @pytest.fixture
    def read(self, tmp_path):
        """A file that is read, and two links that lead to it."""
        (tmp_path / "in").write_text("text")
        (tmp_path / "symbolic").symlink_to("in")
        (tmp_path / "hard").hardlink_to(tmp_path / "in")
        return tmp_path / "in"

    @pytest.mark.parametrize("name", ["in", "x/../in", "symbolic", "hard"])
    def test_the_same_file_by_any_name(self, read, tmp_path, name):
        message = rf"^the input and the output are the same file, .*{name}; pass another path for "
        (tmp_path / "x").mkdir()
        for one, other in [(read, tmp_path / name), (tmp_path / name, read)]:
            with pytest.raises(OutputError, match=message if other != read else "same file"):
                check_apart([("the input", str(one))], [("the output", other)])

    def test_the_same_file_by_a_descriptor(self, read):
        with read.open() as file, pytest.raises(OutputError, match="input and output"):
            check_apart([("input", file.fileno())], [("output", read)])
        message = "^in and out are the same file; pass another path for out$"
        with read.open() as one, read.open("a") as other, pytest.raises(OutputError, match=message):
            check_apart([("in", one.fileno())], [("out", other.fileno())])

    def test_a_terminal_may_be_both_input_and_output(self):
        device = Path("/dev/null")  # as terminals are
        with device.open() as one, device.open("w") as other:
            check_apart([("in", one.fileno())], [("out", other.fileno())])

    def test_a_descriptor_is_no_name_of_a_file(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with Path("/dev/null").open() as file:
            read = [("in", file.fileno())]
            check_apart(read, [("out", str(file.fileno()))])
            check_apart(read, [("out", tmp_path)], folder=True)

    def test_files_that_differ(self, read, tmp_path):
        other = tmp_path / "other"
        other.write_text("text")
        check_apart(
            [("a", read), ("an address", "gs://b/new"), ("a name", "x" * 300), ("no", "absent")],
            [("b", other), ("new", tmp_path / "new"), ("as the name", Path("absent"))],
        )

    def test_one_file_is_not_written_twice(self, tmp_path):
        one, other = tmp_path / "new", tmp_path / "x" / ".." / "new"
        (tmp_path / "x").mkdir()
        with pytest.raises(OutputError, match="sidecar and the ledger"):
            check_apart([], [("the sidecar", one), ("the ledger", other)])

    @pytest.mark.parametrize("name", ["folder", "folder/in", "folder/link", "to_folder/in"])
    def test_a_folder_that_holds_what_is_read(self, tmp_path, name):
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "in").write_text("text")
        (tmp_path / "to_folder").symlink_to("folder")
        (tmp_path / "out").write_text("text")
        (tmp_path / "folder" / "link").symlink_to("../out")
        read = [("the config", tmp_path / name)]
        with pytest.raises(OutputError, match="folder holds the config"):
            check_apart(read, [("the output", tmp_path / "folder")], folder=True)
        check_apart(read, [("the output", tmp_path / "other")], folder=True)


@pytest.mark.parametrize(
    ("name", "folder", "problem"),
    [
        ("new", True, None),
        ("absent/new", True, None),  # it will be made
        ("absent/new", False, "there is no folder .*absent; create it"),
        ("file/new", True, "file is not a folder"),
        ("file/new", False, "file is not a folder"),
        ("x" * 255, False, None),
        ("x" * 256, False, "has a name of 256 bytes; allowed: at most 255"),
    ],
)
def test_the_folder_of_a_target(tmp_path, name, folder, problem):
    (tmp_path / "file").touch()
    if problem is None:
        check_target(tmp_path / name, overwrite=False, folder=folder)
        return
    with pytest.raises(OutputError, match=problem):
        check_target(tmp_path / name, overwrite=False, folder=folder)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_file_system_that_gives_no_limit_allows_any_name(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(os, "pathconf", lambda folder, name: limit)
    check_target(tmp_path / "new", overwrite=False)

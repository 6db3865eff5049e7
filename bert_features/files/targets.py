"""Targets: the files and folders that a run writes, checked before it begins."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Unpack

from bert_features.errors import OutputError
from bert_features.files.addresses import is_there, is_url, local_path
from bert_features.files.reporting import Reporting, storage_errors

# The name of standard output as a target.
STDOUT = "-"
# The longest name that most file systems allow, in bytes.
_NAME_MAX = 255
# The part that a file plays in a run, as `the input`; and its path, or a descriptor that is open.
Role = tuple[str, str | Path | int]


def real_target(path: str | Path) -> Path:
    """What a path names, absolute: what a symbolic link points to, else the path itself."""
    # Not by `Path`, which raises for a name that is too long.
    local = local_path(path)
    return Path(os.path.realpath(local) if os.path.islink(local) else local)  # noqa: PTH114


def check_target(
    target: Path, *, overwrite: bool, folder: bool = False, **report: Unpack[Reporting]
) -> None:
    """Refuses a path (as `real_target` gives it) that cannot be written, or may not be replaced."""
    error = report.get("error", OutputError)
    with storage_errors(f"write {target}", **report):
        if problem := _name_problem(target) or _problem(target, folder, overwrite):
            raise error(f"{target} {problem}")
        parent = target.parent
        if folder and not parent.exists():
            return  # it will be made
        if parent.exists() and not parent.is_dir():
            raise error(f"cannot write {target}: {parent} is not a folder")
        if not parent.is_dir():
            raise error(f"cannot write {target}: there is no folder {parent}; create it")
        if not os.access(parent, os.W_OK | os.X_OK):
            raise error(
                f"cannot write {target}: the folder {parent} is not writable; "
                f"{report.get('advice', 'choose another or change its permissions')}"
            )


def _name_problem(target: Path) -> str | None:
    """Why the file system of `target` cannot hold its name; None if it can, or is not known."""
    try:
        limit = os.pathconf(target.parent, "PC_NAME_MAX")
    except (AttributeError, OSError, ValueError):  # not on this system, or there is no such folder
        limit = _NAME_MAX
    size = len(os.fsencode(target.name))
    if 0 < limit < size:
        return f"has a name of {size} bytes; allowed: at most {limit}, choose a shorter name"
    return None


def _problem(target: Path, folder: bool, overwrite: bool) -> str | None:
    """Why what is at `target` cannot be replaced; None if it can, or nothing is there."""
    try:
        target.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if target.is_symlink():
        return f"is a symbolic link; pass the path of the {'folder' if folder else 'file'} itself"
    if folder and not target.is_dir():
        return "is not a directory; pass the path of one"
    if not folder and target.is_dir():
        return "is a directory; name a file in it"
    if not folder and not target.is_file():
        return "is not a regular file; only such a file can be written"
    return None if overwrite else "exists; pass overwrite=True to replace it"


def check_apart(read: Iterable[Role], written: Iterable[Role], *, folder: bool = False) -> None:
    """Refuses to write a file or a folder over one that is read, and to write one file twice.

    Files are compared as the system sees them, through hard and symbolic links.

    Args:
      read: the files that the run reads; those that do not exist, and addresses, are passed over.
      written: the files or folders that the run writes, which need not exist.
      folder: whether they are folders, of which nothing stays.

    Raises:
      OutputError: two are the same, or a file that is read is in a folder that is written.
    """
    others = [
        (role, path)
        for role, path in read
        if isinstance(path, int) or (not is_url(path) and is_there(path))
    ]
    for role, path in written:
        for other, other_path in others:
            if _is_same_file(other_path, path):
                named = "" if isinstance(path, int) else f", {path}"
                raise OutputError(
                    f"{other} and {role} are the same file{named}; pass another path for {role}"
                )
            if folder and is_inside(other_path, path):
                raise OutputError(
                    f"{path} holds {other} ({other_path}), so it is not replaced; pass another path"
                )
        others.append((role, path))


def check_folder(folder: Path, read: Iterable[Role], *, overwrite: bool) -> Path:
    """The folder to write: of a symbolic link, what it points to.

    Refuses one that cannot be written or replaced, or that holds a file that is read: raises
    OutputError as `check_apart` and `check_target`.
    """
    target = real_target(folder)
    check_apart(read, [("the output", target)], folder=True)
    check_target(target, overwrite=overwrite, folder=True)
    return target


def _is_same_file(one: str | Path | int, other: str | Path | int) -> bool:
    try:
        first, second = os.stat(_local(one)), os.stat(_local(other))  # noqa: PTH116
    except (OSError, ValueError):  # one of them is not there yet
        if isinstance(one, int) or isinstance(other, int):
            return False
        return os.path.realpath(local_path(one)) == os.path.realpath(local_path(other))
    # Standard input and output may be the same terminal.
    return stat.S_ISREG(first.st_mode) and os.path.samestat(first, second)


def is_inside(path: str | Path | int, folder: str | Path | int) -> bool:
    """Whether a file, or the link that leads to it, is in a folder or below it."""
    if isinstance(path, int) or isinstance(folder, int):
        return False
    file, root = local_path(path), os.path.realpath(folder)
    places = (os.path.realpath(file), Path(os.path.realpath(file.parent), file.name))
    return any(Path(place).is_relative_to(root) for place in places)


def _local(path: str | Path | int) -> Any:
    return path if isinstance(path, int) else local_path(path)

"""The inputs of a run: files, addresses, globs and folders become a list of files."""

import contextlib
import glob
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from bert_features.errors import InputError, printable
from bert_features.files import connect, is_url, local_path, path_as_given
from bert_features.files.store import in_parallel
from bert_features.formats.manifest import BEGINNING_BYTES, MANIFEST, is_beginning
from bert_features.readers.contents import features_error
from bert_features.readers.opening import is_stream, reading

# What `extract` takes: an input, or several.
Inputs: TypeAlias = str | Path | Sequence[str | Path]

# An address on the web names one file, and `?` stands before its query.
WEB = ("http://", "https://")
_MOST_NAMED = 3


def find_inputs(inputs: Inputs, *, folders: bool = True) -> tuple[str, ...]:
    """The files that inputs stand for.

    A glob such as `data/*.txt` or `gs://bucket/*.jsonl` stands for the files it matches, and a
    folder for the files in it, both in sorted order and without hidden files and folders. A path
    that exists is no glob, whatever its name. Where folders are not allowed, they are left for the
    run to refuse.

    Raises:
      InputError: there is none, a glob or a folder has no files, a file is named twice, or a server
        cannot be reached.
    """
    named = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    if not named:
        raise InputError("there are no inputs; pass at least one file")
    files = [file for each in named for file in _files_of(str(each), folders)]
    _check_different(files)
    return tuple(files)


def place_of(name: str) -> str:
    """The absolute path of an input, seen from the current folder; an address as it is."""
    if name == "-" or is_url(name):
        return name
    return os.path.abspath(local_path(name))  # noqa: PTH100 - not through links


class Stamp(NamedTuple):
    """Facts that show whether an input has changed; as in `InputEntry`."""

    bytes: int
    modified_ns: int | None
    version: str | None

    @property
    def is_certain(self) -> bool:
        """Whether an input with the same stamp surely has the same content, but by intent."""
        return self.modified_ns is not None or self.version is not None


def look_up(path: str) -> Stamp:
    """The size and the version of an input.

    Raises InputError if it is gone, or its server does not say how large it is.
    """
    if not is_url(path):
        with reading(path):
            status = local_path(path).stat()
        return Stamp(status.st_size, status.st_mtime_ns, None)
    filesystem, name = connect(path, InputError)
    with reading(path):
        size = filesystem.info(name)["size"]
        # The key of a web server is made of the address alone.
        version = None if path.startswith(WEB) else str(filesystem.ukey(name))
    if size is None:
        raise InputError(
            f"{path}: its server does not report its size, so a later change would go unnoticed; "
            "download it and pass the file"
        )
    return Stamp(int(size), None, version)


def look_up_all(paths: Sequence[str]) -> list[Stamp]:
    """`look_up` of each input, in order, with the same errors; of addresses several at a time."""
    calls = in_parallel if any(map(is_url, paths)) else map
    return list(calls(look_up, paths))


def check_still(paths: Sequence[str], stamps: Sequence[Stamp]) -> None:
    """Refuses inputs that are gone or have changed since they were looked up; raises InputError."""
    for path, before, now in zip(paths, stamps, look_up_all(paths), strict=True):
        if now != before:
            raise changed_input(path)


def status_of(path: str) -> os.stat_result | None:
    """What shows that a local file is written to: its identity, size and time; else None."""
    with contextlib.suppress(OSError):
        return None if is_url(path) or is_stream(path) else local_path(path).stat()
    return None


def check_unchanged(path: str, before: os.stat_result | None) -> None:
    """Refuses a file that was written to while it was read; one that was replaced was read whole.

    Raises InputError.
    """
    now = status_of(path)
    if before is None or now is None or not os.path.samestat(before, now):
        return
    if (before.st_size, before.st_mtime_ns) != (now.st_size, now.st_mtime_ns):
        raise InputError(
            f"{path} was changed while it was read, so its examples may be of two versions; "
            "extract it again"
        )


def changed_input(path: str, cure: str = "or extract again with overwrite=True") -> InputError:
    """The error that refuses an input which is not what it was when the run began."""
    return InputError(
        f"{path} has changed since this run began, so its shards would not belong together; put "
        f"back what it was, {cure}"
    )


def name_some(names: Sequence[str]) -> str:
    """The first few of some names, for a message; anyone may have chosen them."""
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(map(printable, names[:_MOST_NAMED])) + more


def _files_of(name: str, folders: bool) -> list[str]:
    if not name:
        raise InputError("the name of an input is empty; pass a file or a folder, such as .")
    if name == "-" or name.startswith(WEB):
        return [name]
    with reading(name):
        return _remote_files(name, folders) if is_url(name) else _local_files(name, folders)


def _local_files(name: str, folders: bool) -> list[str]:
    path = path_as_given(name)
    if glob.has_magic(name) and not os.path.lexists(path):
        matches = glob.iglob(str(path), recursive=True)  # noqa: PTH207 - leaves out hidden files
        files = [match for match in matches if not Path(match).is_dir()]
        return _sorted(files, f"no file matches {name}; check the pattern and the folder")
    if not (folders and path.is_dir()):
        return [name]
    # Not a pipe, which would wait for a writer.
    if (manifest := path / MANIFEST).is_file():
        with manifest.open("rb") as file:
            _check_no_features(name, file.read(BEGINNING_BYTES))
    with os.scandir(path) as entries:
        files = [
            os.path.join(path, entry.name)  # noqa: PTH118 - as in the name, `./` included
            for entry in entries
            if not entry.is_dir() and not _is_hidden(entry.name)
        ]
    return _sorted(files, _no_files(name))


def _remote_files(name: str, folders: bool) -> list[str]:
    if not (folders or glob.has_magic(name)):
        return [name]
    filesystem, path = connect(name, InputError)
    if glob.has_magic(name) and not filesystem.exists(path):
        matches = filesystem.glob(path, detail=True).values()
        hidden = _is_hidden(path.rpartition("/")[2])
        files = _addresses(name, path, matches, hidden=hidden)
        return _sorted(files, f"no file matches {name}; check the pattern and the bucket")
    if not (folders and filesystem.isdir(path)):
        return [name]
    folder = f"{path.rstrip('/')}/"
    with contextlib.suppress(FileNotFoundError):
        manifest = filesystem.cat_file(f"{folder}{MANIFEST}", start=0, end=BEGINNING_BYTES)
        _check_no_features(name, manifest)
    files = _addresses(name, folder, filesystem.ls(path, detail=True))
    return _sorted(files, _no_files(name))


def _check_no_features(folder: str, manifest: bytes) -> None:
    if is_beginning(manifest):
        raise features_error(folder)


def _addresses(name: str, path: str, entries: Iterable[Any], *, hidden: bool = False) -> list[str]:
    """The addresses of files that a file system lists; `path` is its name for `name`."""
    # Not `unstrip_protocol`, which loses the host of servers such as sftp.
    before = name.rstrip("/").removesuffix(path.rstrip("/"))
    fixed = re.split(r"[*?[]", path, maxsplit=1)[0].rpartition("/")[0]
    return [
        before + entry["name"]
        for entry in entries
        if entry["type"] != "directory"
        # Object stores without folders have an empty object in the place of one.
        and not entry["name"].endswith("/")
        and (hidden or not any(map(_is_hidden, entry["name"].removeprefix(fixed).split("/"))))
    ]


def _sorted(files: Iterable[str], problem: str) -> list[str]:
    paths = sorted(files)
    if not paths:
        raise InputError(problem)
    return paths


def _no_files(name: str) -> str:
    return f"the folder {name} has no files (hidden ones and subfolders do not count); pass another"


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def _check_different(files: Iterable[str]) -> None:
    seen: dict[str, str] = {}
    for file in files:
        place = file if file == "-" or is_url(file) else os.path.realpath(local_path(file))
        if place in seen:
            also = "" if seen[place] == file else f", also as {seen[place]}"
            raise InputError(f"the input {file} is named twice{also}; name each file once")
        seen[place] = file

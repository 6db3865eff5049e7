"""The archive of a checkpoint, unpacked safely: plain files below it, bounded, or an error."""

import hashlib
import re
import stat
import zipfile
import zlib
from pathlib import Path
from typing import IO

from pydantic import BaseModel, ConfigDict

from bert_features.errors import CheckpointError

REQUIRED = ("vocab.txt", "bert_config.json", "bert_model.ckpt.index")
MOST_MEMBERS = 100
_DATA = re.compile(r"bert_model\.ckpt\.data-\d{5}-of-\d{5}")
_BLOCK = 1 << 18


class UnpackedFile(BaseModel):
    """A file that was unpacked.

    Attributes:
      size: its bytes.
      sha256: of them.
    """

    model_config = ConfigDict(frozen=True)

    size: int
    sha256: str


def unpack(archive: Path, folder: Path, *, most_bytes: int, source: str) -> dict[str, UnpackedFile]:
    """Unpacks the archive of a checkpoint; a single folder at its top is left out.

    Args:
      archive: the zip.
      folder: where to; must not exist. What is there when this fails is the caller's to remove.
      most_bytes: that all its files together may have.
      source: what to call it in messages.

    Returns:
      Name below `folder` -> size and hash.

    Raises:
      CheckpointError: it is not a zip, is damaged, holds anything but plain files below itself,
        too much of it, or not a checkpoint.
      OSError: `folder` cannot be written.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            members = _members(opened, most_bytes)
            files = {}
            left = most_bytes
            for name, member in members.items():
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with opened.open(member) as packed, target.open("xb") as file:
                    files[name] = _copy(packed, file, left)
                left -= files[name].size
    except _HostileError as error:
        raise CheckpointError(f"{source} is refused: {error}") from error
    # What zipfile raises of damaged archives, an encrypted or an unknown method.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"{source} is not a sound zip archive: {error}") from error
    problems = missing_files(folder) if folder.is_dir() else ["it is empty"]
    if problems:
        raise CheckpointError(f"{source} holds no BERT checkpoint: {'; '.join(problems)}")
    return files


class _HostileError(Exception):
    """Something in an archive that no published checkpoint has."""


def _members(opened: zipfile.ZipFile, most_bytes: int) -> dict[str, zipfile.ZipInfo]:
    """The files of an archive, by the names they are to have, all of them checked."""
    every = opened.infolist()
    if len(every) > MOST_MEMBERS:
        raise _HostileError(f"it holds {len(every)} members; at most {MOST_MEMBERS} are allowed")
    for member in every:
        _check_member(member)
    files = [member for member in every if not member.is_dir()]
    declared = sum(member.file_size for member in files)
    if declared > most_bytes:
        raise _HostileError(f"it unpacks to {declared:,} bytes; at most {most_bytes:,} are allowed")
    tops = {member.filename.partition("/")[0] for member in files}
    nested = len(tops) == 1 and all("/" in member.filename for member in files)
    skip = len(tops.pop()) + 1 if nested else 0
    names = {member.filename[skip:]: member for member in files}
    # Names that differ by case alone are one file on some systems.
    if len({name.casefold() for name in names}) < len(files):
        raise _HostileError("it holds two members of the same name")
    parents = {str(parent) for name in names for parent in Path(name).parents}
    if parents & names.keys():
        raise _HostileError("it holds a file and a folder of the same name")
    return names


def _check_member(member: zipfile.ZipInfo) -> None:
    # As stored: zipfile cuts names at a NUL and turns this system's separators.
    stored = member.orig_filename
    parts = stored.removesuffix("/").split("/")
    if re.search(r"[\x00-\x1f\x7f\\:]", stored) or {"", ".", ".."} & set(parts):
        raise _HostileError(f"its member {stored!r} does not lie below it")
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFDIR if member.is_dir() else stat.S_IFREG):
        raise _HostileError(f"its member {stored!r} is a link or a special file")
    if member.flag_bits & 1:
        raise _HostileError(f"its member {stored!r} is encrypted")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _HostileError(f"its member {stored!r} is neither stored nor deflated")


def _copy(packed: IO[bytes], file: IO[bytes], most_bytes: int) -> UnpackedFile:
    digest, size = hashlib.sha256(), 0
    while block := packed.read(_BLOCK):
        size += len(block)
        if size > most_bytes:
            raise _HostileError("it unpacks to more than it declares")
        digest.update(block)
        file.write(block)
    return UnpackedFile(size=size, sha256=digest.hexdigest())


def missing_files(folder: Path) -> list[str]:
    """What a folder lacks to be a checkpoint, in words; nothing if it is one."""
    names = {path.name for path in folder.iterdir() if path.is_file()}
    lacking = [name for name in REQUIRED if name not in names]
    if not any(_DATA.fullmatch(name) for name in names):
        lacking.append("bert_model.ckpt.data-00000-of-00001")
    return [f"there is no {name}" for name in lacking]

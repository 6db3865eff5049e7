"""The zip archive of a published checkpoint: its known files are unpacked, everything else is left.

No path of the archive is ever used, only the five names below. So a hostile archive cannot write
anywhere else, and its size is bounded by what its headers declare, which zipfile never exceeds.
"""

import errno
import re
import shutil
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from bert_features.errors import CheckpointError

REQUIRED = ("vocab.txt", "bert_config.json", "bert_model.ckpt.index")
_DATA = r"bert_model\.ckpt\.data-\d{5}-of-\d{5}"
# At the top of the archive, or in a folder there.
_KNOWN = re.compile(
    rf"(?:[^/]+/)?(vocab\.txt|bert_config\.json|bert_model\.ckpt\.(?:index|meta)|{_DATA})", re.ASCII
)


def unpack(archive: Path, folder: Path, *, max_bytes: int, source: str) -> None:
    """Unpacks the files of a checkpoint into a new folder; `source` is the archive in messages.

    Raises CheckpointError if it is not a zip, is damaged or too large, or holds no checkpoint;
    OSError if `folder` cannot be written. The caller then removes what is there.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            members = _members(opened, max_bytes, source)
            folder.mkdir()
            for name, member in members.items():
                # It gives no more bytes than the member declares, and checks their CRC.
                with opened.open(member) as packed, (folder / name).open("xb") as file:
                    shutil.copyfileobj(packed, file)
    # What zipfile raises for damaged archives, an encrypted member or an unknown method.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OSError) as error:
        # An offset before the file's beginning is EINVAL; other failures are the disk's.
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        raise CheckpointError(f"{source} is not a sound zip archive: {error}") from error


def _members(opened: zipfile.ZipFile, max_bytes: int, source: str) -> dict[str, zipfile.ZipInfo]:
    """The members to unpack, by the names of their files."""
    members: dict[str, zipfile.ZipInfo] = {}
    for member in opened.infolist():
        if not (known := _KNOWN.fullmatch(member.filename)):
            continue
        if known[1] in members:
            raise CheckpointError(f"{source} is refused: it holds two files named {known[1]}")
        members[known[1]] = member
    if missing := missing_files(members):
        raise CheckpointError(
            f"{source} holds no BERT checkpoint: {', '.join(missing)}; pass another"
        )
    declared = sum(member.file_size for member in members.values())
    if declared > max_bytes:
        raise CheckpointError(
            f"{source} is refused: it unpacks to {declared:,} bytes; "
            f"at most {max_bytes:,} are allowed"
        )
    return members


def missing_files(names: Iterable[str]) -> list[str]:
    """For each file that a checkpoint lacks, the words "there is no NAME"."""
    names = set(names)
    missing = [name for name in REQUIRED if name not in names]
    if not any(re.fullmatch(_DATA, name) for name in names):
        missing.append("bert_model.ckpt.data-00000-of-00001")
    return [f"there is no {name}" for name in missing]

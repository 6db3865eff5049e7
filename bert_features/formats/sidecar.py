"""The sidecar, `NAME.metadata.json`: the metadata of a features file that has no place for it.

Two renames put a features file and its sidecar in place, and the pair can be copied apart. So the
sidecar has, under `features_file`, what tells its features file from another: `bytes`, the size,
and `ends_crc32c`, the CRC-32C of the first and the last 64 KiB (of the whole file, if it is not
larger than both). A reader compares them each time it opens the file. `crc32c`, the CRC-32C of the
whole file, is compared when the file is verified.
"""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from bert_features.errors import OutputError
from bert_features.files import real_target
from bert_features.files.checksums import as_hex, checksum_of_ends

_FILE = "features_file"


def sidecar_name(name: str) -> str:
    """The name of the sidecar of a features file of this name."""
    return f"{name}.metadata.json"


def sidecar_path(path: Path) -> Path:
    """Where the sidecar of a features file is.

    For a symbolic link: beside the link if it is there, else beside the file.
    """
    beside, behind_link = (
        place.with_name(sidecar_name(place.name)) for place in (path, real_target(path))
    )
    return beside if os.path.exists(beside) else behind_link  # noqa: PTH110 - may be too long a name


class Sidecar(NamedTuple):
    """The content of a sidecar.

    Attributes:
      metadata: the metadata that the writer left, and `records`.
      crc32c: the checksum of the features file.
    """

    metadata: dict[str, Any]
    crc32c: str


def read(path: Path) -> Sidecar | None:
    """Reads the sidecar of the features file `path`; None where there is none.

    Raises OutputError if it belongs to another features file, and ValueError, KeyError or TypeError
    if no writer of this package wrote it.
    """
    sidecar = sidecar_path(path)
    try:
        content = json.loads(sidecar.read_bytes())
    except FileNotFoundError:
        return None
    recorded = content.pop(_FILE)
    ends = _ends(path)
    if not ends.items() <= recorded.items():
        raise _mismatch(path, sidecar, ends["bytes"], recorded["bytes"])
    return Sidecar(content, recorded["crc32c"])


def make(content: dict[str, Any], crc: int, at: Path) -> bytes:
    """The bytes of the sidecar of a features file.

    Args:
      content: its `Sidecar.metadata`.
      crc: the checksum of the file.
      at: where the file is.
    """
    facts = _ends(at) | {"crc32c": as_hex(crc)}
    return json.dumps(content | {_FILE: facts}, indent=2).encode() + b"\n"


def orphans(targets: list[Path]) -> list[Path]:
    """The sidecar among the files of a writer, if a killed run left it without a features file."""
    sidecars, path = targets[:-1], targets[-1]
    return [] if os.path.lexists(path) else [each for each in sidecars if _is_sidecar(each)]


def _is_sidecar(path: Path) -> bool:
    try:
        content = json.loads(path.read_bytes()) if path.is_file() else None
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and {"features", "format_version"} <= set(content)


def _ends(path: Path) -> dict[str, Any]:
    size, crc32c = checksum_of_ends(path)
    return {"bytes": size, "ends_crc32c": crc32c}


def _mismatch(path: Path, sidecar: Path, size: int, recorded: int) -> OutputError:
    difference = (
        f"the file has {size:,} bytes, the sidecar was written for one of {recorded:,}"
        if size != recorded
        else "the first or last 64 KiB of the file are not those that the sidecar records"
    )
    return OutputError(
        f"cannot read {path}: {sidecar} does not belong to it: {difference}. One was damaged, "
        "changed or copied without the other; copy both again, or extract again with --overwrite"
    )

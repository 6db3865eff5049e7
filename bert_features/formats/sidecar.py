"""The sidecar, `NAME.metadata.json`: the metadata of a features file that has no place for it.

Two renames put a features file and its sidecar in place, and a kill can come between them. So the
sidecar has, under `features_file`, what tells its features file from another:

- `bytes`, the size, and `ends_crc32c`, the CRC-32C of the first and the last 64 KiB (of the whole
  file, if it is not larger than both). A reader compares them each time it opens the file;
- `crc32c`, the CRC-32C of the whole file, and `metadata_crc32c`, that of everything else in the
  sidecar, as JSON. They are compared when the file is verified.

While an older features file is being replaced, its sidecar is in the new one, under `replaces`.
Whichever of the two features files is there, the sidecar has its metadata. A last rename takes the
older sidecar out.

Sidecars of earlier versions have neither key.
"""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from bert_features.errors import OutputError
from bert_features.files import real_target
from bert_features.formats.checksums import ChecksummedFile, as_hex, checksum

END_BYTES = 64 << 10
_FILE, _REPLACES = "features_file", "replaces"


def sidecar_name(name: str) -> str:
    """The name of the sidecar of a features file of this name."""
    return f"{name}.metadata.json"


def sidecar_path(path: Path) -> Path:
    """Where the sidecar of a features file is.

    For a symbolic link: beside the link if it is there, else beside the file.
    """
    beside, of_file = (
        place.with_name(sidecar_name(place.name)) for place in (path, real_target(path))
    )
    return beside if os.path.exists(beside) else of_file  # noqa: PTH110 - may be too long a name


class Sidecar(NamedTuple):
    """What a sidecar says.

    Attributes:
      metadata: the metadata that the writer left, and `records`.
      crc32c: the checksum of the features file; None in files of earlier versions.
      metadata_crc32c: the checksum of `metadata`; None in files of earlier versions.
    """

    metadata: dict[str, Any]
    crc32c: str | None = None
    metadata_crc32c: str | None = None


class SidecarTexts(NamedTuple):
    """The bytes of a sidecar.

    Attributes:
      first: what takes its place before the features file does.
      last: what takes its place after that; the same where no features file is replaced.
    """

    first: bytes
    last: bytes


def read(path: Path) -> Sidecar | None:
    """Reads the sidecar of the features file `path`; None where there is none.

    Raises:
      OutputError: it is that of another features file.
      ValueError, KeyError, TypeError: no writer of this package wrote it.
    """
    text = _text_for(path)
    if text is None:
        return None
    content = json.loads(text)
    content.pop(_REPLACES, None)
    file = content.pop(_FILE, {})
    return Sidecar(content, file.get("crc32c"), file.get("metadata_crc32c"))


def metadata_checksum(content: dict[str, Any]) -> str:
    """The checksum of `Sidecar.metadata`."""
    return as_hex(checksum(json.dumps(content).encode()))


def make(
    content: dict[str, Any], written: ChecksummedFile, at: Path, replaced: Path
) -> SidecarTexts:
    """The sidecar of a features file.

    Args:
      content: its `Sidecar.metadata`.
      written: the features file.
      at: where it is.
      replaced: where it will be; an older one may be there.
    """
    written.flush()
    of_file = _ends(at) | {
        "crc32c": as_hex(written.crc),
        "metadata_crc32c": metadata_checksum(content),
    }
    last = content | {_FILE: of_file}
    first = last | _replaces(replaced)
    return SidecarTexts(_encode(first), _encode(last))


def orphans(targets: list[Path]) -> list[Path]:
    """The sidecar among the files of a writer, if a killed run left it without a features file."""
    sidecars, path = targets[:-1], targets[-1]
    return [] if os.path.lexists(path) else [each for each in sidecars if _is_sidecar(each)]


def _is_sidecar(path: Path) -> bool:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and {"features", "format_version"} <= set(content)


def _encode(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=2).encode() + b"\n"


def _ends(path: Path) -> dict[str, Any]:
    """The size of a file, and the checksum of its first and last bytes."""
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        crc = checksum(file.read(END_BYTES))
        if size > END_BYTES:
            file.seek(max(size - END_BYTES, END_BYTES))
            crc = checksum(file.read(END_BYTES), crc)
    return {"bytes": size, "ends_crc32c": as_hex(crc)}


def _text_for(path: Path) -> bytes | None:
    """The text of the sidecar that belongs to the features file that is at `path` now."""
    sidecar = sidecar_path(path)
    try:
        text = sidecar.read_bytes()
    except FileNotFoundError:
        return None
    content = json.loads(text)
    if _FILE not in content:  # of an earlier version
        return text
    ends = _ends(path)
    if ends.items() <= content[_FILE].items():
        return text
    replaced = content.get(_REPLACES)
    if replaced and ends == replaced[_FILE]:
        older: str | None = replaced["sidecar"]
        return None if older is None else older.encode("utf-8", "surrogateescape")
    raise _mismatch(path, sidecar, ends["bytes"], content[_FILE]["bytes"])


def _replaces(path: Path) -> dict[str, Any]:
    """The entry for the features file at `path`; {} where no readable one is there."""
    try:
        text = _text_for(path)
        older = None if text is None else text.decode("utf-8", "surrogateescape")
        return {_REPLACES: {_FILE: _ends(path), "sidecar": older}}
    except (OSError, OutputError, ValueError, KeyError, TypeError, AttributeError):
        return {}


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

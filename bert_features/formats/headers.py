"""What a features file says about itself: its metadata, in the file or in a sidecar beside it."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert_features.config.features import Scale
from bert_features.files.checksums import as_hex, checksum
from bert_features.formats import sidecar
from bert_features.formats.columns import ID_TYPES
from bert_features.formats.records import Feature

FORMAT_VERSION = 2
# The key of the checksum of all other metadata, in the metadata.
METADATA_CHECKSUM = "metadata_crc32c"
# The key of the checksum of the texts, see `InputExample.checksum`.
TEXTS_CHECKSUM = "texts_crc32c"
_FLOAT32_MAX = np.finfo(np.float32).max


def checksum_of_json(metadata: Mapping[str, Any]) -> str:
    """The checksum of metadata, as written and as read; TypeError or ValueError: it is not JSON."""
    return as_hex(checksum(json.dumps(metadata, allow_nan=False).encode()))


class Header(NamedTuple):
    """The header of a features file.

    Attributes:
      metadata: the metadata that the writer left; {} where there is none.
      features: the features of each record, in order.
      id_type: whether ids are `int` or `str`.
      records: number of records; None where the file does not record it.
      is_whole: whether the metadata has its checksum; None where another program
        wrote the file again, as from `to_arrow`.
    """

    metadata: dict[str, Any]
    features: tuple[Feature, ...]
    id_type: str
    records: int | None
    is_whole: bool | None = None


def complete_metadata(
    metadata: Mapping[str, Any], features: Sequence[Feature], id_type: str
) -> dict[str, Any]:
    """A file's metadata with what each writer adds; TypeError or ValueError: it is not JSON."""
    complete = {
        **metadata,
        "features": [feature.to_metadata() for feature in features],
        "id_type": id_type,
        "format_version": FORMAT_VERSION,
    }
    return complete | {METADATA_CHECKSUM: checksum_of_json(complete)}


def parse_metadata(text: str | bytes | dict[str, Any]) -> Header:
    """The header in the metadata that a writer left, as JSON or read already.

    Raises ValueError, KeyError or TypeError if no writer of this package wrote it.
    """
    metadata = text if isinstance(text, dict) else json.loads(text)
    records = metadata.pop("records", None)
    crc = metadata.pop(METADATA_CHECKSUM, None)
    is_whole = None if crc is None else crc == checksum_of_json(metadata)
    version = metadata["format_version"]
    if version != FORMAT_VERSION:
        raise ValueError(f"format_version is {version!r}; this release reads {FORMAT_VERSION}")
    features = tuple(map(feature_of, metadata["features"]))
    id_type = metadata["id_type"]
    if id_type not in ID_TYPES:
        raise ValueError(f"id_type is {id_type!r}; allowed: {', '.join(ID_TYPES)}")
    return Header(metadata, features, id_type, records, is_whole)


def feature_of(entry: Mapping[str, Any]) -> Feature:
    """A feature as `Feature.to_metadata` describes it."""
    lists = {
        "layers": entry["layers"],
        "weights": entry["weights"],
        "heads": entry.get("heads", ()),
    }
    name, width, dtype = (entry[key] for key in ("name", "width", "dtype"))
    if (dtype == "int8") != ("scale" in entry):
        raise ValueError(f"feature {name!r} is {dtype}, and a scale is for int8")
    scale = parse_scale(entry["scale"], name, width) if dtype == "int8" else ()
    return Feature(**{**entry, **{n: tuple(v) for n, v in lists.items()}, "scale": scale})


def parse_scale(rows: Any, name: str, width: int | None = None) -> Scale:
    """The scale of feature `name`, as JSON has it; ValueError if it is none."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        ends = np.array(rows, np.float64)
        fits = ends.ndim == 2 and len(ends) == 2 and width in (None, ends.shape[1])
        if fits and (np.abs(ends) <= _FLOAT32_MAX).all() and (ends[0] <= ends[1]).all():
            return tuple(map(tuple, ends.tolist()))
    each = "each dimension" if width is None else f"each of {width} dimensions"
    raise ValueError(f"the scale of {name!r} is not a least and a largest float32 for {each}")


def read_sidecar(path: Path) -> Header | None:
    """The header in the sidecar of features file `path`; None, and errors, as `sidecar.read`."""
    header = sidecar.read(path)
    return None if header is None else parse_metadata(header.metadata)

"""What the beginning of an input shows: features, which are no texts."""

import re

from bert_features.errors import InputError
from bert_features.files.checksums import masked_checksum

# The key of our metadata in the schema of a Parquet file.
METADATA_KEY = b"bert_features"
# How files begin that are never texts. Features are written in these formats.
_MAGIC = {
    b"ARROW1\0\0": "an Arrow file",
    b"PAR1\x15": "a Parquet file",
    b"\x89HDF\r\n": "an HDF5 file",
    b"PK\x03\x04": "a zip archive, as .npz is",
}
_LENGTH_BYTES, _CHECKSUM_BYTES = 8, 4
# A line of the official script or of ours: the id, then the features of a level.
_JSON_FEATURES = re.compile(
    rb'\s*\{\s*"linex_index"\s*:\s*(?:-?\d+|"(?:[^"\\]|\\.)*")\s*,'
    rb'\s*"(?:features|words|sequence)"\s*:'
)


def features_error(name: str, kind: str = "") -> InputError:
    """The error that refuses a features file as an input; `kind` if that is all that is known."""
    what = f"is {kind}; it probably holds" if kind else "holds"
    return InputError(
        f"{name} {what} the features of a run, not texts; name the texts that they are of"
    )


def check_no_features(name: str, beginning: bytes) -> None:
    """Refuses an input of text that begins as a features file does.

    Raises:
      InputError: it does.
    """
    if _JSON_FEATURES.match(beginning) or _is_tfrecord(beginning):
        raise features_error(name)
    for magic, kind in _MAGIC.items():
        if beginning.startswith(magic):
            raise features_error(name, kind)


def _is_tfrecord(beginning: bytes) -> bool:
    """Whether the first 8 bytes, a length, are followed by their checksum."""
    length, rest = beginning[:_LENGTH_BYTES], beginning[_LENGTH_BYTES:][:_CHECKSUM_BYTES]
    return length.endswith(b"\0\0") and rest == masked_checksum(length).to_bytes(
        _CHECKSUM_BYTES, "little"
    )

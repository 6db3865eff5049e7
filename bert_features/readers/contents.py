"""What the beginning of an input shows: features, which are no texts, or another format."""

import re
from collections.abc import Iterable
from itertools import islice

from bert_features.config.input_format import FormatName
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

# Read to recognise another format; lines may be long.
_SAMPLE_LINES, _SAMPLE_CHARACTERS = 200, 1 << 16
_MIN_ROWS = 3
# A word and its columns, the last of which is a tag: `EU NNP I-NP B-ORG`.
_CONLL = re.compile(r"\S+(?:[ \t]\S+)*(?:\t\S+| (?:O|[A-Z]-\S+|[A-Z0-9$.,:;'`()#-]+))$")
_CONLLU = re.compile(r"\d+(?:[-.]\d+)?(?:\t[^\t]+){9}$")


def features_error(name: str, kind: str = "") -> InputError:
    """The error that refuses a features file as an input; `kind` if that is all that is known."""
    what = f"is {kind}; it probably holds" if kind else "holds"
    return InputError(
        f"{name} {what} the features of a run, not texts; name the texts that "
        "they were computed from"
    )


def check_no_features(name: str, beginning: bytes) -> None:
    """Refuses an input of text that begins as a features file does; raises InputError."""
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


def likely_format(content: Iterable[str]) -> FormatName | None:
    """The format that a text file looks like; None if it looks like text."""
    lines, left = [], _SAMPLE_CHARACTERS
    for line in islice(content, _SAMPLE_LINES):
        lines.append(line)
        left -= len(line)
        if left < 0:
            break
    full = [line for line in lines if line.strip()]
    if not full:
        return None
    if all(line.lstrip().startswith("{") and line.rstrip().endswith("}") for line in full):
        return "jsonl"
    rows = [line for line in full if not line.startswith(("#", "-DOCSTART-"))]
    has_sentences = len(full) < len(lines) and len(rows) >= _MIN_ROWS
    same_width = len({len(row.split()) for row in rows}) == 1
    if has_sentences and same_width and all(map(_CONLL.match, rows)):
        return "conllu" if all(map(_CONLLU.match, rows)) else "conll"
    tables: dict[FormatName, str] = {"tsv": "\t", "csv": ","}
    for name, delimiter in tables.items():
        header = [field.strip('"') for field in lines[0].strip().split(delimiter)]
        if len(header) > 1 and not {"text", "tokens"}.isdisjoint(header):
            return name
    return None

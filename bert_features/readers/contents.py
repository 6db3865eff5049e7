"""What the beginning of an input shows: features, which are no texts, or another format."""

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from bert_features.config.input_format import INPUT_FORMATS
from bert_features.errors import ConfigError, InputError
from bert_features.files.checksums import masked_checksum

logger = logging.getLogger("bert_features")

# The key of our metadata in the schema of a Parquet file.
METADATA_KEY = b"bert_features"
# How files begin that are never lines of text. Features are written in these formats.
_MAGIC = {
    b"ARROW1\0\0": ("arrow", "an Arrow file"),
    b"PAR1\x15": ("parquet", "a Parquet file"),
    b"\x89HDF\r\n": ("hdf5", "an HDF5 file"),
    b"PK\x03\x04": ("npz", "a zip archive, as .npz, .xlsx and .docx are"),
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
_STRING = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*')"""
# First lines that no text has; a text may begin with `<3`, `[1]` or `[[link]]`.
_FIRST_LINES = {
    "json": re.compile(rf"\[\s*(?:$|\{{|{_STRING}\s*(?:,|\]$))|\{{\s*(?:$|{_STRING}\s*:)"),
    "XML or HTML": re.compile(r"<(?:\?xml|!--|!doctype\b|html\b|[a-z][^<>]*>$)", re.IGNORECASE),
    "YAML": re.compile(r"---$|%YAML|(?:- )?(?:id|text|tokens):\s"),
    "RTF or PDF": re.compile(r"\{\\rtf|%PDF-\d"),
    "lines that end in \\r": re.compile(r".*\r"),
}
_OBJECT = re.compile(r'\s*\{\s*(?:".*)?\}\s*$')
_ELEMENT = re.compile(r"\s*<[/a-zA-Z][^<>]*>(?:.*>)?\s*$")
# The delimiters of tables; a blank follows a comma in prose, and ` ||| ` separates a pair.
_TABLES = {r"\t": "tsv", ",(?! )": "csv", ";(?! )": "csv", r"(?<!\|)\|(?!\|)": "csv"}
# A word and its columns, the last of which is a tag: `EU NNP I-NP B-ORG`.
_CONLL = re.compile(r"\S+(?:[ \t]\S+)*(?:\t\S+| (?:O|[A-Z]-\S+|[A-Z0-9$.,:;'`()#-]+))$")
_CONLLU = re.compile(r"\d+(?:[-.]\d+)?(?:\t[^\t]+){9}$")


def features_error(name: str, format: str = "", kind: str = "") -> InputError:
    """The error that refuses features as an input; `format` and `kind` if no more is known."""
    what = f"is {kind}; it probably holds" if kind else "holds"
    other = f", or pass input_format={format!r} if it has texts" if format in INPUT_FORMATS else ""
    return InputError(
        f"{name} {what} the features of a run, not texts; name the texts that they were computed "
        f"from{other}"
    )


def no_examples(name: str) -> ConfigError:
    """The error that refuses an input without any example."""
    return ConfigError(f"{name} has no examples; pass an input with at least one text")


def check_no_features(name: str, beginning: bytes) -> None:
    """Refuses an input of text that begins as a features file does; raises InputError."""
    if _JSON_FEATURES.match(beginning) or _is_tfrecord(beginning):
        raise features_error(name)
    for magic, format_and_kind in _MAGIC.items():
        if beginning.startswith(magic):
            raise features_error(name, *format_and_kind)


def _is_tfrecord(beginning: bytes) -> bool:
    """Whether the first 8 bytes, a length, are followed by their checksum."""
    length, rest = beginning[:_LENGTH_BYTES], beginning[_LENGTH_BYTES:][:_CHECKSUM_BYTES]
    return length.endswith(b"\0\0") and rest == masked_checksum(length).to_bytes(
        _CHECKSUM_BYTES, "little"
    )


def sample_lines(content: Iterable[str]) -> Iterator[str]:
    """The first lines of a text file, as many as `likely_format` needs."""
    left = _SAMPLE_CHARACTERS
    for line in islice(content, _SAMPLE_LINES):
        yield line
        left -= len(line)
        if left < 0:
            return


def watch(name: str, lines: Iterator[str]) -> Iterator[str]:
    """The lines of a text file; warns once the first of them look like another format."""
    sample = []
    for line in sample_lines(lines):
        sample.append(line)
        yield line
    warn_of_format(name, sample)
    yield from lines


def warn_of_format(name: str, lines: Iterable[str]) -> bool:
    """Warns if the first lines of a text file look like another format; whether they do."""
    likely = likely_format(list(lines))
    if likely is None:
        return False
    cure = "convert it to one text on each line"
    if row := INPUT_FORMATS.get(likely):  # type: ignore[call-overload]
        cure = f"pass --input-format {likely} (in Python: input_format)"
        cure += ", and --text-field with the name or number of a column" if row.delimiters else ""
    message = "%s is read as text, each line as one example, but looks like %s; if it is, %s"
    logger.warning(message, name, likely, cure)
    return True


def likely_format(lines: Sequence[str]) -> str | None:
    """The format that the first lines look like, also one of no reader; None if like text."""
    full = [line for line in lines if line.strip().strip("\ufeff")]
    if not full:
        return None
    if all(map(_OBJECT.match, full)):
        return "jsonl"
    first = full[0].removeprefix("\ufeff").strip()
    for name, pattern in _FIRST_LINES.items():
        if pattern.match(first):
            return name
    if all(map(_ELEMENT.match, full)):
        return "XML or HTML"
    return _likely_conll(lines, full) or _likely_table(first, full)


def _likely_conll(lines: Sequence[str], full: Sequence[str]) -> str | None:
    """CoNLL: rows of one width with tags, and empty lines between them; `full` are not empty."""
    rows = [line for line in full if not line.startswith(("#", "-DOCSTART-"))]
    if len(full) == len(lines) or len(rows) < _MIN_ROWS or not all(map(_CONLL.match, rows)):
        return None
    if len({len(row.split()) for row in rows}) > 1:
        return None
    return "conllu" if all(map(_CONLLU.match, rows)) else "conll"


def _likely_table(first: str, full: Sequence[str]) -> str | None:
    """Columns: the same number in all lines, or names of ours in the first."""
    for delimiter, name in _TABLES.items():
        columns = [field.strip('" ') for field in re.split(delimiter, first)]
        widths = {len(re.split(delimiter, line)) for line in full}
        same_width = len(full) > 1 and widths == {len(columns)}
        if len(columns) > 1 and (same_width or not {"text", "tokens"}.isdisjoint(columns)):
            return name
    return None

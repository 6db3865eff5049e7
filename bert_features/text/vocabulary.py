"""Reading a vocabulary: the pieces of WordPiece in the order of their ids."""

import collections
import logging
from collections.abc import Sequence
from pathlib import Path

from bert_features.errors import CheckpointError
from bert_features.text.tokenizer_json import parse_pieces

logger = logging.getLogger("bert_features")

CLS, SEP, UNK, PAD, MASK = "[CLS]", "[SEP]", "[UNK]", "[PAD]", "[MASK]"

# google-research/bert, WordpieceTokenizer(max_input_chars_per_word=200); longer words become [UNK].
# Hugging Face uses 100.
MAX_CHARS_PER_WORD = 200
# The longest piece that tensorflow-text can match, without `##`.
MAX_PIECE_BYTES = 256


def read_vocab(path: str | Path) -> list[str]:
    r"""Reads a `vocab.txt` as the official `load_vocab` does, or a `tokenizer.json`.

    Lines of a `vocab.txt` end at "\n" alone (U+2028 and its like are pieces of some vocabularies)
    and are stripped of white space. A byte order mark and blank lines at the end do not count; a
    blank line before them is a piece that matches no text.

    Raises:
      CheckpointError: the file is missing, empty, or not UTF-8; or see `parse_pieces`.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read the vocabulary {path}: {error.strerror}") from error
    return parse_vocab(content, path)


def parse_vocab(content: bytes, path: str | Path) -> list[str]:
    """The pieces of a vocabulary that is read already; see `read_vocab`."""
    try:
        text = content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        if Path(path).suffix == ".model":
            raise CheckpointError(
                f"{path} is a SentencePiece model, no vocab.txt of WordPiece; a FeatureExtractor "
                "of its checkpoint has the tokenizer, and export_savedmodel(signature='text') "
                "writes a model with it"
            ) from error
        raise CheckpointError(
            f"the vocabulary {path} is not UTF-8: byte {error.object[error.start]:#04x} "
            f"at offset {error.start}"
        ) from error
    if not text.strip():
        raise CheckpointError(f"the vocabulary {path} is empty; allowed: a piece on each line")
    if Path(path).suffix == ".json":
        return parse_pieces(text, str(path))
    return [line.strip() for line in text.rstrip().split("\n")]


def ids_of(tokens: Sequence[str]) -> dict[str, int]:
    """Piece -> id. Of equal pieces the last one counts, as in the official script."""
    return {token: index for index, token in enumerate(tokens)}


def warn_of_duplicates(tokens: Sequence[str]) -> None:
    """Warns of pieces that are in a vocabulary more than once; their first ids are never used."""
    counts = collections.Counter(token for token in tokens if token)  # blank lines match no text
    twice = [repr(token) for token, count in counts.items() if count > 1]
    if twice:
        more = ", …" if len(twice) > 3 else ""
        logger.warning(
            "the vocabulary has %d piece(s) more than once: %s; the last id of each counts, as in "
            "google-research/bert",
            len(twice),
            ", ".join(twice[:3]) + more,
        )


def matchable(tokens: Sequence[str]) -> list[str]:
    """The pieces for a matcher, by id: one that no text can match begins with a blank.

    Such are, with the official tokenizer as well: blank lines, the first of two equal pieces,
    pieces with a NUL, which it removes from texts, and pieces longer than any word.

    Raises:
      CheckpointError: a piece has more than `MAX_PIECE_BYTES`, and a word may match it.
    """
    last = ids_of(tokens)
    return [
        token if last[token] == index and _may_match(token, index) else f" {index}"
        for index, token in enumerate(tokens)
    ]


def _may_match(token: str, index: int) -> bool:
    piece = token.removeprefix("##")
    if not token or "\0" in token or len(piece) > MAX_CHARS_PER_WORD:
        return False
    if piece.isascii():
        return True
    size = len(piece.encode("utf-8", "surrogatepass"))
    if size > MAX_PIECE_BYTES:
        raise CheckpointError(
            f"the piece in line {index + 1} of the vocabulary has {size} bytes, {piece[:10]}…; at "
            f"most {MAX_PIECE_BYTES} are allowed"
        )
    return not any("\ud800" <= char <= "\udfff" for char in piece)

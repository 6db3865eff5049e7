"""Reading a vocabulary: the pieces of WordPiece in the order of their ids."""

import shutil
from pathlib import Path

from bert_features.errors import CheckpointError
from bert_features.text.tokenizer_json import parse_pieces

CLS, SEP, UNK, PAD = "[CLS]", "[SEP]", "[UNK]", "[PAD]"


def read_vocab(path: str | Path) -> list[str]:
    r"""Reads a `vocab.txt` as the official `load_vocab` does, or a `tokenizer.json`.

    Lines of a `vocab.txt` end at "\n" alone (U+2028 and its like are pieces of some vocabularies)
    and are stripped of white space.

    Raises:
      CheckpointError: the file is missing, empty, or not UTF-8; or see `parse_pieces`.
    """
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise CheckpointError(f"cannot read the vocabulary {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CheckpointError(
            f"the vocabulary {path} is not UTF-8: byte {error.object[error.start]:#04x} "
            f"at offset {error.start}"
        ) from error
    if not text:
        raise CheckpointError(f"the vocabulary {path} is empty")
    if path.suffix == ".json":
        return parse_pieces(text, str(path))
    return [line.strip() for line in text.removesuffix("\n").split("\n")]


def write_vocab(source: Path, target: Path) -> None:
    """Writes a vocabulary as a `vocab.txt`: a copy of one, or the pieces of a `tokenizer.json`."""
    if source.suffix == ".json":
        target.write_bytes("".join(f"{piece}\n" for piece in read_vocab(source)).encode("utf-8"))
    else:
        shutil.copyfile(source, target)

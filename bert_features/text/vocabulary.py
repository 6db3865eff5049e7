"""Reading a `vocab.txt`, the pieces of a WordPiece vocabulary in the order of their ids."""

from pathlib import Path

from bert_features.errors import CheckpointError

CLS, SEP, UNK, PAD = "[CLS]", "[SEP]", "[UNK]", "[PAD]"


def read_vocab(path: str | Path) -> list[str]:
    r"""Reads a vocabulary file as the official `load_vocab` does.

    Lines end at "\n" alone (U+2028 and its like are pieces of some vocabularies) and are stripped
    of white space.

    Raises:
      CheckpointError: the file is missing, empty, or not UTF-8.
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
    return [line.strip() for line in text.removesuffix("\n").split("\n")]

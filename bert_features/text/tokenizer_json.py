"""Reading a `tokenizer.json`, as the `tokenizers` library writes it.

Of BERT's plain form the pieces are taken alone: transformers 5 and sentence-transformers write no
`vocab.txt` beside it any more. Others, as byte-level BPE, are for that library itself.
"""

import contextlib
import functools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bert_features.errors import CheckpointError

# BERT's plain form, by the path of a value; None stands for a value that is null, and one that is
# missing is plain.
_PLAIN: dict[str, tuple[Any, ...]] = {
    "model.type": ("WordPiece",),
    "model.continuing_subword_prefix": ("##",),
    "model.unk_token": ("[UNK]",),
    "model.max_input_chars_per_word": (None, 200, 100),
    "normalizer.type": ("BertNormalizer",),
    "normalizer.clean_text": (None, True),
    "pre_tokenizer.type": ("BertPreTokenizer",),
}


def read_values(path: Path) -> dict[str, Any]:
    """The object in a JSON file; errors are `parse_values`'s."""
    try:
        return parse_values(path.read_bytes(), str(path))
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error


def read_outline(path: Path) -> dict[str, Any]:
    """A `tokenizer.json` without its pieces; empty if there is none that can be read."""
    with contextlib.suppress(CheckpointError, OSError):
        return _outline(path, path.stat().st_mtime_ns)
    return {}


@functools.lru_cache(maxsize=1)  # a start asks several times, and XLM-R's file has 17 MB
def _outline(path: Path, modified: int) -> dict[str, Any]:
    values = read_values(path)
    model = as_object(values.get("model")).items()
    return values | {"model": {k: v for k, v in model if k not in ("vocab", "merges")}}


def has_bert_normalizer(values: Mapping[str, Any]) -> bool:
    """Whether a `tokenizer.json` is WordPiece's with the normaliser of BERT."""
    normalizer = as_object(values.get("normalizer"))
    return kind_of(values) == "WordPiece" and normalizer.get("type") == "BertNormalizer"


def bert_normalizer(values: Mapping[str, Any]) -> dict[str, Any]:
    """The normaliser of BERT of a `tokenizer.json`, alone or in a sequence; empty without one."""
    normalizer = as_object(values.get("normalizer"))
    parts = [normalizer, *map(as_object, as_list(normalizer.get("normalizers")))]
    return next((part for part in parts if part.get("type") == "BertNormalizer"), {})


def kind_of(values: Mapping[str, Any]) -> Any:
    """The kind of the model; older files of WordPiece do not name it."""
    model = as_object(values.get("model"))
    return model.get("type", "WordPiece" if "max_input_chars_per_word" in model else None)


def parse_values(text: str | bytes, source: str) -> dict[str, Any]:
    """The values of a JSON file; CheckpointError if it is not JSON, or no object."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{source} is not JSON that can be read: {error}") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{source} is not a config file: expected a JSON object")
    return values


def parse_pieces(text: str, source: str) -> list[str]:
    """The pieces in the order of their ids; errors name the source.

    Raises CheckpointError if it is not JSON, or its tokenizer is not BERT's: the plain form, which
    strips accents where it lower-cases; ids from 0 without a gap.
    """
    values = parse_values(text, source)
    lower = as_object(values.get("normalizer")).get("lowercase", True)
    plain = {**_PLAIN, "normalizer.strip_accents": (None, lower)}
    plain["normalizer.handle_chinese_chars"] = (True,)
    for key, received in differences(values, plain).items():
        raise CheckpointError(
            f"{source} is not BERT's tokenizer: {key} is {str(received)[:60]!r}; allowed: "
            f"{' or '.join(map(repr, plain[key]))}"
        )
    return pieces_of(values, source)


def differences(
    values: Mapping[str, Any], plain: Mapping[str, tuple[Any, ...]] = _PLAIN
) -> dict[str, Any]:
    """The values of a `tokenizer.json` that are not BERT's plain form, by their path."""
    stated: dict[str, Any] = {}
    for path in plain:
        part, key = path.split(".")
        inner = {"type": None} if values.get(part, 0) is None else as_object(values.get(part))
        stated |= {path: inner[key]} if key in inner else {}
    stated["model.type"] = kind_of(values)
    return {path: value for path, value in stated.items() if value not in plain[path]}


def pieces_of(values: Mapping[str, Any], source: str) -> list[str]:
    """The pieces in the order of their ids, added ones too; errors as above."""
    ids = ids_in(values)
    for entry in map(as_object, as_list(values.get("added_tokens"))):
        if isinstance(entry.get("id"), int):
            ids[str(entry.get("content"))] = entry["id"]
    if not ids or sorted(ids.values()) != list(range(len(ids))):
        raise CheckpointError(
            f"{source} has no vocabulary of pieces with an id each, but {len(ids)} whose ids are "
            f"not 0 to {len(ids) - 1}; save it again with transformers"
        )
    return sorted(ids, key=ids.__getitem__)


def ids_in(values: Mapping[str, Any]) -> dict[str, int]:
    """Piece -> id of a `tokenizer.json`, without what was added."""
    pieces = as_object(values.get("model")).get("vocab")
    if isinstance(pieces, list):
        return {str(e[0]): n for n, e in enumerate(pieces) if isinstance(e, list) and e}
    return {piece: n for piece, n in as_object(pieces).items() if isinstance(n, int)}


def as_object(value: Any) -> dict[str, Any]:
    """The value, if it is a JSON object; else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> Iterable[Any]:
    """The values of a JSON list, or of an object; of anything else none."""
    return value if isinstance(value, list) else as_object(value).values()

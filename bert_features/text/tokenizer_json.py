"""Reading a `tokenizer.json`, as the `tokenizers` library writes it.

Of BERT's plain form the pieces are taken alone: transformers 5 and sentence-transformers write no
`vocab.txt` beside it any more. Others, as byte-level BPE, are for that library itself.
"""

import functools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bert_features.errors import CheckpointError

_MISSING = object()
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


def is_wordpiece(path: Path) -> bool:
    """Whether a `tokenizer.json` is WordPiece's, or no JSON that can be read."""
    try:
        return _kinds(path.read_bytes())[0] in (None, "WordPiece")
    except (OSError, ValueError, RecursionError):
        return True  # `parse_values` says what is wrong


def has_own_case(path: Path) -> bool:
    """Whether a `tokenizer.json` that can be read has another normaliser than BERT's, or none."""
    return bool(_kinds(path.read_bytes())[1] != "BertNormalizer")


@functools.lru_cache(maxsize=1)  # a start asks several times
def _kinds(content: bytes) -> tuple[Any, Any]:
    """The types of the model and of the normaliser."""
    values = as_object(json.loads(content))
    return kind_of(values), value_at(values, "normalizer.type", "BertNormalizer")


def kind_of(values: Mapping[str, Any]) -> Any:
    """The kind of the model; older files of WordPiece do not name it."""
    model = as_object(values.get("model"))
    return model.get("type", "WordPiece" if "max_input_chars_per_word" in model else None)


def parse_values(text: str | bytes, source: str) -> dict[str, Any]:
    """The values of a `tokenizer.json`; errors name the source.

    Raises CheckpointError if it is not JSON, or no object.
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{source} is not JSON that can be read: {error}") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{source} is no tokenizer.json: expected a JSON object")
    return values


def parse_pieces(text: str, source: str) -> list[str]:
    """The pieces in the order of their ids; errors name the source.

    Raises CheckpointError if it is not JSON, or its tokenizer is not BERT's: the plain form, which
    strips accents where it lower-cases; ids from 0 without a gap.
    """
    values = parse_values(text, source)
    lower = value_at(values, "normalizer.lowercase", True)
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
    found = {key: value_at(values, key, _MISSING) for key in plain}
    found["model.type"] = kind_of(values)
    return {k: v for k, v in found.items() if v is not _MISSING and v not in plain[k]}


def pieces_of(values: Mapping[str, Any], source: str) -> list[str]:
    """The pieces of WordPiece in the order of their ids; raises CheckpointError as above."""
    ids = _ids(values, source)
    by_id = {number: piece for piece, number in ids.items()}
    if len(by_id) != len(ids) or min(by_id) != 0 or max(by_id) != len(ids) - 1:
        raise CheckpointError(
            f"{source} has {len(ids)} pieces, whose ids are not 0 to {len(ids) - 1}, each once"
        )
    return [by_id[number] for number in range(len(ids))]


def _ids(values: Mapping[str, Any], source: str) -> dict[str, int]:
    """Piece -> id, of the model and of what was added to it."""
    ids = dict(as_object(value_at(values, "model.vocab", None)))
    added = values.get("added_tokens") or []
    if isinstance(added, list):
        ids |= {str(as_object(entry).get("content")): as_object(entry).get("id") for entry in added}
    if not ids or not all(type(number) is int for number in ids.values()):
        raise CheckpointError(f"{source} has no vocabulary of pieces with an id each")
    return ids


def value_at(values: Mapping[str, Any], path: str, default: Any) -> Any:
    """The value at a path such as `model.type`; None within null, a default where it is missing."""
    first, _, rest = path.partition(".")
    value = values.get(first, default)
    if not rest or first not in values:
        return value
    return None if value is None else as_object(value).get(rest, default)


def as_object(value: Any) -> dict[str, Any]:
    """The value, if it is a JSON object; else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> Iterable[Any]:
    """The values of a JSON list, or of an object; of anything else none."""
    return value if isinstance(value, list) else as_object(value).values()

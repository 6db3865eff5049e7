"""Reading a `tokenizer.json`, as the `tokenizers` library writes it.

Of BERT's the pieces are taken alone: transformers 5 and sentence-transformers write no `vocab.txt`
beside it any more. Others, as byte-level BPE, are for that library itself.
"""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_features.errors import CheckpointError


def is_wordpiece(path: Path) -> bool:
    """Whether a `tokenizer.json` is WordPiece's, or no JSON that can be read."""
    try:
        return _kind(path.read_bytes()) in (None, "WordPiece")
    except (OSError, ValueError, RecursionError):
        return True  # `parse_pieces` says what is wrong


@functools.lru_cache(maxsize=1)  # a start asks several times
def _kind(content: bytes) -> Any:
    return _object(_object(json.loads(content)).get("model")).get("type")


def parse_pieces(text: str, source: str) -> list[str]:
    """The pieces in the order of their ids; errors name the source.

    Raises CheckpointError if it is not JSON, or its tokenizer is not BERT's: WordPiece with `##`,
    BERT's normaliser, which strips accents where it lower-cases; ids from 0 without a gap.
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{source} is not JSON that can be read: {error}") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{source} is no tokenizer.json: expected a JSON object")
    _check_kind(values, source)
    ids = _ids(values, source)
    by_id = {number: piece for piece, number in ids.items()}
    if sorted(by_id) != list(range(len(ids))):
        raise CheckpointError(
            f"{source} has {len(ids)} pieces, whose ids are not 0 to {len(ids) - 1}, each once"
        )
    return [by_id[number] for number in range(len(ids))]


def _check_kind(values: Mapping[str, Any], source: str) -> None:
    """Refuses tokenizers other than BERT's."""
    model, normalizer = (_object(values.get(key)) for key in ("model", "normalizer"))
    expected = {
        "model.type": (model.get("type"), "WordPiece"),
        "model.continuing_subword_prefix": (model.get("continuing_subword_prefix"), "##"),
        "normalizer.type": (normalizer.get("type"), "BertNormalizer"),
        "normalizer.clean_text": (normalizer.get("clean_text", True), True),
        "normalizer.handle_chinese_chars": (normalizer.get("handle_chinese_chars", True), True),
    }
    for key, (received, allowed) in expected.items():
        if received != allowed:
            raise CheckpointError(
                f"{source} is not BERT's tokenizer: {key} is {str(received)[:60]!r}; allowed: "
                f"{allowed!r}"
            )
    lower, strips = normalizer.get("lowercase", True), normalizer.get("strip_accents")
    if strips is not None and strips != lower:
        raise CheckpointError(
            f"{source} is not BERT's tokenizer: normalizer.strip_accents is {str(strips)[:60]!r}; "
            f"allowed: null, or the value of normalizer.lowercase, {str(lower)[:60]!r}"
        )


def _ids(values: Mapping[str, Any], source: str) -> dict[str, int]:
    """Piece -> id, of the model and of what was added to it."""
    ids = dict(_object(_object(values.get("model")).get("vocab")))
    added = values.get("added_tokens") or []
    if isinstance(added, list):
        ids |= {str(_object(entry).get("content")): _object(entry).get("id") for entry in added}
    if not ids or not all(type(number) is int for number in ids.values()):
        raise CheckpointError(f"{source} has no vocabulary of pieces with an id each")
    return ids


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}

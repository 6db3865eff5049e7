"""What lies beside a tokenizer's file: settings that are followed, have no effect, or are refused.

Importing this imports no framework.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_features.errors import CheckpointError
from bert_features.text.frame import special_pieces
from bert_features.text.tokenizer_json import as_list, as_object, read_values
from bert_features.text.vocabulary import UNK

TOKENIZER, CONFIG = "tokenizer.json", "tokenizer_config.json"
ADDED, SPECIAL, CODES = "added_tokens.json", "special_tokens_map.json", "bpe.codes"
NAMES = (CONFIG, ADDED, SPECIAL, CODES)

# Classes of transformers that take a tokenizer.json as it is; others set what is stated beside it.
GENERIC = ("PreTrainedTokenizer", "TokenizersBackend")
_GENERIC_FAMILIES = ("modernbert",)
_SWITCH = (None, True, False)
_ALL = {"truncation_side": (None, "right")}
# The values of settings that are followed or have no effect; others are refused. Without effect are
# all settings that are not here, among them never_split, remove_space and trim_offsets, which
# transformers' own tokenizers of these files do not use either.
_ALLOWED: dict[str, dict[str, tuple[Any, ...]]] = {
    "wordpiece": {
        "tokenizer_class": (
            *(None, *GENERIC, "BertTokenizer", "BertTokenizerLegacy", "DistilBertTokenizer"),
            *("ElectraTokenizer", "MPNetTokenizer", "ErnieTokenizer"),
        ),
        **dict.fromkeys(("do_basic_tokenize", "strip_accents", "tokenize_chinese_chars"), _SWITCH),
        "word_tokenizer_type": (None, "basic"),
        "subword_tokenizer_type": (None, "wordpiece"),
        "unk_token": (None, UNK),
        **_ALL,
    },
    "sentencepiece": {
        "tokenizer_class": (
            *(None, *GENERIC, "AlbertTokenizer", "XLMRobertaTokenizer", "CamembertTokenizer"),
        ),
        "keep_accents": _SWITCH,
        "add_prefix_space": (None, True),
        "sp_model_kwargs": (None, {}),
        **_ALL,
    },
    "json": {"add_prefix_space": _SWITCH, **_ALL},
    "merges": {
        "tokenizer_class": (None, *GENERIC, "RobertaTokenizer"),
        "add_prefix_space": _SWITCH,
        **_ALL,
    },
}
# Tokens of the families themselves: where a text has them they are text, as in their first code.
_NAMED = [f"{name}_token" for name in ("cls", "sep", "pad", "unk", "mask", "bos", "eos")]
OWN = {
    *(*special_pieces(""), *special_pieces("mpnet"), UNK, "<unk>"),
    *("<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"),
}
_EXTRA = ("additional_special_tokens", "extra_special_tokens")
_FLAGS = ("single_word", "lstrip", "rstrip")


def read_config(folder: Path, model_type: str = "") -> dict[str, Any]:
    """The settings in a folder that count; `tokenizer_class` comes without `Fast`.

    What tokenizer_config.json states wins over a tokenizer.json, unless the class takes that as it
    is. Raises CheckpointError if a file is damaged.
    """
    config = _read(folder / SPECIAL) | _read(folder / CONFIG)
    name = config.get("tokenizer_class") or _read(folder / "config.json").get("tokenizer_class")
    if name is None and (folder / CODES).is_file():
        name = "BertweetTokenizer"  # or PhobertTokenizer: nothing else has such a file
    config["tokenizer_class"] = name if name is None else str(name).removesuffix("Fast")
    if model_type in _GENERIC_FAMILIES or config["tokenizer_class"] in GENERIC:
        config["tokenizer_class"] = GENERIC[0]
        if (folder / TOKENIZER).is_file():
            return {n: v for n, v in config.items() if v is not None and not isinstance(v, bool)}
    return config


def read_added(
    path: Path, config: Mapping[str, Any], values: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """The tokens added to a vocabulary, also by `values`, a tokenizer.json; by their text.

    They are as there, but the family's own alone are `special`, and an `id` may be None. Raises
    CheckpointError if a file is damaged.
    """
    try:
        own = OWN | {_content(config.get(name)) for name in _NAMED}
        stated, named, numbers = (_read(path.parent / name) for name in (CONFIG, SPECIAL, ADDED))
        decoder = stated.get("added_tokens_decoder")
        extra, more = (
            [_content(token) for key in _EXTRA for token in as_list(each.get(key))]
            for each in (stated, named)
        )
        entries = [
            *({"content": token, "id": None, "special": True} for token in (*extra, *more)),
            *(
                {"content": token, "id": number, "special": token in extra}
                for token, number in (numbers if decoder is None else {}).items()
            ),
            *as_list(values.get("added_tokens")),
            *(entry | {"id": int(number)} for number, entry in as_object(decoder).items()),
        ]
        made = {}  # of equal ones the last counts
        for entry in entries:
            content, number = str(entry["content"]), entry["id"]
            if number is not None or content not in own:
                made[content] = {
                    "id": number if number is None else int(number),
                    "content": content,
                    "special": content in own,
                    "normalized": bool(entry.get("normalized", not entry.get("special"))),
                    **{flag: bool(entry.get(flag)) for flag in _FLAGS},
                }
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"an added token beside {path} has no text and id; fetch it again"
        ) from error
    return made


def check(config: Mapping[str, Any], kind: str, path: Path, model_type: str = "") -> None:
    """Refuses a setting that is not followed, by its name; raises CheckpointError."""
    allowed = _ALLOWED[kind]
    if kind == "wordpiece":
        first, last, *_ = special_pieces(model_type)
        allowed = allowed | {"cls_token": (None, first), "sep_token": (None, last)}
    for key, values in allowed.items():
        value = config.get(key)
        value = _content(value) if key.endswith("_token") else value
        if value not in values:
            shown = ", ".join(dict.fromkeys(json.dumps(one) for one in values))
            raise CheckpointError(
                f"{path}: {key} is {json.dumps(value)[:60]} in the files beside it, which is not "
                f"followed here; allowed: {shown}. Make the ids with transformers and pass those"
            )


def with_ids(added: Mapping[str, dict[str, Any]], ids: Mapping[str, int]) -> list[dict[str, Any]]:
    """The added tokens in the order of their ids: of the vocabulary, as stated, or the next."""
    made, following = [], max(ids.values(), default=-1) + 1
    for entry in sorted(added.values(), key=lambda e: (e["id"] is None, e["id"])):
        number = ids.get(entry["content"], entry["id"])
        number = following if number is None else number
        following = max(following, number + 1)
        made.append({**entry, "id": number})
    return made


def _content(value: Any) -> Any:
    return value.get("content") if isinstance(value, dict) else value


def _read(path: Path) -> dict[str, Any]:
    return read_values(path) if path.is_file() else {}

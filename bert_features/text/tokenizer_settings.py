"""What lies beside a tokenizer's file: settings that are followed, have no effect, or are refused.

Importing this imports no framework.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_features.errors import CheckpointError
from bert_features.text.frame import special_pieces
from bert_features.text.tokenizer_json import as_list, as_object, read_outline, read_values
from bert_features.text.vocabulary import UNK

TOKENIZER, CONFIG = "tokenizer.json", "tokenizer_config.json"
ADDED, SPECIAL, CODES = "added_tokens.json", "special_tokens_map.json", "bpe.codes"
MERGES = "merges.txt"  # beside vocab.json, in the first files of RoBERTa
NAMES = (CONFIG, ADDED, SPECIAL, CODES, MERGES)

# Classes of transformers that take a tokenizer.json as it is; others set what is stated beside it.
GENERIC = ("PreTrainedTokenizer", "TokenizersBackend")
_GENERIC_FAMILIES = ("modernbert",)


def _classes(*names: str) -> dict[str, tuple[Any, ...]]:
    return {"tokenizer_class": (None, *GENERIC, *names)}


# The values of settings that are followed or have no effect; others are refused. Without effect are
# all settings that are not here, among them never_split, remove_space and trim_offsets, which
# transformers' own tokenizers of these files do not use either.
_SWITCH = (None, True, False)
_ALL: dict[str, tuple[Any, ...]] = {
    "truncation_side": (None, "right"),
    "truncation.direction": (None, "Right"),  # of the tokenizer.json
    "fast_tokenizer_files": (None, [], [TOKENIZER]),  # others for other versions of transformers
    "split_special_tokens": (None, False),
}
_WORDPIECE = _ALL | {
    "do_lower_case": _SWITCH,
    **dict.fromkeys(("do_basic_tokenize", "strip_accents", "tokenize_chinese_chars"), _SWITCH),
    "word_tokenizer_type": (None, "basic"),
    "subword_tokenizer_type": (None, "wordpiece"),
    "unk_token": (None, UNK),
    "vocab": (None,),
}
_SENTENCEPIECE = _ALL | {
    "do_lower_case": _SWITCH,
    "keep_accents": _SWITCH,
    "add_prefix_space": (None, True),
    "sp_model_kwargs": (None, {}),
}
_ENDS = dict.fromkeys(("add_bos_token", "add_eos_token"), (None,))
_BYTES = _ALL | {"add_prefix_space": _SWITCH}
_BERT = ("BertTokenizer", "BertTokenizerLegacy", "DistilBertTokenizer", "ElectraTokenizer")
_ALLOWED = {
    "wordpiece": _WORDPIECE | _classes(*_BERT, "ErnieTokenizer"),
    "mpnet": _WORDPIECE | _classes("MPNetTokenizer"),
    "albert": _SENTENCEPIECE | _ENDS | _classes("AlbertTokenizer"),
    "xlm-roberta": _SENTENCEPIECE | _classes("XLMRobertaTokenizer"),
    "camembert": _SENTENCEPIECE | _classes("CamembertTokenizer"),
    "json": _BYTES,
    "merges": _BYTES | _classes("RobertaTokenizer"),
}
# Tokens of the families themselves: where a text has them they are text, as in their first code.
NAMED = [f"{name}_token" for name in ("cls", "sep", "pad", "unk", "mask", "bos", "eos")]
OWN = {
    *(*special_pieces(""), *special_pieces("mpnet"), UNK, "<unk>"),
    *("<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"),
}
# Of further tokens; a later one counts only if those before it are not there.
_EXTRA = ("extra_special_tokens", "additional_special_tokens")
# What a class sets in its tokenizer; the generic ones take it from the tokenizer.json.
_OF_CLASS = {
    *("do_lower_case", "do_basic_tokenize", "strip_accents", "tokenize_chinese_chars"),
    *("keep_accents", "add_prefix_space", *NAMED),
} - {"mask_token"}
_FLAGS = ("single_word", "lstrip", "rstrip")


def read_config(folder: Path, model_type: str = "") -> dict[str, Any]:
    """The settings in a folder that count; `tokenizer_class` comes without `Fast`.

    What tokenizer_config.json states wins over a tokenizer.json, unless the class takes that as it
    is. Raises CheckpointError if a file is damaged.
    """
    config, named = _read(folder / CONFIG), _read(folder / SPECIAL)
    config = named | config if "added_tokens_decoder" in config else config | named
    name = config.get("tokenizer_class") or _read(folder / "config.json").get("tokenizer_class")
    if name is None and (folder / CODES).is_file():
        name = "BertweetTokenizer"  # or PhobertTokenizer: nothing else has such a file
    config["tokenizer_class"] = name if name is None else str(name).removesuffix("Fast")
    if model_type in _GENERIC_FAMILIES or config["tokenizer_class"] in GENERIC:
        config["tokenizer_class"] = GENERIC[0]
        if (folder / TOKENIZER).is_file():
            return {name: value for name, value in config.items() if name not in _OF_CLASS}
    return config


def read_added(path: Path, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The tokens added to a vocabulary, also by `values`, a tokenizer.json; by their text.

    They are as there, but the family's own alone are `special`, and an `id` may be None. Raises
    CheckpointError if a file is damaged.
    """
    try:
        stated, named, numbers = (_read(path.parent / name) for name in (CONFIG, SPECIAL, ADDED))
        special = OWN | {_content((named | stated).get(name)) for name in NAMED}
        decoder = stated.get("added_tokens_decoder")
        extra, more = map(_extra, (stated, named))
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
            if number is not None or content not in special:
                made[content] = {
                    "id": number if number is None else int(number),
                    "content": content,
                    "special": content in special,
                    "normalized": bool(entry.get("normalized", not entry.get("special"))),
                    **{flag: bool(entry.get(flag)) for flag in _FLAGS},
                }
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"an added token beside {path} has no text and id; fetch it again"
        ) from error
    return made


def check(config: Mapping[str, Any], kind: str, path: Path, roles: Mapping[str, str] = {}) -> None:
    """Refuses settings that are not followed; `roles` are the special tokens that must be so."""
    if "truncation_side" not in config:
        outline = read_outline(path if path.suffix == ".json" else path.with_name(TOKENIZER))
        direction = as_object(outline.get("truncation")).get("direction")
        config = {**config, "truncation.direction": direction}
    allowed = _ALLOWED[kind] | {key: (None, piece) for key, piece in roles.items()}
    for key, values in allowed.items():
        value = config.get(key)
        value = _content(value) if key.endswith("_token") else value
        if json.dumps(value) not in map(json.dumps, values):  # 0 is not false
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


def _extra(values: Mapping[str, Any]) -> list[Any]:
    """The texts of further special tokens, in lists or under own keys (`image_token`)."""
    alone = [v for k, v in values.items() if k.endswith("_token") and k not in NAMED]
    alone += as_list(values.get("model_specific_special_tokens"))
    listed = as_list(next(filter(None, map(values.get, _EXTRA)), None))
    return [_content(token) for token in (*alone, *listed) if isinstance(token, str | dict)]


def _content(value: Any) -> Any:
    return value.get("content") if isinstance(value, dict) else value


def _read(path: Path) -> dict[str, Any]:
    return read_values(path) if path.is_file() else {}

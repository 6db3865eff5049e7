"""Folders in which one key of a tokenizer's files is changed, for each key that is known.

The keys are those that our reader knows, and those that the classes of transformers take.
scripts/make_reference_tokenizer_settings.py writes what transformers makes of each folder.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.tokenizer_settings import DATA, PIECES, SIZE, added, family_file, template, wordpiece

REFERENCE = DATA / "keys.json"
OTHERS = ("ter", "day")
CONFIG, SPECIAL, ADDED, JSON = (
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    "tokenizer.json",
)
CLASSES = [
    *("PreTrainedTokenizerFast", "BertTokenizerFast", "MPNetTokenizer", "RobertaTokenizer"),
    *("AlbertTokenizer", "XLMRobertaTokenizer", "CamembertTokenizer", "T5Tokenizer"),
]
TEXTS = ["Über the river, a boat 東京 [E1]", "the human <e1> Äpfel 42"]
# The special tokens of BERT's and of RoBERTa's families.
OWN = ("[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<mask>")
# A row that is cut has this many tokens.
LENGTH = 5


class Folder(NamedTuple):
    """The files of a family, its type, and two pieces that are not special there."""

    files: dict[str, Any]
    model_type: str
    pieces: tuple[str, str] = ("schon", "covid")


def _folders() -> dict[str, Folder]:
    vocab = {
        CONFIG: {"do_lower_case": True},
        "vocab.txt": "".join(f"{piece}\n" for piece in PIECES),
    }
    roberta, modern = (
        json.loads(family_file(f"{name}/tokenizer.json")) for name in ("roberta", "modernbert")
    )
    merges = (m if isinstance(m, str) else " ".join(m) for m in roberta["model"]["merges"])
    own = {"vocab.json": roberta["model"]["vocab"], "merges.txt": "\n".join(merges)}
    fairseq = {"sentencepiece.bpe.model": family_file("xlm_roberta/sentencepiece.bpe.model")}
    lower = {CONFIG: {"do_lower_case": True}}
    return {
        "bert": Folder(vocab, "bert"),
        "marked": Folder(
            vocab | {CONFIG: {"do_lower_case": True, "additional_special_tokens": ["[E1]"]}}, "bert"
        ),
        "bert json": Folder({JSON: wordpiece(), CONFIG: {}}, "bert"),
        "both": Folder(vocab | {JSON: wordpiece()}, "bert"),
        "generic": Folder(
            {JSON: wordpiece(), CONFIG: {"tokenizer_class": "PreTrainedTokenizerFast"}}, "bert"
        ),
        "mpnet": Folder(vocab, "mpnet"),
        "albert": Folder(
            lower | {"spiece.model": family_file("albert/spiece.model")}, "albert", OTHERS
        ),
        "xlm-roberta": Folder(fairseq, "xlm-roberta", OTHERS),
        "camembert": Folder(fairseq, "camembert", OTHERS),
        "roberta": Folder({JSON: roberta, CONFIG: {}}, "roberta", OTHERS),
        "merges": Folder(own, "roberta", OTHERS),
        "modernbert": Folder({JSON: modern, CONFIG: {}}, "modernbert", OTHERS),
    }


FOLDERS = _folders()
_TOKENS = [f"{name}_token" for name in ("cls", "sep", "bos", "eos", "unk", "pad", "mask")]


def _values(pieces: tuple[str, str], size: int) -> dict[str, Any]:
    """The changed values of each key of tokenizer_config.json."""
    first, second = pieces
    return {
        **{name: [first, {"content": second, "__type": "AddedToken"}] for name in _TOKENS},
        "image_token": ["[E1]"],
        "additional_special_tokens": [["[E1]", first]],
        "extra_special_tokens": [["<e1>"], {"image_token": "[E1]"}],
        "model_specific_special_tokens": [{"image_token": "[E1]"}],
        "added_tokens_decoder": [{str(size): {**added(0, "[E1]"), "id": None}}],
        "fast_tokenizer_files": [["tokenizer.4.0.json", JSON], [JSON]],
        "truncation_side": ["left", "right"],
        "truncation_strategy": ["only_first"],
        "truncation": [True],
        "stride": [1],
        "max_length": [3],
        "max_len": [4],
        "model_max_length": [4],
        "padding_side": ["left"],
        "padding": [True],
        "pad_to_multiple_of": [8],
        "pad_token_type_id": [1],
        "model_input_names": [["input_ids", "attention_mask"]],
        "split_special_tokens": [True],
        "add_bos_token": [True, False],
        "add_eos_token": [True, False],
        "add_prefix_space": [True, False],
        "trim_offsets": [False],
        "do_lower_case": [True, False],
        "strip_accents": [True, False],
        "tokenize_chinese_chars": [False],
        "do_basic_tokenize": [False],
        "never_split": [["river,"]],
        "keep_accents": [True],
        "remove_space": [False],
        "sp_model_kwargs": [{"enable_sampling": True}],
        "word_tokenizer_type": ["mecab"],
        "subword_tokenizer_type": ["character"],
        "tokenizer_class": CLASSES,
        "vocab": [{"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5}],
        "merges": [[]],
        "unk_id": [2],
        "errors": ["ignore"],
        "legacy": [False],
        "use_fast": [False],
        "verbose": [True],
        "backend": ["x"],
        "vocab_file": ["other.txt"],
        "merges_file": ["other.txt"],
        "tokenizer_file": ["other.json"],
        "special_tokens_map_file": ["x.json"],
        "name_or_path": ["x"],
        "processor_class": ["x"],
        "chat_template": ["x"],
        "response_template": ["x"],
        "fix_mistral_regex": [True],
        "response_schema": ["x"],
        "chat_control_tokens": [["x"]],
        "clean_up_tokenization_spaces": [False],
        "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": [True],
        "spaces_between_special_tokens": [False],
        "init_inputs": [[]],
    }


_BERT = "[CLS]:0 A:0 [SEP]:0"
_PAIR = f"{_BERT} B:1 [SEP]:1"
_STRANGE = template(_BERT, _PAIR)
_STRANGE["special_tokens"]["[SEP]"]["ids"] = [2**31]
_TEMPLATES = {
    "other tokens in single": template("[CLS]:0 A:0 [CLS]:0", _PAIR),
    "none in single": template("A:0", _PAIR),
    "B before A": template(_BERT, "[CLS]:0 B:0 [SEP]:0 A:1 [SEP]:1"),
    "A twice": template("[CLS]:0 A:0 A:0 [SEP]:0", _PAIR),
    "A twice in pairs": template(_BERT, "[CLS]:0 A:0 [SEP]:0 A:1 [SEP]:1"),
    "types in single": template("[CLS]:0 A:1 [SEP]:0", _PAIR),
    "types of the first": template(_BERT, "[CLS]:1 A:1 [SEP]:1 B:0 [SEP]:0"),
    "type of the last": template(_BERT, f"{_BERT} B:1 [SEP]:0"),
    "no types": template(_BERT, f"{_BERT} B:0 [SEP]:0"),
    "two separators": template(_BERT, f"{_BERT} [SEP]:0 B:0 [SEP]:0"),
    "ids outside": _STRANGE,
}
_DIRECTION = {"max_length": 512, "strategy": "LongestFirst", "stride": 0}
_PADDING = {
    "strategy": "BatchLongest",
    "direction": "Left",
    "pad_to_multiple_of": None,
    "pad_id": 0,
    "pad_type_id": 1,
    "pad_token": "[PAD]",
}


def _parts(values: dict[str, Any], pieces: tuple[str, str]) -> Iterator[tuple[str, Any]]:
    """The changed values of each key of tokenizer.json, by its path."""
    size = max(values["model"]["vocab"].values()) + 1
    size = max([size, *(entry["id"] + 1 for entry in values["added_tokens"])])
    yield "version", "9.9"
    yield "truncation", _DIRECTION | {"direction": "Left"}
    yield "truncation", _DIRECTION | {"direction": "Right", "max_length": 3}
    yield "padding", _PADDING
    yield "decoder", None
    for flags in ({}, {"single_word": True}, {"lstrip": True}, {"special": True, "rstrip": True}):
        yield "added_tokens", [*values["added_tokens"], added(size, "[E1]", **flags)]
    yield "normalizer", None
    yield "normalizer", {"type": "Lowercase"}
    yield "pre_tokenizer", {"type": "WhitespaceSplit"}
    for key, value in (values["normalizer"] or {}).items():
        if isinstance(value, bool) or value is None:
            yield f"normalizer.{key}", not value
    for key, value in values["pre_tokenizer"].items():
        if isinstance(value, bool):
            yield f"pre_tokenizer.{key}", not value
    if values["model"]["type"] == "WordPiece":
        for one in _TEMPLATES.values():
            yield "post_processor", one
        yield "post_processor", {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]}
    else:
        yield "post_processor", {"type": "BertProcessing", "cls": [pieces[0], 70], "sep": ["b", 3]}
    yield "post_processor", None
    yield "model.unk_token", pieces[0]
    yield "model.continuing_subword_prefix", "__"
    yield "model.max_input_chars_per_word", 5
    yield "model.dropout", 1.0  # every merge, so not by chance
    for key in ("fuse_unk", "byte_fallback", "ignore_merges"):
        yield f"model.{key}", not values["model"].get(key)
    yield "model.end_of_word_suffix", "</w>"


class Change(NamedTuple):
    """A key of a file in a folder, and its changed value."""

    folder: str
    file: str
    key: str
    value: Any

    @property
    def name(self) -> str:
        value = self.value
        if self.key == "post_processor":
            value = next((n for n, one in _TEMPLATES.items() if one is value), value)
        return f"{self.folder}/{self.file}: {self.key} = {json.dumps(value)[:60]}"

    def files(self, tokenizer_class: str | None = None) -> dict[str, Any]:
        """The files of the folder with the change, and with a class, if that is given."""
        files = dict(FOLDERS[self.folder].files)
        values = json.loads(json.dumps(files.get(self.file, {})))
        *parents, last = self.key.split(".") if self.file == JSON else [self.key]
        place = values
        for name in parents:
            place = place[name]
        place[last] = self.value
        files[self.file] = values
        if tokenizer_class is not None:
            files[CONFIG] = {**files.get(CONFIG, {}), "tokenizer_class": tokenizer_class}
        return files


def _changes() -> Iterator[Change]:
    for name, folder in FOLDERS.items():
        values = _values(folder.pieces, SIZE)
        for key, each in values.items():
            if key == "do_basic_tokenize" and name in ("mpnet", "bert json", "both"):
                continue  # no class of transformers 5 follows it there
            yield from (Change(name, CONFIG, key, value) for value in each)
        own = OWN[:3] if folder.model_type in ("bert", "albert", "modernbert") else OWN[3:]
        for key, token in zip((*_TOKENS[:4], "mask_token"), (*own[:2], *own), strict=True):
            yield Change(name, CONFIG, key, token)
        for key in (*_TOKENS, "additional_special_tokens", "extra_special_tokens"):
            yield Change(name, SPECIAL, key, values[key][0])
        yield Change(name, ADDED, "[E1]", SIZE)
        if JSON in folder.files:
            parts = _parts(folder.files[JSON], folder.pieces)
            yield from (Change(name, JSON, key, value) for key, value in parts)


CHANGES = {change.name: change for change in _changes()}

"""Folders whose tokenizer has a setting of its own, and what transformers makes of texts there.

scripts/make_reference_tokenizer_settings.py writes the ids to tests/data/tokenizers/settings.json.
"""

import json
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

DATA = Path(__file__).parent / "data" / "tokenizers"
REFERENCE = DATA / "settings.json"

# The families' special tokens are among them.
_PIECES = """
[PAD] [UNK] [CLS] [SEP] [MASK] the river , a boat t h e b o ##a ##t ##h ##e über uber schön schon
Apfel apfel Äpfel 東 京 東京 42 4 2 ##2 ##4 co ##vid - 19 covid . river, <s> </s> <pad> <mask>
"""
PIECES = _PIECES.split()
SIZE = len(PIECES)
TEXTS = ["Über schön, Äpfel", "東京 the river, a boat", "42 covid-19 Covid-19 thebo"]
MARKED = ["a [E1] boat [E1]the <e1> <E1>, covid-19 covid-19s Covid-19", "the  river ,  [Q] a"]
SPOKEN = ["naïve Ångström İst e\u0301", "Hello  world 42"]
BYTES = ["human human", "a [E1] human<e1>  the"]
GENERIC = {"tokenizer_class": "PreTrainedTokenizerFast"}


class Case(NamedTuple):
    """A folder: its files by name, the model's type, texts; whether the files lower-case."""

    files: dict[str, Any]
    model_type: str = "bert"
    texts: list[str] = TEXTS
    lower: bool = True
    tokenizer_class: str | None = None


def added(number: int, content: str, **flags: bool) -> dict[str, Any]:
    """An added token, as a tokenizer.json has it."""
    usual = dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False)
    return {"id": number, "content": content, "normalized": True, **usual, **flags}


def template(single: str, pair: str) -> dict[str, Any]:
    """A post-processor, from texts such as `[CLS]:0 A:0 [SEP]:0`."""
    names = {"[CLS]": 2, "[SEP]": 3}

    def parts(text: str) -> list[dict[str, Any]]:
        return [
            {"SpecialToken" if name in names else "Sequence": {"id": name, "type_id": int(kind)}}
            for name, kind in (part.rsplit(":", 1) for part in text.split())
        ]

    special = {name: {"id": name, "ids": [n], "tokens": [name]} for name, n in names.items()}
    return {
        "type": "TemplateProcessing",
        "single": parts(single),
        "pair": parts(pair),
        "special_tokens": special,
    }


def wordpiece(**changes: Any) -> dict[str, Any]:
    """The tokenizer.json of BERT's plain form, with changes by path: `normalizer__lowercase`."""
    own = [added(PIECES.index(t), t, special=True, normalized=False) for t in PIECES[:5]]
    values: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": own + changes.pop("more", []),
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": template("[CLS]:0 A:0 [SEP]:0", "[CLS]:0 A:0 [SEP]:0 B:1 [SEP]:1"),
        "decoder": None,
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {token: number for number, token in enumerate(PIECES)},
        },
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = values
        for name in parents:
            place = place[name]
        place[last] = value
    return values


def small_tokenizers() -> dict[str, bytes]:
    """The small tokenizers of the families, as `family/file`."""
    with tarfile.open(DATA / "files.tar.xz") as archive:
        return {m.name: archive.extractfile(m).read() for m in archive.getmembers()}  # type: ignore


def family_file(name: str) -> bytes:
    """One of the small tokenizers of the families."""
    return small_tokenizers()[name]


def _config(**values: Any) -> dict[str, Any]:
    return {"tokenizer_config.json": values}


def _generic(**changes: Any) -> dict[str, Any]:
    """A tokenizer.json with these changes, and a class that has no form of its own."""
    return {"tokenizer.json": wordpiece(**changes), **_config(**GENERIC)}


def _cases() -> dict[str, Case]:
    vocab = {"vocab.txt": "".join(f"{piece}\n" for piece in PIECES)}
    own = small_tokenizers()
    spiece = {"spiece.model": own["albert/spiece.model"]}
    roberta = json.loads(own["roberta/tokenizer.json"])
    prefixed = {**roberta, "pre_tokenizer": roberta["pre_tokenizer"] | {"add_prefix_space": True}}
    merges = "\n".join(m if isinstance(m, str) else " ".join(m) for m in roberta["model"]["merges"])
    pair_of_files = {
        "vocab.json": json.dumps(roberta["model"]["vocab"]),
        "merges.txt": f"#version: 0.2\n{merges}\n",
    }
    digits = {"type": "Digits", "individual_digits": True}
    digits = {"type": "Sequence", "pretokenizers": [digits, {"type": "BertPreTokenizer"}]}
    marks = {"covid-19": SIZE, "[E1]": SIZE + 1, "<e1>": SIZE + 2}
    decoder = {
        str(SIZE): added(SIZE, "[Q]", special=True, normalized=False),
        str(SIZE + 1): added(SIZE + 1, "[E1]", single_word=True, normalized=False),
        str(SIZE + 2): added(SIZE + 2, "covid-19", rstrip=True, lstrip=True),
    }
    for number, entry in decoder.items():
        assert entry.pop("id") == int(number)
    end = len(roberta["model"]["vocab"])
    json_file = {"tokenizer.json": wordpiece()}
    return {
        "plain": Case(vocab),
        "strip_accents false": Case(vocab | _config(do_lower_case=True, strip_accents=False)),
        "strip_accents true": Case(
            vocab | _config(do_lower_case=False, strip_accents=True), lower=False
        ),
        "chinese": Case(vocab | _config(tokenize_chinese_chars=False)),
        "never_split": Case(vocab | _config(never_split=["river,"])),
        "do_basic_tokenize": Case(
            vocab | _config(do_basic_tokenize=False),
            # AutoTokenizer takes a class that drops this setting; the older one follows it.
            tokenizer_class="BertTokenizerLegacy",
        ),
        "klue/roberta": Case(vocab | _config(tokenizer_class="BertTokenizer"), "roberta"),
        "mpnet": Case(vocab, "mpnet"),
        "mpnet, cased, own accents": Case(
            vocab | _config(do_lower_case=False, strip_accents=True), "mpnet", lower=False
        ),
        "added_tokens.json": Case(vocab | {"added_tokens.json": marks}, texts=MARKED),
        "added_tokens.json, special": Case(
            vocab
            | {"added_tokens.json": marks}
            | _config(additional_special_tokens=["[E1]", "river,"]),
            texts=MARKED,
        ),
        "special_tokens_map.json": Case(
            vocab
            | {"added_tokens.json": marks}
            | {"special_tokens_map.json": {"additional_special_tokens": ["[E1]", "river,"]}},
            texts=[*MARKED, "[e1] river,"],
        ),
        "added_tokens_decoder": Case(vocab | _config(added_tokens_decoder=decoder), texts=MARKED),
        "added in tokenizer.json": Case(
            {
                "tokenizer.json": wordpiece(
                    more=[
                        added(SIZE, "[Q]", special=True, normalized=False),
                        added(SIZE + 1, "covid-19"),
                    ]
                )
            },
            texts=MARKED,
        ),
        "added in tokenizer.json beside vocab.txt, accents": Case(
            vocab
            | {"tokenizer.json": wordpiece(more=[added(SIZE, "schön")])}
            | _config(strip_accents=False)
        ),
        "Digits": Case(_generic(pre_tokenizer=digits)),
        "Digits beside vocab.txt": Case(vocab | _generic(pre_tokenizer=digits)),
        "WhitespaceSplit": Case(_generic(pre_tokenizer={"type": "WhitespaceSplit"})),
        "short words": Case(_generic(model__max_input_chars_per_word=5)),
        "types of a pair": Case(
            _generic(
                post_processor=template(
                    "[CLS]:0 A:0 [SEP]:0", "[CLS]:0 A:0 [SEP]:0 [SEP]:0 B:0 [SEP]:0"
                )
            )
        ),
        "stated accents win": Case(
            {
                "tokenizer.json": wordpiece(normalizer__strip_accents=False),
                **_config(strip_accents=None),
            }
        ),
        "stated characters win": Case(json_file | _config(tokenize_chinese_chars=False)),
        "a generic class wins": Case(
            json_file | _config(**GENERIC, tokenize_chinese_chars=False, strip_accents=False)
        ),
        "keep_accents": Case(spiece | _config(keep_accents=True), "albert", SPOKEN),
        "keep_accents, cased": Case(
            spiece | _config(keep_accents=True, do_lower_case=False), "albert", SPOKEN, lower=False
        ),
        "add_prefix_space": Case(pair_of_files | _config(add_prefix_space=True), "roberta", BYTES),
        "add_prefix_space beside tokenizer.json": Case(
            {"tokenizer.json": roberta, **_config(add_prefix_space=True)}, "roberta", BYTES
        ),
        "stated prefix wins": Case(
            {"tokenizer.json": prefixed, **_config(add_prefix_space=False)}, "roberta", BYTES
        ),
        "a generic class has its prefix": Case(
            {"tokenizer.json": prefixed, **_config(add_prefix_space=False, **GENERIC)},
            *("roberta", BYTES),
        ),
        "added to vocab.json": Case(
            pair_of_files | {"added_tokens.json": {"[E1]": end, "<e1>": end + 1}}, "roberta", BYTES
        ),
        "ModernBERT with markers": Case(
            {"tokenizer.json": _with_markers(own["modernbert/tokenizer.json"])}, "modernbert", BYTES
        ),
    }


def _with_markers(content: bytes) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(content)
    number = max(entry["id"] for entry in values["added_tokens"]) + 1
    number = max(number, max(values["model"]["vocab"].values()) + 1)
    values["added_tokens"] += [
        added(number, "[E1]", special=True, normalized=False),
        added(number + 1, "<e1>", lstrip=True, normalized=False),
    ]
    return values


CASES = _cases()


def write(files: dict[str, Any], folder: Path, model_type: str = "bert") -> Path:
    """Writes the files of a folder, values as JSON; returns the folder."""
    for name, content in {"config.json": {"model_type": model_type}, **files}.items():
        if not isinstance(content, bytes):
            text = content if isinstance(content, str) else json.dumps(content)
            content = text.encode()
        (folder / name).write_bytes(content)
    return folder

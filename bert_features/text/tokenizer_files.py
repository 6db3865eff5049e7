"""The file of a tokenizer: a WordPiece vocabulary, a SentencePiece model, or a `tokenizer.json`.

Importing this imports no framework.
"""

import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from bert_features.errors import CheckpointError
from bert_features.text.frame import OTHER_FRAMES, Frame, special_pieces
from bert_features.text.json_model import (
    JsonModel,
    load_model,
    merges_values,
    with_prefix,
    wordpiece_values,
)
from bert_features.text.sentencepiece_model import SentencePieceModel, read_model
from bert_features.text.tokenizer_json import (
    as_list,
    as_object,
    differences,
    has_bert_normalizer,
    ids_in,
    kind_of,
    pieces_of,
    read_outline,
    read_values,
)
from bert_features.text.tokenizer_settings import (
    CONFIG,
    GENERIC,
    NAMED,
    TOKENIZER,
    check,
    read_added,
    read_config,
    with_ids,
)
from bert_features.text.vocabulary import ids_of, read_vocab

# In the order in which they are looked for. ALBERT's of google-research are 30k-clean, and the
# Chinese ones have a vocab.txt.
NAMES = (
    *("vocab.txt", "spiece.model", "30k-clean.model", "sentencepiece.bpe.model"),
    *(TOKENIZER, MERGED := "vocab.json"),
)
TYPES = "token_type_ids"
_Config = Mapping[str, Any]


class WordPieceFile(NamedTuple):
    """A vocabulary of WordPiece that the graph of BERT's tokenizer can follow.

    Attributes:
      tokens: the pieces in the order of their ids.
      model_type: the model's type, which decides about the frame.
      rules: the arguments of `FullTokenizer` that are stated and are not BERT's own.
      has_types: whether the tokens of a second text have type 1, where the family has types.
      splits_words: as of a `JsonModel`.
    """

    tokens: list[str]
    model_type: str = ""
    rules: Mapping[str, bool] = {}
    has_types: bool = True
    splits_words: bool = True

    @property
    def frame(self) -> Frame:
        """The special tokens; a CheckpointError if the first or the last is missing."""
        frame = Frame.of_wordpiece(ids_of(self.tokens), self.model_type)
        return replace(frame, has_types=frame.has_types and self.has_types)


TokenizerFile = WordPieceFile | SentencePieceModel | JsonModel


def rules_of(file: TokenizerFile, do_lower_case: bool | None) -> dict[str, str]:
    """The settings of a tokenizer's files that are not the usual ones of its kind, by name."""
    usual = ("strip_accents", do_lower_case)
    typed = file.has_types if isinstance(file, WordPieceFile) else True
    rules = dict(file.rules) | ({} if typed else {"token_type_ids": None})
    return {name: json.dumps(v) for name, v in rules.items() if (name, v) != usual}


def read_tokenizer(path: Path, model_type: str = "") -> TokenizerFile:
    """Reads the file of a tokenizer and the settings beside it.

    The model's type decides about CamemBERT's ids, and about the special tokens of WordPiece.

    Raises:
      CheckpointError: it cannot be read, a setting cannot be followed, or it is of a kind or a
        family that is not supported.
    """
    path = _used(path)
    read: Callable[[Path, _Config, str], TokenizerFile] = _read_json
    kind = "merges" if path.name == MERGED else "json"
    if path.suffix == ".model":
        fairseq = "camembert" if model_type == "camembert" else "xlm-roberta"
        read, kind = _read_sentencepiece, "albert" if read_model(path).is_albert else fairseq
    elif path.suffix != ".json" or kind_of(read_outline(path)) == "WordPiece":
        read, kind = _read_wordpiece, "mpnet" if model_type in OTHER_FRAMES else "wordpiece"
    config = read_config(path.parent, model_type)
    check(config, kind, path)
    file = read(path, config, model_type)
    if not config.keys().isdisjoint(NAMED):  # a vocabulary alone may have no frame
        first, last, mask = file.frame.cls_id, file.frame.sep_id, file.frame.mask_id
        roles = {"cls_token": first, "sep_token": last, "mask_token": mask}
        if read is not _read_wordpiece:  # XLM-R's class takes these for its first and last
            roles |= {"bos_token": first, "eos_token": last}
        check(config, kind, path, {k: file.tokens[n] for k, n in roles.items() if n is not None})
    inputs = config.get("model_input_names")
    if not isinstance(inputs, list) or TYPES in inputs:
        return file
    if isinstance(file, WordPieceFile):
        return file._replace(has_types=False)
    rules = {**file.rules, TYPES: None}
    return file._replace(frame=replace(file.frame, has_types=False), rules=rules)


def _used(path: Path) -> Path:
    """The tokenizer.json beside a SentencePiece model, if it counts; else the file.

    It counts where tokens were added, or the class takes a tokenizer.json as it is.
    """
    other = path.with_name(TOKENIZER)
    if path.suffix != ".model" or not other.is_file():
        return path
    config = read_config(path.parent)
    added = read_added(path, read_outline(other))
    others = {token for token, entry in added.items() if not entry["special"]}
    counts = config["tokenizer_class"] in GENERIC or config.get("add_prefix_space") is False
    return other if counts or others - {*read_model(path).tokens} else path


def keeps_case(path: Path) -> bool:
    """Whether nothing is lower-cased here: XLM-R keeps case, a `tokenizer.json` does it itself."""
    path = _used(path)
    if path.suffix == ".json":
        values = read_outline(path)
        return bool(values) and not has_bert_normalizer(values)
    return path.suffix == ".model" and not read_model(path).is_albert


def read_pieces(path: Path) -> list[str]:
    """The pieces of WordPiece or of a SentencePiece model alone; errors are `read_tokenizer`'s."""
    return read_model(path).tokens if path.suffix == ".model" else _parts(path)[1]


def write_tokenizer(
    source: Path, folder: Path, model_type: str = "", do_lower_case: bool | None = None
) -> Path:
    """Writes a tokenizer's file into a folder: a `vocab.txt`, or a copy of another.

    Beside it goes a tokenizer_config.json with the settings that are followed, and the casing if it
    is known. Returns the path of the first.
    """
    file = read_tokenizer(source, model_type)
    config: dict[str, Any] = {} if do_lower_case is None else {"do_lower_case": do_lower_case}
    if not isinstance(file, JsonModel):
        config |= file.rules
    if TYPES in rules_of(file, do_lower_case):
        config["model_input_names"] = ["input_ids", "attention_mask"]
    if config:
        (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    target = folder / TOKENIZER
    if isinstance(file, WordPieceFile):
        target = folder / "vocab.txt"
        target.write_bytes("".join(f"{piece}\n" for piece in file.tokens).encode("utf-8"))
    elif isinstance(file, SentencePieceModel):
        target = folder / (source.name if source.name in NAMES else "spiece.model")
        shutil.copyfile(source, target)
    elif file.rules or file.source.name == "vocab.json":
        target.write_text(json.dumps(file.with_case(do_lower_case).values), encoding="utf-8")
    else:
        shutil.copyfile(file.source, target)
    return target


def _read_sentencepiece(path: Path, config: _Config, model_type: str) -> SentencePieceModel:
    model = read_model(path, model_type)
    for token, entry in read_added(path, {}).items():
        if not entry["special"] and token not in model.tokens:
            raise CheckpointError(
                f"{path}: the token {token!r} was added to it, which needs a tokenizer.json beside "
                "it: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) of transformers"
            )
    return model._replace(rules={"keep_accents": True} if config.get("keep_accents") else {})


def _read_wordpiece(path: Path, config: _Config, model_type: str) -> WordPieceFile | JsonModel:
    values, tokens = _parts(path)
    added = with_ids(read_added(path, values), ids_of(tokens))
    tokens = [*tokens, *(entry["content"] for entry in added if entry["id"] >= len(tokens))]
    ids, normalizer = ids_of(tokens), as_object(values.get("normalizer"))
    strips = config.get("strip_accents", normalizer.get("strip_accents"))
    chinese = config.get("tokenize_chinese_chars", normalizer.get("handle_chinese_chars"))
    rules = {} if strips is None else {"strip_accents": strips}
    rules |= {"tokenize_chinese_chars": False} if chinese is False else {}
    changes = {
        path.removesuffix(".type"): values.get(path.removesuffix(".type"), value)
        for path, value in differences(values).items()
    }
    if not _is_framed(values, ids, model_type, needed=config["tokenizer_class"] in GENERIC):
        changes["post_processor"] = values["post_processor"]
    if config.get("do_basic_tokenize") is False:
        changes["do_basic_tokenize"] = False
        values |= {"normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}}
    elif normalizer.get("type") == "BertNormalizer":
        stated = {"strip_accents": strips, "handle_chinese_chars": chinese is not False}
        values["normalizer"] = {"lowercase": True, **normalizer, **stated}
    others = [entry for entry in added if not entry["special"]]
    if others or any(ids[entry["content"]] != entry["id"] for entry in added):
        changes["added_tokens"] = others
    if not changes:
        return WordPieceFile(tokens, model_type, rules)
    frame = None if "post_processor" in changes else Frame.of_wordpiece(ids, model_type)
    model = load_model(values | {"added_tokens": added}, path, frame)
    return model._replace(rules=rules | changes)


def _parts(path: Path) -> tuple[dict[str, Any], list[str]]:
    """The `tokenizer.json` of a WordPiece vocabulary, made if there is none, and the pieces."""
    if path.suffix == ".json":
        values = read_values(path)
        return values, pieces_of(values, str(path))
    other, tokens = path.with_name(TOKENIZER), read_vocab(path)
    values = read_outline(other)
    if kind_of(values) != "WordPiece":
        return wordpiece_values({}, tokens), tokens
    ids = ids_of(tokens)
    for piece, number in ids_in(read_values(other)).items():
        if ids.get(piece, number) != number:
            raise CheckpointError(
                f"{path} and {other.name} beside it are of different tokenizers: {piece!r} has id "
                f"{ids[piece]} in the first and {number} in the second; remove the wrong one"
            )
    return wordpiece_values(values, tokens), tokens


def _is_framed(
    values: Mapping[str, Any], ids: Mapping[str, int], model_type: str, *, needed: bool
) -> bool:
    """Whether a post-processor, if there is one, puts the family's special tokens as it does."""
    processor = as_object(values.get("post_processor"))
    if not processor:
        return not needed or "post_processor" not in values
    (first, last, *_), other = special_pieces(model_type), model_type in OTHER_FRAMES
    if processor.get("type") == ("RobertaProcessing" if other else "BertProcessing"):
        ends = {"cls": [first, ids.get(first)], "sep": [last, ids.get(last)]}
        return ends.items() <= processor.items()
    parts = [processor.get("single"), processor.get("pair")]
    entries = re.findall(r'"id": "([^"]*)", "type_id": (\d+)', json.dumps(parts))
    single, b = [(first, "0"), ("A", "0"), (last, "0")], str(int(not other))
    known = as_object(processor.get("special_tokens")).items()
    return entries == [*single, *single, *single[2:] * other, ("B", b), (last, b)] and all(
        as_object(entry).get("ids") == [ids.get(token)] for token, entry in known
    )


def _read_json(path: Path, config: _Config, model_type: str) -> JsonModel:
    """Reads a `tokenizer.json` that is not BERT's, or RoBERTa's `vocab.json` and `merges.txt`."""
    del model_type
    values = (merges_values if path.name == MERGED else read_values)(path)
    changes, made = {}, dict(values)
    prefix = config.get("add_prefix_space")
    if prefix is not None:
        for place in ("pre_tokenizer", "post_processor"):
            made[place] = with_prefix(values.get(place), prefix)
        if made != values:
            changes["add_prefix_space"] = prefix
    made["added_tokens"] = with_ids(read_added(path, values), ids_in(values))
    others = [entry for entry in made["added_tokens"] if not entry["special"]]
    if any(entry not in as_list(values.get("added_tokens")) for entry in others):
        changes["added_tokens"] = others
    return load_model(made, path)._replace(rules=changes)

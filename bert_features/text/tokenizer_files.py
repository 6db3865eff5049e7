"""The file of a tokenizer: a WordPiece vocabulary, a SentencePiece model, or a `tokenizer.json`.

Importing this imports no framework.
"""

import contextlib
import functools
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bert_features.errors import CheckpointError
from bert_features.text.frame import OTHER_FRAMES, Frame, special_pieces
from bert_features.text.json_model import (
    JsonModel,
    load_model,
    merges_values,
    model_ids,
    with_prefix,
    wordpiece_values,
)
from bert_features.text.sentencepiece_model import SentencePieceModel, read_model
from bert_features.text.tokenizer_json import (
    as_list,
    as_object,
    differences,
    has_own_case,
    is_wordpiece,
    kind_of,
    parse_values,
    pieces_of,
    value_at,
)
from bert_features.text.tokenizer_settings import CONFIG, TOKENIZER, check, read_beside, with_ids
from bert_features.text.vocabulary import UNK, ids_of, read_vocab

# In the order in which they are looked for. ALBERT's of google-research are 30k-clean, and those of
# Chinese have a vocab.txt.
NAMES = (
    *("vocab.txt", "spiece.model", "30k-clean.model", "sentencepiece.bpe.model"),
    *(TOKENIZER, "vocab.json"),
)
# Beside vocab.json, in the first files of RoBERTa.
MERGES = "merges.txt"
# Of ids that a tokenizer.json may leave out.
_MAX_GAP = 1 << 16


class WordPieceFile(NamedTuple):
    """A vocabulary of WordPiece, and how texts are split.

    Attributes:
      tokens: the pieces in the order of their ids, added tokens among them.
      model_type: the model's type, which decides about the frame.
      strip_accents: whether accents are stripped; None where texts are lower-cased.
      tokenize_chinese_chars: whether each Chinese character is a word.
      changes: settings that the graph of BERT's tokenizer cannot follow, by name.
      added: the added tokens that are not the family's own.
      values: the `tokenizer.json` for the `tokenizers` library; None if the graph follows all.
      own_frame: the special tokens, if they are not the family's.
      source: the file.
    """

    tokens: list[str]
    model_type: str = ""
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True
    changes: Mapping[str, str] = {}
    added: Sequence[str] = ()
    values: dict[str, Any] | None = None
    own_frame: Frame | None = None
    source: Path = Path("vocab.txt")

    @property
    def frame(self) -> Frame:
        """The special tokens; a CheckpointError if the first or the last is missing."""
        return self.own_frame or Frame.of_wordpiece(ids_of(self.tokens), self.model_type)

    @property
    def needed(self) -> list[str]:
        """The pieces without which it is no vocabulary of the family."""
        first, last, pad, _ = special_pieces(self.model_type)
        return [] if self.own_frame else [pad, UNK, first, last]

    def switches(self, do_lower_case: bool | None) -> dict[str, Any]:
        """The arguments of `FullTokenizer` that are not BERT's own."""
        strips = {} if self.strip_accents is None else {"strip_accents": self.strip_accents}
        switches = strips if self.strip_accents != do_lower_case else {}
        return switches | ({} if self.tokenize_chinese_chars else {"tokenize_chinese_chars": False})

    def with_case(self, do_lower_case: bool | None) -> dict[str, Any] | None:
        """`values` for texts that are lower-cased, or are not."""
        if self.values is None or value_at(self.values, "normalizer.type", 0) != "BertNormalizer":
            return self.values
        normalizer = self.values["normalizer"] | {"lowercase": do_lower_case is not False}
        return self.values | {"normalizer": normalizer}


TokenizerFile = WordPieceFile | SentencePieceModel | JsonModel


def in_graph(file: TokenizerFile) -> bool:
    """Whether TensorFlow has operations for a tokenizer."""
    return not isinstance(file, JsonModel) and getattr(file, "values", None) is None


def rules_of(file: TokenizerFile, do_lower_case: bool | None) -> dict[str, str]:
    """The settings of a tokenizer's files that are not the usual ones of its kind, by name."""
    if isinstance(file, SentencePieceModel):
        return {"keep_accents": "true"} if file.keep_accents else {}
    switches = file.switches(do_lower_case) if isinstance(file, WordPieceFile) else {}
    return {name: json.dumps(value) for name, value in switches.items()} | dict(file.changes)


def read_tokenizer(path: Path, model_type: str = "") -> TokenizerFile:
    """Reads the file of a tokenizer and the settings beside it.

    The model's type decides about CamemBERT's ids, and about the special tokens of WordPiece.

    Raises:
      CheckpointError: it cannot be read, a setting cannot be followed, or it is of a kind or a
        family that is not supported.
      MissingExtraError: the `tokenizers` library has to run it, and is not installed.
    """
    path = _used(path)
    if path.suffix != ".model":
        return read_wordpiece(path, model_type) if is_bert(path) else read_json(path, model_type)
    model = read_model(path, model_type)
    beside = read_beside(path, model_type, {})
    check(beside, "sentencepiece", path)
    for token in beside.others:
        if token not in model.tokens:
            raise CheckpointError(
                f"{path}: the token {token!r} was added to it, which needs a tokenizer.json beside "
                "it: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) of transformers"
            )
    return model._replace(keep_accents=beside.config.get("keep_accents") is True)


def is_bert(path: Path) -> bool:
    """Whether a file holds a WordPiece vocabulary; it is not read whole."""
    if path.suffix == ".json":
        return not _is_of_roberta(path) and is_wordpiece(path)
    return path.suffix != ".model"


def _used(path: Path) -> Path:
    """The tokenizer.json beside a SentencePiece model to which tokens were added; else the file."""
    other = path.with_name(TOKENIZER)
    if path.suffix != ".model" or not other.is_file():
        return path
    beside = read_beside(path, "", _added_in(other, other.stat().st_mtime_ns))
    unprefixed = beside.config.get("add_prefix_space") is False
    return other if unprefixed or set(beside.others) - {*read_model(path).tokens} else path


@functools.lru_cache(maxsize=1)  # a start asks several times, and XLM-R's file has 17 MB
def _added_in(path: Path, modified: int) -> dict[str, Any]:
    """The part of a tokenizer.json beside another file that has the added tokens."""
    return {"added_tokens": _values_beside(path).get("added_tokens")}


def _values_beside(path: Path) -> dict[str, Any]:
    """A tokenizer.json beside another file; empty if there is none, or it is damaged."""
    with contextlib.suppress(CheckpointError):
        return parse_values(path.read_bytes(), str(path)) if path.is_file() else {}
    return {}


def _is_of_roberta(path: Path) -> bool:
    """Whether merges.txt belongs to it."""
    return path.name == "vocab.json"


def keeps_case(path: Path) -> bool:
    """Whether nothing is lower-cased here: XLM-R keeps case, a `tokenizer.json` does it itself."""
    path = _used(path)
    if path.suffix == ".json":
        with contextlib.suppress(ValueError, OSError, RecursionError):
            return _is_of_roberta(path) or has_own_case(path) or not is_bert(path)
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
    source, file = _used(source), read_tokenizer(source, model_type)
    config: dict[str, Any] = {} if do_lower_case is None else {"do_lower_case": do_lower_case}
    values = None
    if isinstance(file, WordPieceFile):
        values = file.with_case(do_lower_case)
        config |= {} if values else file.switches(do_lower_case)
    elif isinstance(file, JsonModel):
        values = file.values
    elif file.keep_accents:
        config["keep_accents"] = True
    if config:
        (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    target = folder / ("vocab.txt" if is_bert(source) else _standard_name(source))
    if values is not None:
        target = folder / TOKENIZER
        target.write_text(json.dumps(values), encoding="utf-8")
    elif isinstance(file, WordPieceFile) and source.suffix == ".json":
        target.write_bytes("".join(f"{piece}\n" for piece in file.tokens).encode("utf-8"))
    else:
        shutil.copyfile(source, target)
    return target


def _standard_name(path: Path) -> str:
    """The name by which a file is found again."""
    return (
        path.name
        if path.name in NAMES and not _is_of_roberta(path)
        else "spiece.model"
        if path.suffix == ".model"
        else TOKENIZER
    )


def read_wordpiece(path: Path, model_type: str) -> WordPieceFile:
    """Reads a vocabulary of WordPiece and the settings beside it; errors are `read_tokenizer`'s."""
    values, tokens = _parts(path)
    beside = read_beside(path, model_type, values)
    check(beside, "wordpiece", path, model_type)
    ids = ids_of(tokens)
    added = with_ids(beside, ids, path, gap=0)
    own = as_object(values.get("normalizer"))
    file = WordPieceFile(
        [*tokens, *(entry["content"] for entry in added if entry["id"] >= len(tokens))],
        model_type,
        beside.config.get("strip_accents", own.get("strip_accents")),
        beside.config.get("tokenize_chinese_chars", own.get("handle_chinese_chars")) is not False,
        added=beside.others,
        source=path,
    )
    paths = [path.removesuffix(".type") for path in differences(values)] if values else []
    changes = {path: value_at(values, path, None) for path in paths}
    processor = as_object(values.get("post_processor"))
    framed = _is_framed(processor, ids, model_type)
    if not framed or (values and not processor and beside.is_generic):
        changes["post_processor"] = processor
    if beside.config.get("do_basic_tokenize") is False:
        changes["do_basic_tokenize"] = False
    if beside.others:
        changes["added_tokens"] = [entry for entry in added if not entry["special"]]
    if not changes:
        return file
    file = file._replace(changes={name: json.dumps(value) for name, value in changes.items()})
    return _by_library(file, values, tokens, added)


def _parts(path: Path) -> tuple[dict[str, Any], list[str]]:
    """The tokenizer.json that counts, empty without one, and the pieces."""
    if path.suffix == ".json":
        values = parse_values(path.read_bytes(), str(path))
        return values, pieces_of(values, str(path))
    values = _values_beside(path.with_name(TOKENIZER))
    return values if kind_of(values) == "WordPiece" else {}, read_vocab(path)


def _by_library(
    file: WordPieceFile,
    values: Mapping[str, Any],
    tokens: Sequence[str],
    added: list[dict[str, Any]],
) -> WordPieceFile:
    """The file for the `tokenizers` library, with all settings in its `tokenizer.json`."""
    made = wordpiece_values(tokens)
    model = made["model"] | as_object(values.get("model"))
    if file.source.suffix != ".json":
        model["vocab"] = made["model"]["vocab"]
    made |= {**values, "model": model, "added_tokens": added}
    if "do_basic_tokenize" in file.changes:
        made |= {"normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}}
    elif value_at(made, "normalizer.type", None) == "BertNormalizer":
        made["normalizer"] |= {
            "strip_accents": file.strip_accents,
            "handle_chinese_chars": file.tokenize_chinese_chars,
        }
    frame = None if "post_processor" in file.changes else file.frame
    frame = load_model(file._replace(values=made).with_case(None) or {}, file.source, frame).frame
    return file._replace(values=made, own_frame=frame)


def _is_framed(processor: Mapping[str, Any], ids: Mapping[str, int], model_type: str) -> bool:
    """Whether a post-processor, if there is one, puts the family's special tokens as it does."""
    (first, last, *_), other = special_pieces(model_type), model_type in OTHER_FRAMES
    if processor.get("type") == ("RobertaProcessing" if other else "BertProcessing"):
        ends = {"cls": [first, ids.get(first)], "sep": [last, ids.get(last)]}
        return ends.items() <= processor.items()
    parts = [processor.get("single"), processor.get("pair")]
    found = re.findall(r'"id": "([^"]*)", "type_id": (\d+)', json.dumps(parts))
    single, b = [(first, "0"), ("A", "0"), (last, "0")], str(int(not other))
    known = as_object(processor.get("special_tokens")).items()
    return not processor or (
        found == [*single, *single, *single[2:] * other, ("B", b), (last, b)]
        and all(as_object(entry).get("ids") == [ids.get(token)] for token, entry in known)
    )


def read_json(path: Path, model_type: str = "") -> JsonModel:
    """Reads a `tokenizer.json` that is not BERT's, or RoBERTa's `vocab.json` and `merges.txt`.

    Raises:
      CheckpointError: it is damaged, or does not put `[CLS] a [SEP]` around a text.
      MissingExtraError: `tokenizers` is not installed.
    """
    if of_merges := _is_of_roberta(path):
        values = merges_values(path, path.with_name(MERGES))
    else:
        values = parse_values(path.read_bytes(), str(path))
    beside = read_beside(path, model_type, values)
    check(beside, "json", path)
    changes, made = {}, dict(values)
    prefix = beside.config.get("add_prefix_space")
    if prefix is not None:
        places = ("pre_tokenizer", "post_processor")
        made |= {place: with_prefix(values.get(place), prefix) for place in places}
    if made != values:
        changes["add_prefix_space"] = json.dumps(prefix)
    made["added_tokens"] = with_ids(beside, model_ids(values), path, _MAX_GAP)
    others = [entry for entry in made["added_tokens"] if not entry["special"]]
    if any(entry not in as_list(values.get("added_tokens")) for entry in others):
        changes["added_tokens"] = json.dumps(others)
    model = load_model(made, path)
    written = made if changes or of_merges else None
    return model._replace(values=written, changes=changes, added=beside.others)

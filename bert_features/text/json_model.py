"""Tokenizers that the `tokenizers` library runs: made of any `tokenizer.json`.

Each call of the library is in a `library_errors`. Importing this imports no framework.
"""

import base64
import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bert_features.errors import CheckpointError
from bert_features.text.frame import Frame
from bert_features.text.tokenizer_json import as_list, as_object, has_bert_normalizer
from bert_features.text.tokenizer_settings import OWN
from bert_features.text.vocabulary import UNK, ids_of

# What no text has, before pieces that no text may match.
_HIDDEN = "\ufdd0"
# Letters that a normaliser may make of one letter; Unicode's own make 18.
_MAX_GROWTH = 256
# Ids that a vocabulary may leave out beside the ids that it has.
_MAX_GAPS = 1 << 16


class JsonModel(NamedTuple):
    """A tokenizer of the `tokenizers` library.

    Attributes:
      tokenizer: the `tokenizers.Tokenizer`; the family's special tokens are ordinary to it.
      tokens: the pieces in the order of their ids.
      frame: the special tokens, as its post-processor puts them.
      source: the file that they come from.
      added: the added tokens that are not the family's own.
      splits_words: whether words are split at white space, and pieces of WordPiece show them.
      values: the `tokenizer.json` that it was made of.
      rules: the settings that are not the usual ones, by name.
    """

    tokenizer: Any
    tokens: list[str]
    frame: Frame
    source: Path
    added: Sequence[str]
    splits_words: bool
    values: dict[str, Any]
    rules: Mapping[str, Any] = {}

    def with_case(self, do_lower_case: bool | None) -> "JsonModel":
        """The same, but it lower-cases or does not, if that is what BERT's normaliser does here."""
        if not has_bert_normalizer(self.values):
            return self
        normalizer = self.values["normalizer"] | {"lowercase": do_lower_case is not False}
        return load_model(self.values | {"normalizer": normalizer}, self.source, self.frame)


@contextlib.contextmanager
def library_errors(source: Path) -> Iterator[None]:
    """Turns a failure of the `tokenizers` library into a CheckpointError."""
    try:
        yield
    except (CheckpointError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # it has no class of its own, and a panic is no Exception
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise CheckpointError(f"{source} is no tokenizer that can be read: {reason}") from error


def load_model(values: dict[str, Any], source: Path, frame: Frame | None = None) -> JsonModel:
    """Makes a tokenizer of the values of a `tokenizer.json`, whose special tokens are plain text.

    The frame is by default what the post-processor puts around texts.

    Raises:
      CheckpointError: the library refuses it, or it does not put `[CLS] a [SEP]` around a text.
    """
    _check_bounds(values, source)
    added, model = values["added_tokens"], as_object(values.get("model"))
    prefix = model.get("continuing_subword_prefix")  # of pieces within a word
    with library_errors(source):
        from tokenizers import Tokenizer

        tokenizer = encoder = Tokenizer.from_str(json.dumps(values))
        if prefix or isinstance(model.get("vocab"), list):
            encoder = Tokenizer.from_str(json.dumps(_without_specials(values)))
        for each in (tokenizer, encoder):
            each.no_truncation()
            each.no_padding()
            each.encode_special_tokens = True
        for entry in added:
            number = tokenizer.token_to_id(entry["content"])
            if number != entry["id"]:
                raise CheckpointError(
                    f"{source}: the added token {entry['content']!r} has id {entry['id']}, but the "
                    f"ids before it lead to {number}; allowed: ids without gaps"
                )
        tokens = _tokens(tokenizer.get_vocab(with_added_tokens=True), source)
        frame = frame or _frame(tokenizer, source)
    others = [entry for entry in added if not entry["special"]]
    blanks = any(e["lstrip"] or e["rstrip"] or re.search(r"\s", e["content"]) for e in others)
    return JsonModel(
        *(encoder, tokens, frame, source, [entry["content"] for entry in others]),
        splits_words=prefix == "##" and not blanks,
        values=values,
    )


def _tokens(ids: Mapping[str, int], source: Path) -> list[str]:
    """The pieces in the order of their ids; an id without a piece has an empty one."""
    last = max(ids.values(), default=-1)
    if last > len(ids) + _MAX_GAPS:
        raise CheckpointError(
            f"{source} has {len(ids)} pieces, but an id of {last}; allowed: ids without gaps"
        )
    tokens_by_id = {number: token for token, number in ids.items()}
    return [tokens_by_id.get(number, "") for number in range(last + 1)]


def _check_bounds(values: Mapping[str, Any], source: Path) -> None:
    """Refuses a normaliser that makes long texts of short ones, and pieces by chance."""
    growth = _growth(values.get("normalizer"))
    if growth > _MAX_GROWTH:
        raise CheckpointError(
            f"{source}: its normalizer can make {growth:,} letters of one; allowed: {_MAX_GROWTH}"
        )
    if dropout := as_object(values.get("model")).get("dropout"):
        raise CheckpointError(
            f"{source}: model.dropout is {dropout!r}, which splits words by chance; set it to null"
        )


def _growth(normalizer: Any) -> int:
    """The most letters that a normaliser of a `tokenizer.json` makes of one by replacing it."""
    rules = as_object(normalizer)
    growth = 1 + len(str(rules.get("content", rules.get("prepend", ""))))
    if isinstance(charsmap := rules.get("precompiled_charsmap"), str):
        with contextlib.suppress(ValueError):  # the library says what is wrong
            data = base64.b64decode(charsmap)
            start = 4 + int.from_bytes(data[:4], "little")
            growth = max(map(len, data[start:].split(b"\0")))
    if "normalizers" not in rules:  # a single letter that is replaced by another is as long
        return 1 if growth == 2 else growth
    for each in as_list(rules["normalizers"]):
        growth *= _growth(each)
    return growth


def _without_specials(values: Mapping[str, Any]) -> dict[str, Any]:
    """A `tokenizer.json` in which no text has a special piece.

    `tokenizers` finds `<s>` among the pieces as if it were a word; SentencePiece never does.
    """
    model = as_object(values.get("model"))
    special = OWN | {a["content"] for a in values["added_tokens"] if a["special"]}
    entries = model["vocab"] if isinstance(model["vocab"], list) else list(model["vocab"].items())
    names = (special & {piece for piece, _ in entries}) - {model.get("unk_token")}
    hidden = [[_HIDDEN + piece if piece in names else piece, value] for piece, value in entries]
    vocab = hidden if isinstance(model["vocab"], list) else dict(hidden)
    added = [a for a in values["added_tokens"] if a["content"] not in names]
    return {**values, "added_tokens": added, "model": model | {"vocab": vocab}}


def with_prefix(part: Any, prefix: bool) -> Any:
    """A pre_tokenizer or a post_processor for a blank before each text, or for none."""
    values = dict(as_object(part))
    if values.get("type") in ("ByteLevel", "RobertaProcessing"):
        values["add_prefix_space"] = prefix
    elif values.get("type") == "Metaspace":
        values.pop("add_prefix_space", None)  # its name of before
        values["prepend_scheme"] = "always" if prefix else "never"
    elif "pretokenizers" in values:
        parts = as_list(values["pretokenizers"])
        values["pretokenizers"] = [with_prefix(inner, prefix) for inner in parts]
    return values or part


def merges_values(path: Path, merges: Path) -> dict[str, Any]:
    """RoBERTa's tokenizer of vocab.json and merges.txt, as transformers makes it."""
    with library_errors(path):
        from tokenizers import Tokenizer, models, pre_tokenizers, processors

        tokenizer = Tokenizer(models.BPE.from_file(str(path), str(merges)))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        cls, sep = ((token, tokenizer.token_to_id(token) or 0) for token in ("<s>", "</s>"))
        tokenizer.post_processor = processors.RobertaProcessing(sep, cls, add_prefix_space=False)
        values: dict[str, Any] = json.loads(tokenizer.to_str())
    return values


def wordpiece_values(values: Mapping[str, Any], tokens: Sequence[str]) -> dict[str, Any]:
    """The `tokenizer.json` of BERT's tokenizer with a vocabulary, but for what `values` states."""
    last = ids_of(tokens)
    model = {
        **{"type": "WordPiece", "unk_token": UNK, "continuing_subword_prefix": "##"},
        **{"max_input_chars_per_word": 100, **as_object(values.get("model"))},
        "vocab": {t if last[t] == n else f"{_HIDDEN}{n}": n for n, t in enumerate(tokens)},
    }
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
    splitter = {"type": "BertPreTokenizer"}
    return {"normalizer": normalizer, "pre_tokenizer": splitter, **values, "model": model}


def _frame(tokenizer: Any, path: Path) -> Frame:
    """The special tokens, as the post-processor puts them around a text and a pair."""
    one, two = tokenizer.encode("a"), tokenizer.encode("a", "a")
    kinds = ["".join("as"[mask] for mask in found.special_tokens_mask) for found in (one, two)]
    match = re.fullmatch("sa+(s{1,2})a+s", kinds[1])
    seps = {number for number, mask in zip(two.ids, two.special_tokens_mask, strict=True) if mask}
    if not re.fullmatch("sa+s", kinds[0]) or match is None or seps != {two.ids[0], two.ids[-1]}:
        raise CheckpointError(
            f"{path}: its post-processor does not put one token before a text and one behind it, "
            "as [CLS] and [SEP]; make the ids with transformers and pass those"
        )

    def find(*names: str) -> int | None:
        return next(filter(lambda i: i is not None, map(tokenizer.token_to_id, names)), None)

    unknown, mask_id = find("[UNK]", "<unk>"), find("[MASK]", "<mask>")
    mask = tokenizer.get_added_tokens_decoder().get(mask_id)
    return Frame(
        cls_id=two.ids[0],
        sep_id=two.ids[-1],
        pad_id=find("[PAD]", "<pad>") or 0,
        unknown_id=-1 if unknown is None else unknown,
        mask_id=mask_id,
        mask_takes_blanks=mask is None or mask.lstrip,  # RoBERTa's vocab.json does not say it
        separators=len(match[1]),
        has_types=any(two.type_ids),
    )

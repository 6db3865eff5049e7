"""Tokenizers that the `tokenizers` library runs: made of any `tokenizer.json`.

Each call of the library is in a `library_errors`. Importing this imports no framework.
"""

import base64
import contextlib
import json
import math
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert_features.errors import CheckpointError
from bert_features.text.frame import Frame
from bert_features.text.tokenizer_json import as_list, as_object, has_bert_normalizer
from bert_features.text.tokenizer_settings import MERGES, OWN
from bert_features.text.vocabulary import UNK, ids_of

# What no text has, before pieces that no text may match.
_HIDDEN = "\ufdd0"
# Texts that show whether a tokenizer panics, as where it replaces an empty text.
_TRIALS = [("",), (" A b1.\n\u00e9 ",), ("a" * 256 + "!",), ("a", "")]
_messages = threading.Lock()
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
def library_errors(source: Path, at: str = "is no tokenizer that can be read") -> Iterator[None]:
    """Turns a failure of the `tokenizers` library into a CheckpointError; `at` says of what."""
    try:
        yield
    except (CheckpointError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # it has no class of its own, and a panic is no Exception
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise CheckpointError(f"{source} {at}: {reason}") from error


def _try(tokenizer: Any) -> None:
    """Encodes texts at which some tokenizers panic; the library's own message is not shown."""
    with _messages, contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # there may be no standard error
            stack.callback(os.close, terminal := os.dup(2))
            stack.callback(os.dup2, terminal, 2)
            os.dup2(stack.enter_context(Path(os.devnull).open("wb")).fileno(), 2)
        for trial in _TRIALS:
            tokenizer.encode(*trial)


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
            _try(each)
        for entry in added:
            number = tokenizer.token_to_id(entry["content"])
            if number != entry["id"]:
                raise CheckpointError(
                    f"{source}: the added token {entry['content']!r} has id {entry['id']}, but the "
                    f"ids before it lead to {number}; allowed: ids without gaps"
                )
        tokens = _tokens(tokenizer.get_vocab(with_added_tokens=True), source)
        frame = frame or _frame(tokenizer, source, len(tokens))
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
    """Refuses what makes long texts of short ones, takes long or ends the process, and chance."""
    parts = [*_parts(values.get("normalizer")), *_parts(values.get("pre_tokenizer"))]
    try:
        growth = math.prod(map(_growth, parts))
    except (IndexError, ValueError) as error:
        raise CheckpointError(
            f"{source}: its precompiled_charsmap is damaged; fetch it again"
        ) from error
    regexes = [str(as_object(part.get("pattern")).get("Regex", "")) for part in parts]
    counts = {
        "letters of one that its normalizer and pre_tokenizer can make": (growth, 256),
        "letters of a Regex": (max(map(len, regexes)), 4096),
        "groups of a Regex": (max(regex.count("(") for regex in regexes), 64),
    }
    for what, (count, most) in counts.items():
        if count > most:
            raise CheckpointError(f"{source}: there are {count:,} {what}; allowed: {most:,}")
    model = as_object(values.get("model"))
    # Pieces shorter than a prefix of BPE end in a panic of the library.
    for key in ("dropout", *["continuing_subword_prefix"] * (model.get("type") == "BPE")):
        if model.get(key):
            raise CheckpointError(
                f"{source}: model.{key} is {model[key]!r}, which is not followed; allowed: null"
            )


def _parts(part: Any) -> list[dict[str, Any]]:
    """The parts of a normaliser or a pre-tokenizer, which may be sequences of others."""
    rules = as_object(part)
    inner = [*as_list(rules.get("normalizers")), *as_list(rules.get("pretokenizers"))]
    return [rules, *chain.from_iterable(map(_parts, inner))]


def _growth(rules: Mapping[str, Any]) -> int:
    """The most letters that a part makes of one; IndexError or ValueError if it is damaged."""
    if rules.get("type") == "ByteLevel":
        return 4  # a letter for each byte
    if rules.get("type") == "Precompiled":
        return _growth_of_charsmap(base64.b64decode(str(rules.get("precompiled_charsmap"))))
    growth = 1 + len(str(rules.get("content", rules.get("prepend", ""))))
    return 1 if growth == 2 else growth  # a single letter that is replaced by another is as long


def _growth_of_charsmap(data: bytes) -> int:
    """The same of a trie, whose units lead to each other and to texts; the library trusts them."""
    end = 4 + int.from_bytes(data[:4], "little")
    units, texts = np.frombuffer(data[4:end], "<u4"), data[end:]
    following = np.arange(len(units)) ^ ((units >> 10) << ((units & 512) >> 6))
    inner = units < 1 << 31
    begins = units[following[inner & ((units & 256) > 0)]] & 0x7FFFFFFF
    in_letter = np.frombuffer(texts, np.uint8)[begins] & 0xC0 == 0x80
    texts.decode("utf-8")
    fits = 4 + 4 * len(units) == end and following[inner].max() < len(units)
    if not fits or len(units) % 256 or in_letter.any():
        raise ValueError("a unit leads outside")
    return max(map(len, texts.split(b"\0")))


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


def merges_values(path: Path) -> dict[str, Any]:
    """RoBERTa's tokenizer of vocab.json and merges.txt, as transformers makes it."""
    with library_errors(path):
        from tokenizers import Tokenizer, models, pre_tokenizers, processors

        tokenizer = Tokenizer(models.BPE.from_file(str(path), str(path.with_name(MERGES))))
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


def _frame(tokenizer: Any, path: Path, count: int) -> Frame:
    """The special tokens, as the post-processor puts them; `count` is the number of pieces."""
    a, b = (tokenizer.encode(text, add_special_tokens=False) for text in ("a", "a a"))
    one, two = tokenizer.encode("a"), tokenizer.encode("a", "a a")
    cls, sep = two.ids[0], two.ids[-1]
    seps = len(two.ids) - 2 - len(a.ids) - len(b.ids)
    row, pair = [cls, *a.ids, sep], [cls, *a.ids, *[sep] * seps, *b.ids, sep]
    texts = [None, *[0] * len(a.ids), *[None] * seps, *[1] * len(b.ids), None]
    types = [int(n > len(a.ids) + seps) for n in range(len(texts))]
    same = (one.ids, two.ids, two.sequence_ids) == (row, pair, texts) and not any(one.type_ids)
    known = seps in (1, 2) and two.type_ids in (types, [0] * len(types))
    if not (same and known and max(cls, sep) < count):
        raise CheckpointError(
            f"{path}: its post_processor does not put a token of its {count} pieces before a text "
            "and one behind it, as [CLS] and [SEP], and the same around a pair, of types 0 and 1; "
            "make the ids with transformers and pass those"
        )

    def find(*names: str) -> int | None:
        return next(filter(lambda i: i is not None, map(tokenizer.token_to_id, names)), None)

    unknown, mask_id = find("[UNK]", "<unk>"), find("[MASK]", "<mask>")
    mask = tokenizer.get_added_tokens_decoder().get(mask_id)
    return Frame(
        cls_id=cls,
        sep_id=sep,
        pad_id=find("[PAD]", "<pad>") or 0,
        unknown_id=-1 if unknown is None else unknown,
        mask_id=mask_id,
        mask_takes_blanks=mask is None or mask.lstrip,  # RoBERTa's vocab.json does not say it
        separators=seps,
        has_types=any(two.type_ids),
    )

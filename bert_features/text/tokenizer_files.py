"""The file of a tokenizer: a WordPiece vocabulary, a SentencePiece model, or a `tokenizer.json`.

Importing this imports no framework.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from bert_features.errors import CheckpointError, MissingExtraError
from bert_features.text.frame import Frame
from bert_features.text.sentencepiece_model import SentencePieceModel, read_model
from bert_features.text.tokenizer_json import is_wordpiece
from bert_features.text.vocabulary import ids_of, read_vocab, write_vocab

# In the order in which they are looked for. ALBERT's of google-research are 30k-clean, and those of
# Chinese have a vocab.txt.
NAMES = (
    *("vocab.txt", "spiece.model", "30k-clean.model", "sentencepiece.bpe.model"),
    *("tokenizer.json", "vocab.json"),
)
# Beside vocab.json, in the first files of RoBERTa.
MERGES = "merges.txt"
# What no text has, before special pieces of SentencePiece.
_HIDDEN = "\ufdd0"


class WordPieceFile(NamedTuple):
    """A vocabulary of WordPiece: its pieces in the order of their ids."""

    tokens: list[str]

    @property
    def frame(self) -> Frame:
        """[CLS], [SEP] and the others; a CheckpointError if one of these two is missing."""
        return Frame.of_bert(ids_of(self.tokens))


class JsonModel(NamedTuple):
    """A tokenizer of the `tokenizers` library.

    Attributes:
      tokenizer: the `tokenizers.Tokenizer`; special tokens typed in a text are ordinary to it.
      tokens: the pieces in the order of their ids.
      frame: the special tokens, as its post-processor puts them.
    """

    tokenizer: Any
    tokens: list[str]
    frame: Frame


TokenizerFile = WordPieceFile | SentencePieceModel | JsonModel


def read_tokenizer(path: Path, model_type: str = "") -> TokenizerFile:
    """Reads the file of a tokenizer; the model's type decides about CamemBERT's ids.

    Raises:
      CheckpointError: it cannot be read, or is of a kind or a family that is not supported.
      MissingExtraError: it is not BERT's `tokenizer.json`, and `tokenizers` is not installed.
    """
    if path.suffix == ".model":
        return read_model(path, model_type)
    if not is_bert(path):
        return read_json(path)
    return WordPieceFile(read_vocab(path))


def is_bert(path: Path) -> bool:
    """Whether a file holds a WordPiece vocabulary; it is not read whole."""
    if path.suffix == ".json":
        return not _is_of_roberta(path) and is_wordpiece(path)
    return path.suffix != ".model"


def _is_of_roberta(path: Path) -> bool:
    """Whether merges.txt belongs to it."""
    return path.name == "vocab.json"


def keeps_case(path: Path) -> bool:
    """Whether nothing is lower-cased here: XLM-R keeps case, a `tokenizer.json` does it itself."""
    return not is_bert(path) and (path.suffix == ".json" or not read_model(path).is_albert)


def write_tokenizer(source: Path, folder: Path) -> Path:
    """Writes a tokenizer's file into a folder, a `vocab.txt` or a copy of another.

    Returns its path.
    """
    target = folder / ("vocab.txt" if is_bert(source) else _standard_name(source))
    if is_bert(source):
        write_vocab(source, target)
    elif _is_of_roberta(source):
        read_json(source).tokenizer.save(str(target))
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
        else "tokenizer.json"
    )


def read_json(path: Path) -> JsonModel:
    """Reads a `tokenizer.json` that is not BERT's, or RoBERTa's `vocab.json` and `merges.txt`.

    Raises:
      CheckpointError: it is damaged, or does not put `[CLS] a [SEP]` around a text.
      MissingExtraError: `tokenizers` is not installed.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtraError(f"tokenizers, which {path.name} needs,", "tokenizers") from error
    try:
        tokenizer = _of_merges(path) if _is_of_roberta(path) else Tokenizer.from_file(str(path))
        encoder = tokenizer
        if type(tokenizer.model).__name__ == "Unigram":
            encoder = Tokenizer.from_str(_without_specials(path.read_text(encoding="utf-8")))
    except Exception as error:  # the library has no class of its own
        raise CheckpointError(f"{path} is no tokenizer that can be read: {error}") from error
    for each in (tokenizer, encoder):
        each.no_truncation()
        each.no_padding()
        each.encode_special_tokens = True
    ids = tokenizer.get_vocab(with_added_tokens=True)
    tokens = [""] * (max(ids.values(), default=-1) + 1)
    for token, number in ids.items():
        tokens[number] = token
    return JsonModel(encoder, tokens, _frame(tokenizer, path))


def _of_merges(path: Path) -> Any:
    """RoBERTa's tokenizer, as transformers makes it of these files."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.BPE.from_file(str(path), str(path.with_name(MERGES))))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    cls, sep = ((token, tokenizer.token_to_id(token) or 0) for token in ("<s>", "</s>"))
    tokenizer.post_processor = processors.RobertaProcessing(sep, cls, add_prefix_space=False)
    return tokenizer


def _without_specials(text: str) -> str:
    """A `tokenizer.json` of SentencePiece in which no text has a special piece.

    `tokenizers` finds `<s>` among the pieces as if it were a word; SentencePiece never does.
    """
    values = json.loads(text)
    special = {added["content"] for added in values["added_tokens"] if added["special"]}
    found = [entry for entry in values["model"]["vocab"] if entry[0] in special]
    names = {entry[0] for entry in found}
    values["added_tokens"] = [a for a in values["added_tokens"] if a["content"] not in names]
    for entry in found:
        entry[0] = _HIDDEN + entry[0]
    return json.dumps(values)


def _frame(tokenizer: Any, path: Path) -> Frame:
    """The special tokens, as the post-processor puts them around a text and a pair."""
    one, two = tokenizer.encode("a"), tokenizer.encode("a", "a")
    kinds = ["".join("as"[mask] for mask in found.special_tokens_mask) for found in (one, two)]
    match = re.fullmatch("sa+(s{1,2})a+s", kinds[1])
    seps = {number for number, mask in zip(two.ids, two.special_tokens_mask, strict=True) if mask}
    if not re.fullmatch("sa+s", kinds[0]) or match is None or seps != {two.ids[0], two.ids[-1]}:
        raise CheckpointError(
            f"{path}: its post-processor does not put one token before a text and one behind it, "
            "as [CLS] and [SEP]; write it again by transformers: "
            "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)"
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

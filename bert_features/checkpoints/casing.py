"""What tells whether a checkpoint's texts are to be lower-cased."""

import re
from collections.abc import Sequence
from pathlib import Path

from bert_features.checkpoints.locate import is_saved_model, root_of
from bert_features.checkpoints.weight_names import Kind
from bert_features.checkpoints.weight_readers import damage_is_an_error, open_weights
from bert_features.config.bert_config import read_json_object
from bert_features.text.vocabulary import read_vocab

# The prefixes of google-research/bert's published names, whose casing its tokenization.py knows
# (validate_case_matches_checkpoint), and the words in Hugging Face's.
_CASING_OF_NAME: list[tuple[re.Pattern[str], bool]] = [
    (re.compile(r"^(wwm_)?uncased_L-|^(multilingual|chinese)_L-"), True),
    (re.compile(r"^(wwm_)?cased_L-|^multi_cased_L-"), False),
    (re.compile(r"(^|[-_])uncased([-_.]|$)"), True),
    (re.compile(r"(^|[-_])cased([-_.]|$)"), False),
]

# A vocabulary of fewer pieces tells nothing by what it lacks.
_TELLING_PIECES = 1000
_CASED_SHARE = 0.01


def casing_of(
    weights: Path, kind: Kind, vocab: Path | None, *names: str
) -> tuple[bool | None, str]:
    """Whether texts are to be lower-cased, and what says so: the strongest evidence first.

    Args:
      weights: where they lie.
      kind: how they are stored.
      vocab: the vocabulary, if there is one.
      *names: further names of the checkpoint, which may tell it.

    Raises:
      CheckpointError: a file that tells it cannot be read.
    """
    root = root_of(weights)
    tokenizer_config = root / "tokenizer_config.json"
    if tokenizer_config.is_file():
        told = read_json_object(tokenizer_config).get("do_lower_case")
        if isinstance(told, bool):
            return told, f"do_lower_case is {str(told).lower()} in {tokenizer_config.name}"
    if kind == "tf2" and is_saved_model(weights):
        told = _stored_casing(weights)
        if told is not None:
            return told, f"do_lower_case is {str(told).lower()} in its variables"
    for name in (*names, root.resolve().name, weights.name):
        for pattern, lower in _CASING_OF_NAME:
            if pattern.search(name):
                return lower, f"its name is {name}"
    if vocab is not None:
        lower_cased = casing_of_vocabulary(read_vocab(vocab))
        if lower_cased is not None:
            which = "no" if lower_cased else "many"
            return lower_cased, f"{which} pieces of {vocab.name} have upper-case letters"
    return None, ""


def casing_of_vocabulary(tokens: Sequence[str]) -> bool | None:
    """Whether a vocabulary is uncased, by its pieces; None if they do not tell.

    Without any upper-case letter in a thousand pieces it is; with one in more than 1 % it is not.
    """
    pieces = [t.removeprefix("##") for t in tokens if not re.fullmatch(r"\[.*\]|<.*>", t)]
    upper = sum(piece != piece.lower() for piece in pieces)
    if upper > _CASED_SHARE * len(pieces):
        return False
    return True if not upper and len(pieces) >= _TELLING_PIECES else None


def _stored_casing(variables: Path) -> bool | None:
    """What a BERT of TF-Hub says by its variable `do_lower_case`, None where it has none."""
    reader = open_weights(variables, "tf2")
    if reader.shapes().get("do_lower_case") != ():
        return None
    with damage_is_an_error(variables):
        return bool(reader.read("do_lower_case"))

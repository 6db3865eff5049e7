"""Whether a checkpoint's texts are to be lower-cased, and what shows it."""

import re
from collections.abc import Sequence
from pathlib import Path

from bert_features.checkpoints.weights.weight_readers import WeightFiles, damage_is_an_error
from bert_features.text.tokenizer_files import keeps_case, read_pieces
from bert_features.text.tokenizer_json import bert_normalizer, read_outline
from bert_features.text.tokenizer_settings import CONFIG, TOKENIZER, read_config

# The prefixes of google-research/bert's published names, whose casing its tokenization.py knows
# (validate_case_matches_checkpoint); the words in Hugging Face's and TF-Hub's; and TF-Hub's models
# of those names without such a word (bert_zh_L-12_H-768_A-12, on Kaggle zh-l-12-h-768-a-12).
_CASING_OF_NAME: list[tuple[re.Pattern[str], bool]] = [
    (re.compile(r"^(wwm_)?uncased_L-|^(multilingual|chinese)_L-"), True),
    (re.compile(r"^(wwm_)?cased_L-|^multi_cased_L-"), False),
    (re.compile(r"(^|[-_])uncased([-_.]|$)"), True),
    (re.compile(r"(^|[-_])cased([-_.]|$)"), False),
    (re.compile(r"^(bert[-_])?(zh|chinese|multilingual)[-_]l-\d", re.IGNORECASE), True),
]

# A smaller vocabulary shows nothing by having no upper-case letters.
_MIN_UNCASED_PIECES = 1000
_CASED_SHARE = 0.01


def casing_of(weights: WeightFiles, vocab: Path | None, *names: str) -> tuple[bool | None, str]:
    """Whether texts are to be lower-cased, and what shows it; the strongest evidence counts.

    `names` are further names of the checkpoint. None and an empty text if nothing shows it; raises
    CheckpointError if a file that may show it cannot be read.
    """
    if vocab is not None and keeps_case(vocab):
        return False, f"{vocab.name} decides about case by itself"
    root = weights.root
    lower = read_config(root).get("do_lower_case")
    if isinstance(lower, bool):
        return lower, f"do_lower_case is {str(lower).lower()} in {CONFIG}"
    tokenizer = vocab if vocab is not None and vocab.suffix == ".json" else root / TOKENIZER
    lower = bert_normalizer(read_outline(tokenizer)).get("lowercase")
    if isinstance(lower, bool):
        return lower, f"normalizer.lowercase is {str(lower).lower()} in {tokenizer.name}"
    has_variables = weights.kind == "tf2" and weights.in_saved_model
    if has_variables and weights.reader.shapes().get("do_lower_case") == ():  # of TF-Hub's BERTs
        with damage_is_an_error(weights.path):
            lower = bool(weights.reader.read("do_lower_case"))
        return lower, f"do_lower_case is {str(lower).lower()} in its variables"
    for name in (*names, root.resolve().name, weights.path.name):
        for pattern, lower in _CASING_OF_NAME:
            if pattern.search(name):
                return lower, f"its name is {name}"
    if vocab is not None:
        lower = casing_of_vocabulary(read_pieces(vocab))
        if lower is not None:
            which = "no" if lower else "many"
            return lower, f"{which} pieces of {vocab.name} have upper-case letters"
    return None, ""


def casing_of_vocabulary(tokens: Sequence[str]) -> bool | None:
    """Whether a vocabulary is uncased, by its pieces; None if they do not show it.

    It is uncased without any upper-case letter in at least a thousand pieces, and cased with one in
    more than 1 % of them.
    """
    pieces = [t.removeprefix("##") for t in tokens if not re.fullmatch(r"\[.*\]|<.*>", t)]
    upper = sum(piece != piece.lower() for piece in pieces)
    if upper > _CASED_SHARE * len(pieces):
        return False
    return True if not upper and len(pieces) >= _MIN_UNCASED_PIECES else None

"""Tokenizers: one of which every character is a piece, and those of published vocabularies."""

import json
import unicodedata

import pytest

from bert_features.text.tokenization import FullTokenizer
from tests.text.comparison import characters
from tests.toy import SPECIAL


@pytest.fixture(scope="package")
def character_vocab():
    """Every visible character is a piece, also of a decomposition: nothing can hide in [UNK]."""
    hidden = ("Zs", "Zl", "Zp", "Cc", "Cs", "Cn", "Co")
    visible = "".join(characters())
    with_parts = dict.fromkeys(visible + unicodedata.normalize("NFD", visible))
    chars = [char for char in with_parts if unicodedata.category(char) not in hidden]
    return [*SPECIAL, *chars, *("##" + char for char in chars)]


@pytest.fixture(scope="package", params=["uncased", "cased"])
def character_tokenizer(request, character_vocab):
    return FullTokenizer(character_vocab, do_lower_case=request.param == "uncased")


@pytest.fixture(scope="package")
def minilm(minilm_dir):
    return FullTokenizer(minilm_dir / "vocab.txt", do_lower_case=True)


@pytest.fixture(scope="package", params=["uncased", "cased", "chinese"])
def case(request, data, vocabularies):
    """(tokenizer, texts with published tokens and ids) of one published vocabulary."""
    vocab = {"cased": "cased_28996.txt", "chinese": "chinese_21128.txt"}
    if request.param == "uncased":
        path = request.getfixturevalue("minilm_dir") / "vocab.txt"
    else:
        path = vocabularies / vocab[request.param]
    cases = json.loads((data / "tokenization_cases.json").read_text())["cases"]
    # The Chinese cases were published for Hugging Face's bert-base-chinese, which keeps case.
    tokenizer = FullTokenizer(path, do_lower_case=request.param == "uncased")
    return tokenizer, cases[request.param]

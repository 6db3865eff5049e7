"""The official BERT tokenizer in plain Python: slow, readable, the oracle for the graph one.

It follows the algorithm of google-research/bert's `tokenization.py` (BasicTokenizer, then greedy
longest-match-first WordPiece) step by step.
"""

import functools
import unicodedata
from dataclasses import dataclass

MAX_CHARS_PER_WORD = 200  # the official bound; longer words become [UNK]

CJK_RANGES = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def is_whitespace(char: str) -> bool:
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def is_control(char: str) -> bool:
    return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def is_punctuation(char: str) -> bool:
    ascii_punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    return char in ascii_punctuation or unicodedata.category(char).startswith("P")


def is_chinese(char: str) -> bool:
    return any(first <= ord(char) <= last for first, last in CJK_RANGES)


@functools.cache
def clean(char: str) -> str:
    if char in "\0\ufffd" or is_control(char):
        return ""
    if is_whitespace(char):
        return " "
    return char


@functools.cache
def isolate(char: str) -> str:
    return f" {char} " if is_punctuation(char) else char


def basic_tokenize(
    text: str, *, lower: bool, strip: bool | None = None, chinese: bool = True
) -> list[str]:
    """The official words; `strip` and `chinese` are Hugging Face's switches."""
    cleaned = "".join(map(clean, text))
    if chinese:
        cleaned = "".join(f" {char} " if is_chinese(char) else char for char in cleaned)
    words = cleaned.split()
    if lower:
        words = [word.lower() for word in words]
    if lower if strip is None else strip:
        decomposed = (unicodedata.normalize("NFD", word) for word in words)
        words = ["".join(c for c in word if unicodedata.category(c) != "Mn") for word in decomposed]
    return " ".join("".join(map(isolate, word)) for word in words).split()


def wordpiece(word: str, vocab: dict[str, int]) -> list[str]:
    if len(word) > MAX_CHARS_PER_WORD:
        return ["[UNK]"]
    pieces = []
    start = 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = ("##" if start else "") + word[start:end]
            if piece in vocab:
                break
        else:
            return ["[UNK]"]
        pieces.append(piece)
        start = end
    return pieces


@dataclass(frozen=True)
class ReferenceTokenizer:
    vocab: dict[str, int]
    lower: bool
    strip: bool | None = None
    chinese: bool = True

    @classmethod
    def from_tokens(cls, tokens: list[str], **switches: bool | None) -> "ReferenceTokenizer":
        return cls({token: index for index, token in enumerate(tokens)}, **switches)

    def tokenize(self, text: str) -> list[str]:
        words = basic_tokenize(text, lower=self.lower, strip=self.strip, chinese=self.chinese)
        return [piece for word in words for piece in wordpiece(word, self.vocab)]

    def ids(self, text: str) -> list[int]:
        return [self.vocab[piece] for piece in self.tokenize(text)]

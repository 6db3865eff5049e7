"""google-research/bert's `tokenization`, for code written for it.

    from bert_features.official import tokenization

Programs change tokenizers, their parts and the functions here. So these are plain Python, with the
original's names and calls of each other. The graph of `text` gives the same pieces, faster.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import tensorflow as tf

from bert_features.checkpoints.sources.published import resolve
from bert_features.errors import CheckpointError
from bert_features.official import refusing
from bert_features.text.unicode_tables import CHINESE_RANGES, is_punctuation
from bert_features.text.vocabulary import MAX_CHARS_PER_WORD, UNK, ids_of, parse_vocab

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class FullTokenizer:
    """Splits texts into words, and words into the pieces of a vocabulary; errors as `load_vocab`.

    Args:
      vocab_file: the path or the address of a `vocab.txt`.
      do_lower_case: whether to lower-case and strip accents, as uncased checkpoints need.
    """

    def __init__(self, vocab_file: str | Path, do_lower_case: bool = True) -> None:
        self.vocab = load_vocab(vocab_file)
        self.inv_vocab = {index: token for token, index in self.vocab.items()}
        self.basic_tokenizer = BasicTokenizer(do_lower_case=do_lower_case)
        self.wordpiece_tokenizer = WordpieceTokenizer(vocab=self.vocab)

    def tokenize(self, text: str | bytes) -> list[str]:
        """The pieces of one text."""
        words = self.basic_tokenizer.tokenize(text)
        return [piece for word in words for piece in self.wordpiece_tokenizer.tokenize(word)]

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """The id of each piece; errors as `convert_by_vocab`."""
        return convert_by_vocab(self.vocab, tokens)

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """The piece of each id; errors as `convert_by_vocab`."""
        return convert_by_vocab(self.inv_vocab, ids)


@dataclass
class BasicTokenizer:
    """Splits texts into words: at white space, around punctuation, around each CJK ideograph.

    With `do_lower_case` it also lower-cases and strips accents.
    """

    do_lower_case: bool = True

    def tokenize(self, text: str | bytes) -> list[str]:
        """The words of one text."""
        cleaned = self._tokenize_chinese_chars(self._clean_text(convert_to_unicode(text)))
        parts: list[str] = []
        for word in whitespace_tokenize(cleaned):
            if self.do_lower_case:
                word = self._run_strip_accents(word.lower())
            parts += self._run_split_on_punc(word)
        return whitespace_tokenize(" ".join(parts))

    def _clean_text(self, text: str) -> str:
        real = (c for c in text if c not in "\0\ufffd" and not _is_control(c))
        return "".join(" " if _is_whitespace(c) else c for c in real)

    def _tokenize_chinese_chars(self, text: str) -> str:
        return "".join(f" {c} " if self._is_chinese_char(ord(c)) else c for c in text)

    def _is_chinese_char(self, cp: int) -> bool:
        return any(first <= cp <= last for first, last in CHINESE_RANGES)

    def _run_strip_accents(self, text: str) -> str:
        decomposed = unicodedata.normalize("NFD", text)
        return "".join(c for c in decomposed if unicodedata.category(c) != "Mn")

    def _run_split_on_punc(self, text: str) -> list[str]:
        marked = "".join(f"\0{c}\0" if _is_punctuation(c) else c for c in text)  # texts have no \0
        return [part for part in marked.split("\0") if part]


@dataclass(repr=False)
class WordpieceTokenizer:
    """Splits words into the pieces of any vocabulary, the longest first.

    Attributes:
      vocab: piece -> id; pieces within a word begin with `##`.
      unk_token: replaces a word that is too long, or that no pieces make up.
      max_input_chars_per_word: the longest word, in characters.
    """

    vocab: Mapping[str, int]
    unk_token: str = UNK
    max_input_chars_per_word: int = MAX_CHARS_PER_WORD

    def tokenize(self, text: str | bytes) -> list[str]:
        """The pieces of a text whose words stand between white space."""
        words = whitespace_tokenize(convert_to_unicode(text))
        return [piece for word in words for piece in self._match(word)]

    def _match(self, word: str) -> list[str]:
        if len(word) > self.max_input_chars_per_word:
            return [self.unk_token]
        pieces: list[str] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self.vocab), None)
            if end is None:
                return [self.unk_token]
            pieces.append(prefix + word[start:end])
            start = end
        return pieces


def load_vocab(vocab_file: str | Path) -> dict[str, int]:
    """Piece -> id of a `vocab.txt`, by its path or its address (`gs://…`).

    Raises:
      CheckpointError: it cannot be read, is empty, or is not UTF-8.
    """
    return ids_of(_read_pieces(vocab_file))


def _read_pieces(vocab_file: str | Path) -> list[str]:
    try:
        with tf.io.gfile.GFile(str(vocab_file), "rb") as file:
            return parse_vocab(file.read(), vocab_file)
    except tf.errors.OpError as error:
        raise CheckpointError(f"cannot read the vocabulary {vocab_file}: {error.message}") from None


def validate_case_matches_checkpoint(do_lower_case: bool, init_checkpoint: str | None) -> None:
    """Compares the casing with the casing of Google's published name in a checkpoint's path.

    Raises:
      ValueError: they differ.
    """
    match = re.search(r"([\w-]+)/bert_model\.ckpt", init_checkpoint or "", re.ASCII)
    published = resolve(match[1]) if match else None
    if published and (published.casing == "uncased") != bool(do_lower_case):
        raise ValueError(
            f"do_lower_case is {do_lower_case}, but {published.name} is {published.casing}"
        )


def convert_to_unicode(text: str | bytes) -> str:
    """The text; bytes as UTF-8 without what is not.

    Raises:
      ValueError: `text` is neither str nor bytes.
    """
    if isinstance(text, str):
        return text
    if isinstance(text, bytes):
        return text.decode("utf-8", "ignore")
    raise ValueError(f"text is a {type(text).__name__}; allowed: str, bytes")


printable_text = convert_to_unicode  # the two differed in Python 2


def convert_by_vocab(vocab: Mapping[_Key, _Value], items: Iterable[_Key]) -> list[_Value]:
    """The value of each item.

    Raises:
      KeyError: an item is not in the vocabulary.
    """
    return [vocab[item] for item in items]


def convert_tokens_to_ids(vocab: Mapping[str, int], tokens: Iterable[str]) -> list[int]:
    """The id of each piece; errors as `convert_by_vocab`."""
    return convert_by_vocab(vocab, tokens)


def convert_ids_to_tokens(inv_vocab: Mapping[int, str], ids: Iterable[int]) -> list[str]:
    """The piece of each id; errors as `convert_by_vocab`."""
    return convert_by_vocab(inv_vocab, ids)


def whitespace_tokenize(text: str) -> list[str]:
    """The parts of a text between white space."""
    return text.split()


def _is_whitespace(char: str) -> bool:
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def _is_control(char: str) -> bool:
    return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def _is_punctuation(char: str) -> bool:
    return is_punctuation(char, unicodedata.category(char))


__getattr__ = refusing("tokenization")

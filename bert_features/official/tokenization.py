"""google-research/bert's `tokenization`, for code written for it.

    from bert_features.official import tokenization

FullTokenizer and BasicTokenizer are the graphs of `text`, which give the official tokens. For many
texts `FullTokenizer.encode_ids`, which takes them together, is many times as fast as `tokenize`.
"""

import itertools
import re
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import tensorflow as tf

from bert_features.checkpoints.published import resolve
from bert_features.errors import CheckpointError, check_process
from bert_features.text import tokenization
from bert_features.text.normalization import Characters, find_words
from bert_features.text.tokenizer import utf8
from bert_features.text.unicode_tables import is_punctuation
from bert_features.text.vocabulary import MAX_CHARS_PER_WORD, UNK, ids_of, parse_vocab

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class FullTokenizer(tokenization.FullTokenizer):
    """`text.FullTokenizer`, with what else the original has.

    Args:
      vocab_file: the path or the address of a `vocab.txt`.
      do_lower_case: whether to lower-case and strip accents, as uncased checkpoints need.

    Attributes:
      inv_vocab: id -> piece.
      basic_tokenizer: splits texts into words.
      wordpiece_tokenizer: splits words into pieces.

    Raises:
      CheckpointError: see `text.FullTokenizer`.
    """

    def __init__(self, vocab_file: str | Path, do_lower_case: bool = True) -> None:
        super().__init__(_read_pieces(vocab_file), do_lower_case)
        self.inv_vocab = {index: token for token, index in self.vocab.items()}
        self.basic_tokenizer = BasicTokenizer(do_lower_case)
        self.wordpiece_tokenizer = WordpieceTokenizer(self.vocab)

    def tokenize(self, text: str | bytes) -> list[str]:
        """The pieces of one text."""
        return super().tokenize(convert_to_unicode(text))


class BasicTokenizer:
    """Splits texts into words: at white space, around punctuation, around each CJK ideograph.

    Args:
      do_lower_case: whether to lower-case and strip accents.
    """

    def __init__(self, do_lower_case: bool = True) -> None:
        check_process()
        self.do_lower_case = do_lower_case
        self._words = tf.function(
            self._find, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False
        )

    def tokenize(self, text: str | bytes) -> list[str]:
        """The words of one text."""
        check_process()
        codes, starts = self._words([utf8(convert_to_unicode(text))])
        letters = "".join(map(chr, codes.numpy()))
        bounds = [*starts.numpy().tolist(), len(letters)]
        return [letters[a:b] for a, b in itertools.pairwise(bounds)]

    def _find(self, texts: Any) -> tuple[Any, Any]:
        decoded = Characters.of(tf.strings.unicode_decode(texts, "UTF-8"))
        words = find_words(decoded, do_lower_case=self.do_lower_case)
        return words.characters.codes, words.starts


class WordpieceTokenizer:
    """Splits words into the pieces of any vocabulary, the longest first, in plain Python.

    Args:
      vocab: piece -> id; pieces within a word begin with `##`.
      unk_token: replaces a word that is too long, or that no pieces make up.
      max_input_chars_per_word: the longest word, in characters.
    """

    def __init__(
        self,
        vocab: Mapping[str, int],
        unk_token: str = UNK,
        max_input_chars_per_word: int = MAX_CHARS_PER_WORD,
    ) -> None:
        self.vocab = vocab
        self.unk_token = unk_token
        self.max_input_chars_per_word = max_input_chars_per_word

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


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"tokenization.{name} is not here; docs/migrating.md lists what is left out, and what to "
        "use"
    )

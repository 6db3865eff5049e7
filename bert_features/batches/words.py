"""The words of a text: as the input has them, split at white space, or as BERT splits them.

A *unit* is a string that is tokenised on its own: a word of an input that came as words (or is
split at white space), or a whole text. Shape legend: `N` examples, `U` units, `P` pieces.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import numpy as np

from bert_features.errors import ConfigError
from bert_features.readers.input_example import InputExample

WordSplit = Literal["bert", "whitespace"]

_WORD = re.compile(r"\S+")
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")


def check_split(
    split: WordSplit | None, examples: Iterable[InputExample], *, splits_words: bool
) -> None:
    """Refuses to split texts like BERT with a tokenizer that does not; raises ConfigError."""
    if split == "bert" and not splits_words and any(each.words_a is None for each in examples):
        raise ConfigError.naming(
            "{word_split} is 'bert', which needs a WordPiece vocabulary, and this checkpoint has "
            "another; pass {word_split:'whitespace'}, or an input of words"
        )


@dataclass(frozen=True)
class WordPieces:
    """The words of several examples and their pieces; text_a comes before text_b.

    Texts are numbered 2 * i for text_a and 2 * i + 1 for text_b of example i.

    Attributes:
      texts: int64 [W], the number of the text of each, ascending.
      first_pieces: int64 [W], where its pieces begin among all P.
      num_pieces: int64 [W]; 0 for a word that vanished in cleaning.
      starts: int32 [W], its first character in the text, or -1.
      ends: int32 [W], one past its last character, or -1.
    """

    texts: np.ndarray
    first_pieces: np.ndarray
    num_pieces: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


@dataclass
class Units:
    """The units of several examples, text_a's before text_b's.

    Attributes:
      strings: U units.
      starts: U, the first character of each in its text; -1 for words of the input.
      ends: U, one past the last character, or -1.
      per_text: 2 * N, how many units each text has.
      are_words: 2 * N, whether the units of each text are its words.
    """

    strings: list[str]
    starts: list[int]
    ends: list[int]
    per_text: list[int]
    are_words: list[bool]

    @classmethod
    def of(cls, examples: Iterable[InputExample], split: WordSplit | None) -> "Units":
        """The units of some examples; without a split, whole texts."""
        examples = list(examples)
        if split is None and not any(e.words_a or e.words_b for e in examples):
            return cls.whole_texts(examples)
        units = cls([], [], [], [], [])
        for example in examples:
            units._add(example.text_a, example.words_a, split)
            units._add(example.text_b, example.words_b, split)
        return units

    @classmethod
    def whole_texts(cls, examples: Sequence[InputExample]) -> "Units":
        """Whole texts, words of the input joined; places matter to words alone."""
        texts = [text for example in examples for text in (example.text_a, example.text_b)]
        strings = [text for text in texts if text is not None]
        nowhere = [0] * len(strings)
        per_text = [int(text is not None) for text in texts]
        return cls(strings, nowhere, nowhere, per_text, [False] * len(texts))

    def _add(self, text: str | None, words: Sequence[str] | None, split: WordSplit | None) -> None:
        if words is not None:
            strings, starts, ends = [*words], [-1] * len(words), [-1] * len(words)
        elif split == "whitespace":
            matches = list(_WORD.finditer(text or ""))
            strings = [match.group() for match in matches]
            starts, ends = [m.start() for m in matches], [m.end() for m in matches]
        else:
            strings, starts, ends = ([], [], []) if text is None else ([text], [0], [len(text)])
        self.strings += strings
        self.starts += starts
        self.ends += ends
        self.per_text.append(len(strings))
        self.are_words.append(words is not None or split == "whitespace")


def text_lengths(unit_lengths: np.ndarray, per_text: np.ndarray) -> np.ndarray:
    """int64 [2 * N], the pieces of each text, from the pieces of its units."""
    pieces = np.concatenate([[0], np.cumsum(unit_lengths)])
    ends = np.cumsum(per_text)
    lengths: np.ndarray = pieces[ends] - pieces[ends - per_text]
    return lengths


def find_words(
    units: Units,
    *,
    unit_lengths: np.ndarray,
    begins_word: np.ndarray,
    piece_starts: np.ndarray,
    piece_ends: np.ndarray,
) -> WordPieces:
    """Finds the words of some texts, and their pieces.

    Args:
      units: the units of the texts. Where a text's units are not its words, its pieces show where
        words begin.
      unit_lengths: int64 [U], number of pieces of each unit.
      begins_word: bool [P], whether a piece is the first of a word.
      piece_starts: int32 [P], the first character of each piece; read only where units are no
        words.
      piece_ends: int32 [P], one past its last character; read as `piece_starts`.
    """
    per_text = np.array(units.per_text, np.int64)
    are_words = np.array(units.are_words, bool)
    text_of_unit = np.repeat(np.arange(len(per_text)), per_text)
    first_pieces = np.cumsum(unit_lengths) - unit_lengths
    given = np.flatnonzero(are_words[text_of_unit])
    text_of_piece = np.repeat(text_of_unit, unit_lengths)
    found = np.flatnonzero(begins_word & ~are_words[text_of_piece])
    # A found word ends where the next begins, or its text ends.
    text_ends = np.cumsum(text_lengths(unit_lengths, per_text))
    following = np.append(found[1:], len(begins_word))
    ends = np.minimum(following, text_ends[text_of_piece[found]])
    columns = (
        (text_of_unit[given], text_of_piece[found]),
        (first_pieces[given], found),
        (unit_lengths[given], ends - found),
        (np.array(units.starts, np.int32)[given], piece_starts[found]),
        (np.array(units.ends, np.int32)[given], piece_ends[ends - 1]),
    )
    joined = [np.concatenate(column) for column in columns]
    order = np.argsort(joined[0], kind="stable")
    return WordPieces(*(column[order] for column in joined))


def locate_words(
    examples: Sequence[InputExample],
    *,
    lengths: np.ndarray,
    piece_starts: np.ndarray,
    piece_ends: np.ndarray,
) -> WordPieces:
    """Finds words by their places: the words of the input, or what stands between white space.

    For tokenizers that make other pieces of a word where it stands alone. A piece belongs to the
    first word that it shares a character with, and an empty one to the word that begins there.

    Args:
      examples: the examples, whose units are whole texts.
      lengths: int64 [2 * N], number of pieces of each text.
      piece_starts: int32 [P], the first character of each piece in its text.
      piece_ends: int32 [P], one past its last character.
    """
    found = [
        _word_spans(text, words)
        for example in examples
        for text, words in ((example.text_a, example.words_a), (example.text_b, example.words_b))
    ]
    texts = np.repeat(np.arange(len(found)), [len(spans) for spans in found])
    spans = np.array([span for part in found for span in part], np.int64).reshape(-1, 2)
    given = np.array([e.words_a is not None for e in examples], bool)[texts // 2]
    # Places in all texts, one after the other.
    stride = int(max(spans.max(initial=0), piece_ends.max(initial=0))) + 2
    begins, ends = (spans + (texts * stride)[:, None]).T
    before = np.repeat(np.arange(len(found)) * stride, lengths)
    words = np.flatnonzero(begins < ends)
    nth = np.searchsorted(ends[words], before + piece_starts, side="right")
    word = np.append(words, -1)[nth]
    last = before + np.maximum(piece_ends, piece_starts + 1)
    inside = np.flatnonzero((word >= 0) & (np.append(begins, stride)[word] < last))
    first_pieces = np.zeros(len(texts), np.int64)
    own, nth_piece = np.unique(word[inside], return_index=True)
    first_pieces[own] = inside[nth_piece]
    return WordPieces(
        texts=texts,
        first_pieces=first_pieces,
        num_pieces=np.bincount(word[inside], minlength=len(texts)),
        starts=np.where(given, -1, spans[:, 0]).astype(np.int32),
        ends=np.where(given, -1, spans[:, 1]).astype(np.int32),
    )


def _word_spans(text: str | None, words: Sequence[str] | None) -> list[tuple[int, int]]:
    """The first character of each word, and one past its last."""
    if words is None:
        return [match.span() for match in _WORD.finditer(text or "")]
    ends = accumulate((len(word) + 1 for word in words), initial=-1)
    return [(end - len(word), end) for word, end in zip(words, list(ends)[1:], strict=True)]


def word_strings(
    example: InputExample, starts: np.ndarray, ends: np.ndarray, type_ids: np.ndarray
) -> list[str]:
    """The words of an example, as they stand in the input.

    Characters that no file of text can hold, NUL and lone surrogates, come as U+FFFD. `starts` and
    `ends` are int32 [words], characters of the text, -1 for words of the input; `type_ids` 1 for
    text_b.
    """
    given = [*(example.words_a or ()), *(example.words_b or ())]
    texts = (example.text_a, example.text_b or "")
    places = zip(starts.tolist(), ends.tolist(), type_ids.tolist(), strict=True)
    remaining = iter(given)
    words = [
        next(remaining) if start < 0 else texts[second][start:end] for start, end, second in places
    ]
    return without_unwritable(words)


def without_unwritable(texts: list[str]) -> list[str]:
    """The texts with U+FFFD for characters that no file of text can hold."""
    if _UNWRITABLE.search("".join(texts)):
        texts = [_UNWRITABLE.sub("\ufffd", text) for text in texts]
    return texts

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
        raise ConfigError(
            "word_split is 'bert', which needs a WordPiece vocabulary, and this checkpoint has "
            "another; pass word_split='whitespace', or an input of words"
        )


@dataclass(frozen=True)
class PieceRuns:
    """Words or spans of several examples, each a run of pieces.

    Texts are numbered 2 * i for text_a and 2 * i + 1 for text_b of example i.

    Attributes:
      texts: int64 [W], the number of the text of each; of words ascending, of spans by example.
      first_pieces: int64 [W], where its pieces begin among all P.
      num_pieces: int64 [W]; 0 for a word that vanished in cleaning, or a span of blanks.
      starts: int64 [W], its first character in the text, counted without a prompt; or -1.
      ends: int64 [W], one past its last character, or -1.
    """

    texts: np.ndarray
    first_pieces: np.ndarray
    num_pieces: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


@dataclass(frozen=True)
class PiecePlaces:
    """The pieces of texts, with their places as characters of their text.

    Attributes:
      texts: int64 [P], the text of each, ascending.
      starts: int64 [P], its first character.
      ends: int64 [P], one past its last.
      begins_word: bool [P], whether WordPiece begins a word with it; else all false.
    """

    texts: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    begins_word: np.ndarray

    def runs(
        self, texts: np.ndarray, begins: np.ndarray, ends: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The first piece that shares a character with each range, and one past the last."""
        # Places in all texts, one after the other. An empty piece is where its next character is.
        stride = int(max(self.ends.max(initial=0), ends.max(initial=0))) + 2
        piece, text = self.texts * stride, texts * stride
        last_characters = piece + np.maximum(self.ends, self.starts + 1)
        firsts = np.searchsorted(last_characters, text + begins, side="right")
        lasts = np.searchsorted(piece + self.starts, text + ends)
        return firsts, np.where(begins < ends, np.maximum(firsts, lasts), firsts)


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

    @property
    def begins(self) -> np.ndarray:
        """int64 [U], the first character of each unit; blanks join the words of the input."""
        per_text = np.array(self.per_text, np.int64)
        sizes = np.array([len(unit) + 1 for unit in self.strings], np.int64)
        before = np.append(np.cumsum(sizes) - sizes, 0)
        joined = before[:-1] - np.repeat(before[np.cumsum(per_text) - per_text], per_text)
        starts = np.array(self.starts, np.int64)
        return np.where(starts < 0, joined, starts)


def text_lengths(unit_lengths: np.ndarray, per_text: np.ndarray) -> np.ndarray:
    """int64 [2 * N], the pieces of each text, from the pieces of its units."""
    pieces = np.concatenate([[0], np.cumsum(unit_lengths)])
    ends = np.cumsum(per_text)
    lengths: np.ndarray = pieces[ends] - pieces[ends - per_text]
    return lengths


def find_words(units: Units, unit_lengths: np.ndarray, pieces: PiecePlaces) -> PieceRuns:
    """Finds the words of some texts, and their pieces.

    Args:
      units: the units of the texts. Where a text's units are not its words, its pieces show where
        words begin.
      unit_lengths: int64 [U], number of pieces of each unit.
      pieces: the pieces; their places are read only where units are no words.
    """
    per_text = np.array(units.per_text, np.int64)
    are_words = np.array(units.are_words, bool)
    text_of_unit = np.repeat(np.arange(len(per_text)), per_text)
    first_pieces = np.cumsum(unit_lengths) - unit_lengths
    given = np.flatnonzero(are_words[text_of_unit])
    found = np.flatnonzero(pieces.begins_word & ~are_words[pieces.texts])
    # A found word ends where the next begins, or its text ends.
    text_ends = np.cumsum(text_lengths(unit_lengths, per_text))
    following = np.append(found[1:], len(pieces.texts))
    ends = np.minimum(following, text_ends[pieces.texts[found]])
    columns = (
        (text_of_unit[given], pieces.texts[found]),
        (first_pieces[given], found),
        (unit_lengths[given], ends - found),
        (np.array(units.starts, np.int64)[given], pieces.starts[found]),
        (np.array(units.ends, np.int64)[given], pieces.ends[ends - 1]),
    )
    joined = [np.concatenate(column) for column in columns]
    order = np.argsort(joined[0], kind="stable")
    return PieceRuns(*(column[order] for column in joined))


def locate_words(examples: Sequence[InputExample], pieces: PiecePlaces) -> PieceRuns:
    """Finds words by their places: the words of the input, or what stands between white space.

    For tokenizers that make other pieces of a word where it stands alone. A piece belongs to the
    first word that it shares a character with, and an empty one to the word that begins there.
    """
    by_text = [
        _word_spans(text, words)
        for example in examples
        for text, words in ((example.text_a, example.words_a), (example.text_b, example.words_b))
    ]
    texts = np.repeat(np.arange(len(by_text)), [len(spans) for spans in by_text])
    spans = np.array([span for part in by_text for span in part], np.int64).reshape(-1, 2)
    has_words = np.array([e.words_a is not None for e in examples], bool)[texts // 2]
    firsts, lasts = pieces.runs(texts, *spans.T)
    firsts[1:] = np.maximum(firsts[1:], np.maximum.accumulate(lasts)[:-1])
    starts, ends = np.where(has_words, -1, spans.T)
    return PieceRuns(texts, firsts, np.maximum(lasts - firsts, 0), starts, ends)


def _word_spans(text: str | None, words: Sequence[str] | None) -> list[tuple[int, int]]:
    """The first character of each word, and one past its last."""
    if words is None:
        return [match.span() for match in _WORD.finditer(text or "")]
    ends = accumulate((len(word) + 1 for word in words), initial=-1)
    return [(end - len(word), end) for word, end in zip(words, list(ends)[1:], strict=True)]


def without_unwritable(texts: list[str]) -> list[str]:
    """The texts with U+FFFD for characters that no file of text can hold."""
    if _UNWRITABLE.search("".join(texts)):
        texts = [_UNWRITABLE.sub("\ufffd", text) for text in texts]
    return texts

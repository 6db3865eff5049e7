"""InputExample: one text or one pair of texts, with its id."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from bert_features.files.checksums import checksum


class Span(NamedTuple):
    """A part of a text: characters begin:end of text_a, or of text_b if `type_id` is 1."""

    begin: int
    end: int
    label: str = ""
    type_id: int = 0


@dataclass(frozen=True)
class InputExample:
    """One input: a text, or a pair of texts, as they are or as words.

    Attributes:
      unique_id: its own id, or its number in the input, from 0.
      text_a: the text; for an input of words, the words joined by single blanks.
      text_b: the second text of a pair, else None.
      words_a: the words, if the input came as words, else None.
      words_b: the words of the second text, if there is one and the input came as words.
      spans: the spans whose vectors are wanted, in any order; None if the input has none.
      labels: of words the label of each, "" for none, those of words_b last; of a text its own one.
        None if the input has none.
      prompt: characters at the beginning of text_a that are no text of the user; spans do not count
        them.
      is_query: whether it is a query for late interaction, which computes these in another way than
        documents; its prompt decides.
    """

    unique_id: int | str
    text_a: str
    text_b: str | None = None
    words_a: tuple[str, ...] | None = None
    words_b: tuple[str, ...] | None = None
    spans: tuple[Span, ...] | None = None
    labels: tuple[str, ...] | None = None
    prompt: int = 0
    is_query: bool = False

    def checksum(self, so_far: int) -> int:
        """The CRC-32C of its texts, continued from the examples before it."""
        texts = self.text_a if self.text_b is None else f"{self.text_a}\x1f{self.text_b}"
        return checksum(f"{texts}\x1e".encode("utf-8", "surrogatepass"), so_far)

    @classmethod
    def from_words(
        cls,
        unique_id: int | str,
        words_a: Sequence[str],
        words_b: Sequence[str] | None = None,
        **others: Any,
    ) -> Self:
        """An example that came as words."""
        return cls(
            unique_id,
            text_a=" ".join(words_a),
            text_b=None if words_b is None else " ".join(words_b),
            words_a=tuple(words_a),
            words_b=None if words_b is None else tuple(words_b),
            **others,
        )

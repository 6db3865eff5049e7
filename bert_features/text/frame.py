"""Frame: the special tokens of a tokenizer, and how they stand around a text and a pair."""

from collections.abc import Mapping
from dataclasses import dataclass

from bert_features.errors import CheckpointError
from bert_features.text.vocabulary import CLS, MASK, PAD, SEP, UNK


@dataclass(frozen=True)
class Frame:
    """The special tokens of a tokenizer, and how they stand around a text and a pair.

    BERT's rows are `[CLS] a [SEP]` and `[CLS] a [SEP] b [SEP]`, RoBERTa's `<s> a </s>` and
    `<s> a </s></s> b </s>`.

    Attributes:
      cls_id: the first token of a row.
      sep_id: the token after each text.
      pad_id: what fills rows.
      unknown_id: the token for characters that the vocabulary lacks; -1 if it lacks none.
      mask_id: the token that stands for a hidden one; None without one.
      mask_takes_blanks: whether blanks before it are a part of it.
      separators: number of separators between two texts.
      has_types: whether tokens of text_b, and the separator after it, have type 1.
    """

    cls_id: int
    sep_id: int
    pad_id: int
    unknown_id: int
    mask_id: int | None = None
    mask_takes_blanks: bool = False
    separators: int = 1
    has_types: bool = True

    @classmethod
    def of_bert(cls, ids: Mapping[str, int]) -> "Frame":
        """BERT's frame, by the ids of its pieces; raises CheckpointError without [CLS] or [SEP]."""
        if lacking := [piece for piece in (CLS, SEP) if piece not in ids]:
            raise CheckpointError(f"the vocabulary lacks {', '.join(lacking)}")
        return cls(ids[CLS], ids[SEP], ids.get(PAD, 0), ids.get(UNK, -1), ids.get(MASK))

    @property
    def special_ids(self) -> list[int]:
        """The ids of the tokens that every row has, which no text contains."""
        return [self.cls_id, self.sep_id]

    @property
    def max_tokens(self) -> int:
        """Number of special tokens of a pair."""
        return 2 + self.separators

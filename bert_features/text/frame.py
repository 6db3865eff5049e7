"""Frame: the special tokens of a tokenizer, and how they stand around a text and a pair."""

from collections.abc import Mapping
from dataclasses import dataclass

from bert_features.errors import CheckpointError
from bert_features.text.vocabulary import CLS, MASK, PAD, SEP, UNK

# Families with a vocabulary of WordPiece whose frame is RoBERTa's: the first and the last token,
# the padding and the mask. Their vocabularies hold BERT's special tokens too.
OTHER_FRAMES = {"mpnet": ("<s>", "</s>", "<pad>", "<mask>")}


def special_pieces(model_type: str) -> tuple[str, str, str, str]:
    """The first and the last token of a family's rows, its padding and its mask."""
    return OTHER_FRAMES.get(model_type, (CLS, SEP, PAD, MASK))


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
      mask_takes_blanks: whether it includes the blanks before it.
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
    def of_wordpiece(cls, ids: Mapping[str, int], model_type: str = "") -> "Frame":
        """A family's frame by the ids of its pieces; CheckpointError without the first or last."""
        first, last, pad, mask = special_pieces(model_type)
        if lacking := [piece for piece in (first, last) if piece not in ids]:
            raise CheckpointError(
                f"the vocabulary lacks {', '.join(lacking)}; pass the checkpoint's own"
            )
        other = model_type in OTHER_FRAMES
        return cls(
            *(ids[first], ids[last], ids.get(pad, 0), ids.get(UNK, -1), ids.get(mask)),
            mask_takes_blanks=other,
            separators=1 + other,
            has_types=not other,
        )

    @property
    def special_ids(self) -> list[int]:
        """The ids of the tokens that every row has, which no text contains."""
        return [self.cls_id, self.sep_id]

    @property
    def max_tokens(self) -> int:
        """Number of special tokens of a pair."""
        return 2 + self.separators

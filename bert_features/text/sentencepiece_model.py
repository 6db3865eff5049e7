"""Reading a SentencePiece model without TensorFlow: its pieces, in the order of the family's ids.

The file is a protocol buffer, `ModelProto` of sentencepiece_model.proto: each field 1 is a piece,
whose own field 1 is its text.
"""

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_features.errors import CheckpointError
from bert_features.text.frame import Frame
from bert_features.text.vocabulary import CLS, MASK, SEP

# The dictionaries of fairseq: their own pieces, the ids of the model's first ones, and the ids of
# the first and the last token. CamemBERT's has fairseq's specials too, but takes the model's.
_FAIRSEQ = {
    "xlm-r": (("<s>", "<pad>", "</s>", "<unk>"), (3, 0, 2), (0, 2)),
    "camembert": (("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"), (3,), (5, 6)),
}
_ALBERT_SPECIALS = ("<pad>", "<unk>", CLS, SEP, MASK)


class SentencePieceModel(NamedTuple):
    """A SentencePiece model in the form of a family.

    Attributes:
      content: the model itself.
      tokens: the pieces in the order of the family's ids.
      ids: int32, the family's id of each piece of the model.
      is_albert: whether texts are prepared as for ALBERT; else they are taken as they are.
      rules: the settings that are not the usual ones, by name: `keep_accents`.
      splits_words: as of a `JsonModel`.
    """

    content: bytes
    tokens: list[str]
    frame: Frame
    ids: np.ndarray
    is_albert: bool
    rules: Mapping[str, bool] = {}
    splits_words: bool = False


def read_model(path: Path, model_type: str = "") -> SentencePieceModel:
    """Reads the model of an ALBERT, or of an XLM-R or a CamemBERT, whose ids are fairseq's.

    fairseq puts `<s> <pad> </s> <unk>` before the pieces and `<mask>` behind them; the files of
    XLM-R and CamemBERT look alike.

    Raises:
      CheckpointError: the file cannot be read, or its special pieces are of neither family.
    """
    try:
        content = path.read_bytes()
        pieces = _pieces(content)
    except OSError as error:
        raise CheckpointError(f"cannot read the vocabulary {path}: {error.strerror}") from error
    except ValueError as error:
        raise CheckpointError(
            f"{path} is not a SentencePiece model that can be read; fetch it again"
        ) from error
    if set(_ALBERT_SPECIALS) <= set(pieces):
        pad, unknown, cls, sep, mask = map(pieces.index, _ALBERT_SPECIALS)
        frame = Frame(cls, sep, pad, unknown, mask)
        return SentencePieceModel(
            content, pieces, frame, np.arange(len(pieces), dtype=np.int32), True
        )
    if pieces[:3] == ["<unk>", "<s>", "</s>"]:
        specials, first_ids, ends = _FAIRSEQ["camembert" if model_type == "camembert" else "xlm-r"]
        tokens = [*specials, *pieces[len(first_ids) :], "<mask>"]
        frame = Frame(*ends, 1, 3, len(tokens) - 1, separators=2, has_types=False)
        ids = np.arange(len(pieces), dtype=np.int32) + len(specials) - len(first_ids)
        ids[: len(first_ids)] = first_ids
        return SentencePieceModel(content, tokens, frame, ids, is_albert=False)
    raise CheckpointError(
        f"{path} is neither ALBERT's SentencePiece model, which has {', '.join(_ALBERT_SPECIALS)}, "
        f"nor XLM-R's, which begins with <unk>, <s>, </s>; it begins with {', '.join(pieces[:3])}"
    )


@functools.lru_cache(maxsize=1)  # a start reads a model several times
def _pieces(content: bytes) -> list[str]:
    """The pieces of a model in their order; ValueError if it is no such protocol buffer."""
    from google.protobuf.empty_pb2 import Empty
    from google.protobuf.message import DecodeError
    from google.protobuf.unknown_fields import UnknownFieldSet

    def first_fields(message: bytes) -> Iterator[bytes]:
        fields = UnknownFieldSet(Empty.FromString(message))
        return (field.data for field in fields if field.field_number == 1)

    try:
        pieces = [str(next(first_fields(piece)), "utf-8") for piece in first_fields(content)]
    except (DecodeError, StopIteration, TypeError) as error:
        raise ValueError("no pieces") from error
    if not pieces:
        raise ValueError("no pieces")
    return pieces

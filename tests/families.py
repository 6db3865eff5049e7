"""The small checkpoints in tests/data/families, and what transformers computes of them."""

import functools
import shutil
from pathlib import Path

import numpy as np

from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import has_pooler, read_weights
from tests.toy import TOY_VOCAB

DATA = Path(__file__).parent / "data" / "families"
RELATIVES = tuple(sorted({folder.name for folder in DATA.iterdir()} - {"bert"}))
NAMES = ("bert", *RELATIVES)


@functools.cache
def checkpoint(name):
    return find_checkpoint(DATA / name)


@functools.cache
def weights(name):
    return read_weights(checkpoint(name), pooler=has_pooler(checkpoint(name)))


def vocabulary(name):
    """A vocabulary of WordPiece with the special tokens of a family: MPNet's has BERT's too.

    The padding is where the family has it.
    """
    pieces = list(TOY_VOCAB)
    if name == "mpnet":
        pieces = ["<s>", "<pad>", "</s>", *pieces[:-4], "<mask>"]
    if name == "roberta":
        pieces[:2] = pieces[1::-1]
    return "\n".join(pieces) + "\n"


def folder(name, root):
    """A copy of a checkpoint with a vocabulary of WordPiece, whatever the family has."""
    copy = shutil.copytree(DATA / name, root / f"uncased_{name}")
    (copy / "layers.npz").unlink()
    (copy / "vocab.txt").write_text(vocabulary(name))
    return copy


@functools.cache
def reference(name):
    """The arrays of layers.npz; tests/data/README.md describes them."""
    with np.load(DATA / name / "layers.npz") as stored:
        return dict(stored)


def batch(name, length=None):
    """All rows as one padded batch of this length, by default that of the longest."""
    stored = reference(name)
    lengths = np.diff(stored["row_splits"])
    mask = (np.arange(length or lengths.max()) < lengths[:, None]).astype(np.int32)
    arrays = {"input_mask": mask}
    for key, source in (("input_word_ids", "token_ids"), ("input_type_ids", "type_ids")):
        arrays[key] = np.full_like(mask, checkpoint(name).config.pad_token_id)
        arrays[key][mask == 1] = stored[source]
    arrays["input_type_ids"] *= mask
    return arrays


# The rows of the reference in each row of `packed_batch`, by number.
PACKED = [[11, 0, 5], [10, 4, 3, 2], [9, 8, 1], [7, 6]]


def packed_batch(name):
    """The rows of the reference in four packed rows."""
    stored = reference(name)
    splits = stored["row_splits"]
    columns = ("input_word_ids", "input_mask", "input_type_ids", "text_numbers", "position_ids")
    arrays = {column: np.zeros((len(PACKED), 40), np.int32) for column in columns}
    for number, where in _places(splits).items():
        tokens = slice(splits[number], splits[number + 1])
        arrays["input_word_ids"][where] = stored["token_ids"][tokens]
        arrays["input_type_ids"][where] = stored["type_ids"][tokens]
        arrays["input_mask"][where] = 1
        arrays["text_numbers"][where] = PACKED[where[0]].index(number) + 1
        arrays["position_ids"][where] = np.arange(splits[number + 1] - splits[number])
    return arrays


def _places(splits):
    """Number of a row of the reference -> the packed row and the places of its tokens there."""
    places = {}
    for row, numbers in enumerate(PACKED):
        start = 0
        for number in numbers:
            end = start + int(splits[number + 1] - splits[number])
            places[number] = row, slice(start, end)
            start = end
    return places


def unpacked(name, states):
    """The states of `packed_batch` [1 + L, 4, S, H] as those of one row, and its mask."""
    places = _places(reference(name)["row_splits"])
    rows = [states[:, row, tokens] for row, tokens in map(places.get, range(len(places)))]
    joined = np.concatenate(rows, axis=1)[:, None]
    return joined, np.ones(joined.shape[1:3])


def assert_states(name, got, mask):
    """States [1 + L, B, S, H] of `batch` are the reference's within the documented bound."""
    want = reference(name)["states"]
    got = np.asarray(got, np.float64)[:, mask == 1]
    allowed = 1e-5 + 2e-6 * np.abs(want).max(-1, keepdims=True)  # docs/performance.md
    assert got.shape == want.shape
    assert (np.abs(got - want) <= allowed).all(), np.abs(got - want).max((1, 2))


def attention(name):
    """What transformers computes of each row: float32 [L, A, S, S]."""
    stored = reference(name)
    sizes = np.diff(stored["row_splits"])
    parts = np.split(stored["attention"], np.cumsum(sizes**2)[:-1], axis=-1)
    return [part.reshape(*part.shape[:2], n, n) for part, n in zip(parts, sizes, strict=True)]


def assert_attention(name, got, atol=1e-5):
    """Attention [L, B, A, S, S] of `batch` is the reference's, and none goes to padding."""
    for row, want in enumerate(attention(name)):
        length = want.shape[-1]
        np.testing.assert_allclose(got[:, row, :, :length, :length], want, rtol=0, atol=atol)
        assert not got[:, row, :, :length, length:].any()

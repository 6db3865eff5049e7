"""Packed rows for tests, and what the outputs of each of their texts should be."""

from dataclasses import dataclass

import numpy as np

from bert_features.config.packing import MAX_PACKED_TEXTS
from bert_features.config.poolings import POOLINGS
from tests.reference import numpy_outputs
from tests.reference.numpy_encoder import NumpyEncoder

CLS, SEP = 2, 3
_COLUMNS = ("input_word_ids", "input_mask", "input_type_ids", "text_numbers", "position_ids")


def _outputs():
    """Names and settings of an output of every level and pooling."""
    yield "layers", {"layers": ["embeddings", -1], "combine": "concat"}
    for pooling in POOLINGS["word"]:
        yield f"word-{pooling}", {"layers": [-1], "level": "word", "pooling": pooling}
    for pooling in POOLINGS["sequence"]:
        sequence = {"layers": [-1], "level": "sequence", "pooling": pooling}
        yield pooling, sequence
        if pooling not in ("cls", "pooler"):
            yield f"{pooling}-no-special", sequence | {"special_tokens": False}
    sequence = {"layers": [-1, "embeddings"], "combine": "sum", "level": "sequence"}
    yield "joined", sequence | {"pooling": "cls+max+mean", "normalize": True, "dim": 20}
    yield "joined-no-special", sequence | {"pooling": "mean_max+last", "special_tokens": False}


OUTPUTS = dict(_outputs())


@dataclass
class Text:
    """Where a text lies, and its tokens: `words` has the number of each one's word, or -1."""

    row: int
    slot: int
    start: int
    ids: np.ndarray
    types: np.ndarray
    words: np.ndarray


def packed_batch(rows, seq_length, vocab_size, *, seed=1):
    """A packed batch whose rows have texts of these lengths, and its texts: singles and pairs."""
    rng = np.random.default_rng(seed)
    batch = {name: np.zeros((len(rows), seq_length), np.int32) for name in _COLUMNS}
    batch["word_indices"] = np.full((len(rows), seq_length), -1, np.int32)
    texts = []
    for row, lengths in enumerate(rows):
        start = 0
        for slot, length in enumerate(lengths):
            text = _random_text(rng, length, vocab_size)
            where = row, slice(start, start + length)
            batch["input_word_ids"][where], batch["input_mask"][where] = text.ids, 1
            batch["input_type_ids"][where], batch["text_numbers"][where] = text.types, slot + 1
            batch["position_ids"][where] = np.arange(length)
            batch["word_indices"][where] = np.where(text.words < 0, -1, text.words + start)
            text.row, text.slot, text.start = row, slot, start
            texts.append(text)
            start += length
    return batch, texts


def _random_text(rng, length, vocab_size):
    ids = rng.integers(5, vocab_size, length).astype(np.int32)
    ids[0], ids[-1] = CLS, SEP
    types = np.zeros(length, np.int32)
    if length > 4 and rng.integers(2):  # a pair
        middle = rng.integers(2, length - 2)
        ids[middle], types[middle + 1 :] = SEP, 1
    inside = ~np.isin(ids, (CLS, SEP))
    begins = rng.integers(2, size=length).astype(bool) | ~np.roll(inside, 1)
    words = np.where(inside, np.cumsum(begins & inside) - 1, -1)
    return Text(0, 0, 0, ids, types, words)


def expected(config, weights, texts):
    """The outputs of each text alone, float64: [T, D], [words, D] or [D]."""
    encoder = NumpyEncoder(config, weights)
    for text in texts:
        one = [array[None] for array in (text.ids, np.ones_like(text.ids), text.types)]
        states = encoder(*one)
        has_pooler = "pooler/dense/kernel" in weights
        pooled = encoder.pooled(states[-1])[0] if has_pooler else None
        alone = [state[0] for state in states]
        yield {
            name: _expected(text, alone, pooled, each)
            for name, each in OUTPUTS.items()
            if has_pooler or each.get("pooling") != "pooler"
        }


def _expected(text, states, pooled, output):
    tokens = numpy_outputs.combine(states, output)
    level, pooling = output.get("level"), output.get("pooling")
    if pooling == "pooler":
        values = pooled
    elif level == "sequence":
        special = np.isin(text.ids, (CLS, SEP))
        counted = output.get("special_tokens", True)
        values = numpy_outputs.pool_sequence(tokens, special, pooling, counted)
    elif level == "word":
        words = [tokens[text.words == word] for word in range(text.words.max() + 1)]
        values = np.array([numpy_outputs.pool_word(pieces, pooling) for pieces in words])
    else:
        values = tokens
    return numpy_outputs.finish(values, output)


def place(values, text, output):
    """What an output of a packed batch holds for a text."""
    if output.get("level") == "sequence":
        assert values.shape[1] == MAX_PACKED_TEXTS
        return values[text.row, text.slot]
    if output.get("level") == "word":
        # Words are numbered from the text's first token on.
        return values[text.row, text.start :][: text.words.max() + 1]
    return values[text.row, text.start : text.start + len(text.ids)]


def assert_as_alone(got, config, weights, texts, precision):
    """Each output of each text in a packed batch is what it is of the text alone."""
    for values in got.values():
        assert np.isfinite(np.asarray(values, np.float32)).all()  # also where there is no text
    for text, wanted in zip(texts, expected(config, weights, texts), strict=True):
        for name in got:
            want = wanted[name]
            if not want.size:
                continue  # a text without words
            a = place(np.asarray(got[name], np.float64), text, OUTPUTS[name])
            if precision == "float32":
                allowed = 1e-5 + 2e-6 * np.abs(want).max()  # docs/performance.md
                np.testing.assert_allclose(a, want, atol=allowed, rtol=0, err_msg=name)
            a, b = a[np.any(want, -1)], want[np.any(want, -1)]  # zero: nothing is counted
            cosine = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
            assert cosine.min(initial=1) > 0.999, name

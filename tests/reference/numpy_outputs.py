"""What an output should hold, in float64 NumPy loops over examples: the oracle for pooling."""

import math

import numpy as np


def combine(states, output):
    """The states of one example, [T, H] each, -> [T, D]."""
    depth = len(states) - 1
    chosen = [states[0 if e == "embeddings" else e % depth + 1] for e in output["layers"]]
    how = output.get("combine", "none")
    if how == "none":
        (only,) = chosen
        return only
    if how == "concat":
        return np.concatenate(chosen, axis=1)
    factors = {
        "sum": [1.0] * len(chosen),
        "mean": [1.0 / len(chosen)] * len(chosen),
        "weighted": output.get("weights"),
    }[how]
    return sum(f * c for f, c in zip(factors, chosen, strict=True))


def pool_word(vectors, pooling):
    """[pieces, D] -> [D or 2 D]."""
    if pooling == "first_last":
        return np.concatenate([vectors[0], vectors[-1]])
    return {
        "first": lambda: vectors[0],
        "last": lambda: vectors[-1],
        "mean": lambda: vectors.mean(axis=0),
        "sum": lambda: vectors.sum(axis=0),
        "max": lambda: vectors.max(axis=0),
    }[pooling]()


def pool_sequence(vectors, is_special, pooling, special_tokens=True):
    """[T, D], bool [T] -> [D], [2 D], …; zeros where nothing is counted."""
    if "+" in pooling:
        parts = pooling.split("+")
        return np.concatenate(
            [pool_sequence(vectors, is_special, p, special_tokens) for p in parts]
        )
    counted = vectors if special_tokens else vectors[~is_special]
    if pooling == "cls":
        return vectors[0]
    if pooling == "mean_max":
        return np.concatenate(
            [pool_sequence(vectors, is_special, p, special_tokens) for p in ("mean", "max")]
        )
    if not len(counted):
        return np.zeros(vectors.shape[1])
    return {
        "mean": lambda: counted.mean(axis=0),
        "max": lambda: counted.max(axis=0),
        "first": lambda: counted[0],
        "last": lambda: counted[-1],
        "sqrt_len_mean": lambda: counted.sum(axis=0) / math.sqrt(len(counted)),
    }[pooling]()


def finish(vectors, output):
    """Cut to `dim`, then scaled to length 1."""
    vectors = vectors[..., : output.get("dim")]
    if output.get("normalize"):
        norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
        vectors = np.divide(vectors, norms, where=norms > 0, out=np.zeros_like(vectors))
    return vectors


def show_attention(weights, heads, words=None, pooling="none"):
    """The attention of one example, [A, S, S] -> [heads, S, S], or [S, heads] for [CLS] alone.

    `words` are the numbers of the tokens of each word; attention to a word is the sum over its
    tokens, and from a word the mean.
    """
    if words is not None:
        to_words = np.stack([weights[:, :, word].sum(axis=2) for word in words], axis=2)
        rows = [to_words[:, 0]] + [to_words[:, word].mean(axis=1) for word in words]
        weights = np.stack(rows, axis=1)  # [CLS] first
    reduced = {"mean": lambda: weights.mean(axis=0)[None], "max": lambda: weights.max(axis=0)[None]}
    weights = weights[list(heads)] if heads[0] not in reduced else reduced[heads[0]]()
    if pooling == "cls":
        return weights[:, 0].T
    return weights if words is None else weights[:, 1:]

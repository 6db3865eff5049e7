"""Canaries of an export, from outputs that a reader can count."""

import numpy as np

from bert_features.extraction.canaries import canaries_of_export
from bert_features.formats.records import Feature


def test_the_canaries_of_an_export_are_its_third_tokens_or_the_last_of_fewer():
    """Text i has i + 1 tokens; token j of text i has the value 10 i + j."""
    tokens, whole = (
        Feature(level, (-1,), "none", 1, "float32", level) for level in ("token", "sequence")
    )
    counts = []

    def compute(texts):
        counts.append(len(texts))
        text, place = np.mgrid[: len(texts), : len(texts)].astype(np.float32)
        return {
            "input_mask": (place <= text).astype(np.int32),
            "token": (10 * text + place)[..., None],
            "sequence": text[:, :1],
        }

    found = canaries_of_export(compute, (tokens, whole))
    values = {name: canaries[:, 0].tolist() for name, canaries in found.items()}
    (count,) = counts
    assert count > 3
    assert values["sequence"] == list(range(count))
    assert values["token"] == [10 * i + min(i, 2) for i in range(count)]

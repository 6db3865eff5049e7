"""What the devices at hand compute, beside what they should compute.

A few short texts go through `FeatureExtractor`, as texts go through it in `extract`; every layer of
every token is compared.

Shape legend: `K` layers, including the sum below the first block; `T` tokens of a text; `H`
hidden_size.
"""

import bisect
import importlib.resources
from collections.abc import Callable
from functools import cached_property

import numpy as np

from bert_features.check.reference_encoder import ReferenceEncoder
from bert_features.check.tolerances import BETWEEN_PROGRAMS, Comparison
from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.read import read_weights
from bert_features.checkpoints.sources.minilm import MINILM
from bert_features.extraction.extractor import FeatureExtractor
from bert_features.formats.records import FeatureRecord

States = list[np.ndarray]

# Texts of several lengths; the first is the tutorials', with three senses of "bank".
TEXTS = (
    "After stealing money from the bank vault, the bank robber was seen fishing on the "
    "Mississippi river bank.",
    "What is Deep Learning?",
    "hello world",
)
# The last layer of TEXTS, by tests/reference/golden_values.py.
GOLDEN = "golden_minilm.npz"
# One piece in any vocabulary: this letter, or [UNK].
_FILLER = "a "
# Copies of TEXTS that share rows: enough for rows that hold as many texts as a row may.
_COPIES = 24


class SkippedError(Exception):
    """The check does not apply here; the message says why."""


class Reference:
    """The expected states of a checkpoint, computed at their first use."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._states: dict[bytes, np.ndarray] = {}

    @cached_property
    def _encoder(self) -> ReferenceEncoder:
        return ReferenceEncoder(self._checkpoint.config, read_weights(self._checkpoint))

    def states(self, ids: np.ndarray) -> np.ndarray:
        """The states of a text's ids, int32 [T] -> float64 [K, T, H]."""
        key = ids.tobytes()
        if key not in self._states:
            self._states[key] = self._encoder(ids)
        return self._states[key]


class Subject:
    """A checkpoint in one precision on the devices at hand, and what to compare it with."""

    def __init__(self, extractor: FeatureExtractor, reference: Reference) -> None:
        self.extractor = extractor
        self.reference = reference

    @cached_property
    def records(self) -> list[FeatureRecord]:
        """The records of TEXTS, computed together."""
        return self.extractor(TEXTS)

    @property
    def token_ids(self) -> States:
        """The ids of each of TEXTS, int32 [T]."""
        return [ids for record in self.records if (ids := record.token_ids) is not None]

    @property
    def together(self) -> States:
        """The states of `records`."""
        return [_stacked(record) for record in self.records]

    @cached_property
    def alone(self) -> States:
        """The states of TEXTS, computed one by one."""
        return [self.compute(text)[0] for text in TEXTS]

    def compute(self, *texts: str) -> States:
        """The states of texts, computed together."""
        return [_stacked(record) for record in self.extractor(texts)]


def _stacked(record: FeatureRecord) -> np.ndarray:
    return np.stack(list(record.features.values()))


def _golden(subject: Subject) -> Comparison:
    if subject.extractor.checkpoint.name != MINILM:
        raise SkippedError(f"golden values exist for the embedded model only, {MINILM}")
    if subject.extractor.config.hidden_act is not None:
        raise SkippedError("golden values exist for the model's own GELU only")
    with importlib.resources.files("bert_features.check").joinpath(GOLDEN).open("rb") as file:
        golden = np.load(file, allow_pickle=False)
        splits, ids, last = (golden[name] for name in ("row_splits", "token_ids", "last_layer"))
    received = np.concatenate(subject.token_ids)
    if not np.array_equal(received, ids):
        raise ValueError("the tokenizer's ids differ from the golden ones")
    expected = [values[None] for values in np.split(last, splits[1:-1])]
    last_layer = [states[-1:] for states in subject.together]
    return Comparison(
        "the last layer with stored values of a float64 encoder", expected, last_layer
    )


def _reference(subject: Subject) -> Comparison:
    expected = [subject.reference.states(ids) for ids in subject.token_ids]
    return Comparison(
        "every layer with a float64 NumPy encoder", expected, subject.together, BETWEEN_PROGRAMS
    )


def _batch(subject: Subject) -> Comparison:
    return Comparison(
        f"{len(TEXTS)} texts alone with the same in a batch", subject.alone, subject.together
    )


def _padding(subject: Subject) -> Comparison:
    longest = max(states.shape[1] for states in subject.alone)
    buckets = [length for length in subject.extractor.preparation.buckets if length >= longest]
    received: States = []
    for length in buckets:
        filler = _FILLER * (length - 2)  # pads all rows of its batch to this length
        received += subject.compute(*TEXTS, filler)[: len(TEXTS)]
    lengths = ", ".join(map(str, buckets))
    return Comparison(
        f"texts alone with the same padded to {lengths}", subject.alone * len(buckets), received
    )


def _packing(subject: Subject) -> Comparison:
    config = subject.extractor.config
    longest = _FILLER * (subject.extractor.preparation.max_seq_length - 2)
    expected = [subject.reference.states(ids) for ids in subject.token_ids] * _COPIES
    packed = FeatureExtractor(config.model_copy(update={"packing": True, "buckets": None}))
    received = [_stacked(record) for record in packed([longest, *TEXTS * _COPIES])[1:]]
    return Comparison(
        "texts that share rows with a float64 NumPy encoder", expected, received, BETWEEN_PROGRAMS
    )


def _devices(subject: Subject) -> Comparison:
    count = subject.extractor.devices.count
    if count == 1:
        raise SkippedError("there is one device")
    # Whole batches of one text, so that every device has rows of it. A few texts would all be on
    # the first device where batches have a fixed number of rows. `_golden` checks that device.
    shapes = subject.extractor.preparation.shapes
    length = len(subject.token_ids[0])
    rows = shapes.rows[bisect.bisect_left(shapes.buckets, length)]
    received = subject.compute(*TEXTS[:1] * rows)
    return Comparison(
        f"a text on each of {count} devices with the first", subject.together[:1] * rows, received
    )


CHECKS: dict[str, Callable[[Subject], Comparison]] = {
    "golden values": _golden,
    "reference": _reference,
    "determinism": lambda subject: Comparison(
        "two runs of the same texts", subject.together, subject.compute(*TEXTS)
    ),
    "batch": _batch,
    "padding": _padding,
    "packing": _packing,
    "devices": _devices,
}

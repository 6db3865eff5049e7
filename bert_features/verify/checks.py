"""verify(): whether the device at hand computes what it should. What to run first on a new TPU.

A few short texts go through `FeatureExtractor`, as those of `extract` do; every layer of every
token is compared.

Shape legend: `K` layers, the sum below the first block among them, `T` tokens of a text, `H`
hidden_size.
"""

import contextlib
import importlib.resources
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from bert_features.batches.bucketing import resolve_buckets
from bert_features.checkpoints.find import MINILM, Checkpoint, find_checkpoint, read_weights
from bert_features.config.outputs import EMBEDDINGS
from bert_features.encoder.step import Precision
from bert_features.extraction.extractor import FeatureExtractor
from bert_features.formats.records import FeatureRecord
from bert_features.machine.selection import choose_runtime
from bert_features.verify.other_runtime import OtherRuntime, other_runtime, why_not
from bert_features.verify.reference_encoder import ReferenceEncoder

States = list[np.ndarray]
Outcome = Literal["pass", "fail", "skipped"]

PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
# Of several lengths; the first is the tutorials', with three senses of "bank".
TEXTS = (
    "After stealing money from the bank vault, the bank robber was seen fishing on the "
    "Mississippi river bank.",
    "What is Deep Learning?",
    "hello world",
)
# The last layer of TEXTS, by tests/reference/golden_values.py.
GOLDEN = "golden_minilm.npz"
# The first is for texts alone: almost no padding.
_BUCKETS = (8, 32, 64, 128, 256, 512)
# One piece in any vocabulary: this letter, or [UNK].
_FILLER = "a "
# Rows of a batch at the longest bucket: on any number of devices at least TEXTS and a filler.
_ROWS = 8


@dataclass(frozen=True)
class Tolerance:
    """What a comparison allows.

    Attributes:
      measure: of pairs of vectors: the largest `deviation` of a value, or the lowest `cosine`.
      limit: the largest deviation, or the lowest cosine, that passes.
    """

    measure: Literal["deviation", "cosine"]
    limit: float

    def allows(self, measured: float) -> bool:
        """Whether it passes; NaN never does."""
        if self.measure == "deviation":
            return measured <= self.limit
        return measured >= self.limit


# The contract of "same text, same vector".
TOLERANCES: dict[Precision, Tolerance] = {
    "float32": Tolerance("deviation", 1e-5),
    "bfloat16": Tolerance("cosine", 0.999),
}


@dataclass(frozen=True)
class Comparison:
    """What a check compares.

    Attributes:
      compared: in words.
      expected: [K, T, H] for each text.
      received: the same.
      scale: what deviations above 1 are divided by: each `value` of the expected, or the largest
        of its `vector`, by which the rounding errors of different programs grow.
    """

    compared: str
    expected: Sequence[np.ndarray]
    received: Sequence[np.ndarray]
    scale: Literal["value", "vector"] = "value"


@dataclass(frozen=True)
class Check:
    """A row of the table.

    Attributes:
      name: what is checked.
      precision: of the arithmetic.
      outcome: `pass`, `fail` or `skipped`.
      compared: what with what; or why it was skipped, or could not be compared.
      measure: `deviation` or `cosine`, see `Tolerance`.
      measured: its value; None if nothing was compared.
      limit: see `Tolerance`.
    """

    name: str
    precision: Precision
    outcome: Outcome
    compared: str
    measure: str
    measured: float | None
    limit: float


@dataclass(frozen=True)
class Report:
    """What `verify` found.

    Attributes:
      checkpoint: its name.
      device: `tpu`, `gpu` or `cpu`.
      device_count: how many.
      runtime: `tensorflow` or `jax`.
      checks: the rows.
    """

    checkpoint: str
    device: str
    device_count: int
    runtime: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.outcome != "fail" for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: a measured value that is not finite becomes a string."""
        values = asdict(self) | {"passed": self.passed}
        for check in values["checks"]:
            if check["measured"] is not None and not math.isfinite(check["measured"]):
                check["measured"] = str(check["measured"])
        return values


class _SkippedError(Exception):
    """A check that does not apply here; the message says why."""


class _Reference:
    """What must come out, whatever the precision; computed at the first use."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._states: dict[bytes, np.ndarray] = {}

    @cached_property
    def _encoder(self) -> ReferenceEncoder:
        return ReferenceEncoder(self._checkpoint.config, read_weights(self._checkpoint))

    def states(self, ids: np.ndarray) -> np.ndarray:
        """float64 [K, T, H] of a text's ids, int32 [T]."""
        key = ids.tobytes()
        if key not in self._states:
            self._states[key] = self._encoder(ids)
        return self._states[key]


class _Subject:
    """A checkpoint in one precision on the devices at hand, and what to hold it against."""

    def __init__(
        self, extractor: FeatureExtractor, reference: _Reference, other: OtherRuntime | None
    ) -> None:
        self.extractor = extractor
        self.reference = reference
        self.other = other

    @cached_property
    def records(self) -> list[FeatureRecord]:
        """Those of TEXTS, computed together."""
        return self.extractor(TEXTS)

    @property
    def token_ids(self) -> States:
        """int32 [T] of each of TEXTS."""
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


def _golden(subject: _Subject) -> Comparison:
    if subject.extractor.checkpoint.name != MINILM:
        raise _SkippedError(f"golden values are of the embedded model, {MINILM}")
    if subject.extractor.config.hidden_act is not None:
        raise _SkippedError("golden values are with the model's own GELU")
    with importlib.resources.files("bert_features.verify").joinpath(GOLDEN).open("rb") as file:
        golden = np.load(file, allow_pickle=False)
        splits, ids, last = (golden[name] for name in ("row_splits", "token_ids", "last_layer"))
    received = np.concatenate(subject.token_ids)
    if not np.array_equal(received, ids):
        raise ValueError("the tokenizer gave other ids than the golden ones")
    expected = [values[None] for values in np.split(last, splits[1:-1])]
    last_layer = [states[-1:] for states in subject.together]
    return Comparison(
        "the last layer with stored values of a float64 encoder", expected, last_layer
    )


def _reference(subject: _Subject) -> Comparison:
    expected = [subject.reference.states(ids) for ids in subject.token_ids]
    return Comparison(
        "every layer with a float64 NumPy encoder", expected, subject.together, "vector"
    )


def _two_runs(subject: _Subject) -> Comparison:
    return Comparison("two runs of the same texts", subject.together, subject.compute(*TEXTS))


def _batch(subject: _Subject) -> Comparison:
    return Comparison(
        f"{len(TEXTS)} texts alone with the same in a batch", subject.alone, subject.together
    )


def _padding(subject: _Subject) -> Comparison:
    longest = max(states.shape[1] for states in subject.alone)
    buckets = [length for length in subject.extractor.preparation.buckets if length >= longest]
    received: States = []
    for length in buckets:
        filler = _FILLER * (length - 2)  # beside it, all rows are padded to its length
        received += subject.compute(*TEXTS, filler)[: len(TEXTS)]
    lengths = ", ".join(map(str, buckets))
    return Comparison(
        f"texts alone with the same padded to {lengths}", subject.alone * len(buckets), received
    )


def _devices(subject: _Subject) -> Comparison:
    count = subject.extractor.devices.count
    if count == 1:
        raise _SkippedError("there is one device")
    first, *others = subject.compute(*TEXTS[:1] * count)
    return Comparison(
        f"a text on each of {count} devices with the first", [first] * len(others), others
    )


def _runtimes(subject: _Subject) -> Comparison:
    mine = subject.extractor.preparation.runtime.name
    other = other_runtime(mine)
    if subject.other is None:
        raise _SkippedError(why_not(other))
    compared = f"{mine} here with {other} on the CPU"
    return Comparison(compared, subject.other.states(), subject.together, "vector")


_CHECKS: dict[str, Callable[[_Subject], Comparison]] = {
    "golden values": _golden,
    "reference": _reference,
    "determinism": _two_runs,
    "batch": _batch,
    "padding": _padding,
    "devices": _devices,
    "runtimes": _runtimes,
}


def verify(
    checkpoint: str = MINILM,
    *,
    precisions: Sequence[Precision] = PRECISIONS,
    progress: Callable[[Check], None] | None = None,
    **settings: Any,
) -> Report:
    """Compares what the devices at hand compute with what they should.

    Args:
      checkpoint: whatever `find_checkpoint` takes.
      precisions: of the arithmetic, each checked by itself.
      progress: called with each check when it is done.
      **settings: settings of `ExtractConfig`: device, do_lower_case, vocab_file, …

    Returns:
      A row for each check and precision. A check that raises an error fails; the others go on.

    Raises:
      BertFeaturesError: the checkpoint is not usable, or the wanted device is not here.
    """
    found = find_checkpoint(
        checkpoint,
        **{name: settings.get(name) for name in ("config_file", "vocab_file", "hidden_act")},
    )
    settings = {"checkpoint": checkpoint, **_settings_of(found), **settings}
    reference = _Reference(found)
    checks = []
    with contextlib.ExitStack() as stack:
        # All at once, so that they are ready when they are asked for.
        others = {p: _start_other(stack, settings | {"precision": p}) for p in precisions}
        for precision in precisions:
            extractor = FeatureExtractor.from_checkpoint(**(settings | {"precision": precision}))
            for check in _checks(_Subject(extractor, reference, others[precision])):
                checks.append(check)
                if progress:
                    progress(check)
    devices, runtime = extractor.devices, extractor.preparation.runtime.name
    return Report(checkpoint, devices.kind, devices.count, runtime, tuple(checks))


def _settings_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Every layer, and the declared shapes."""
    positions = checkpoint.config.max_position_embeddings
    buckets = resolve_buckets(_BUCKETS[:-1], min(positions, _BUCKETS[-1]))
    return {
        "layers": [EMBEDDINGS, *range(checkpoint.config.num_hidden_layers)],
        "buckets": [*buckets],
        "max_seq_length": buckets[-1],
        "batch_tokens": _ROWS * buckets[-1],
    }


def _start_other(stack: contextlib.ExitStack, settings: Mapping[str, Any]) -> OtherRuntime | None:
    other = other_runtime(
        choose_runtime(settings.get("runtime", "auto"), settings.get("device", "auto"))
    )
    if why_not(other):
        return None
    return stack.enter_context(OtherRuntime(other, TEXTS, settings))


def _checks(subject: _Subject) -> Iterator[Check]:
    precision = subject.extractor.precision
    tolerance = TOLERANCES[precision]
    for name, check in _CHECKS.items():
        outcome: Outcome = "fail"
        measured = None
        try:
            comparison = check(subject)
            compared = comparison.compared
            measured = _measure(comparison, tolerance.measure)
            outcome = "pass" if tolerance.allows(measured) else "fail"
        except _SkippedError as reason:
            outcome, compared = "skipped", str(reason)
        # Whatever a device or its compiler raises is what this is here to find out.
        except Exception as error:
            message = str(error).strip() or "no message"
            compared = f"{type(error).__name__}: {message.splitlines()[0]}"
        yield Check(
            name, precision, outcome, compared, tolerance.measure, measured, tolerance.limit
        )


def _measure(comparison: Comparison, measure: str) -> float:
    """The largest deviation, or the lowest cosine; NaN if a value is none.

    Raises:
      ValueError: what came out has another shape.
    """
    worst = []
    for expected, received in zip(comparison.expected, comparison.received, strict=True):
        if expected.shape != received.shape:
            raise ValueError(f"expected states {expected.shape}, received {received.shape}")
        wide, other = expected.astype(np.float64), received.astype(np.float64)
        if measure == "deviation":
            worst.append(_deviation(wide, other, comparison.scale))
        else:
            worst.append(-_cosines(wide, other).min())
    largest = float(np.max(worst))
    return largest if measure == "deviation" else -largest


def _deviation(expected: np.ndarray, received: np.ndarray, scale: str) -> float:
    size = np.abs(expected)
    if scale == "vector":
        size = size.max(axis=-1, keepdims=True)
    return float((np.abs(expected - received) / np.maximum(size, 1)).max())


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[…, H], [..., H] -> […]; 0 of a vector of zeros."""
    norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    return (a * b).sum(axis=-1) / np.maximum(norms, np.finfo(np.float64).tiny)

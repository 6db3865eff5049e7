"""Times both forms of attention on a TPU, so that a user can choose the faster one.

Shape legend: `B` rows, `S` tokens of a row.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from bert_features.batches.bucketing import DEVICE_BATCH_TOKENS, packed_buckets
from bert_features.checkpoints.read import read_weights
from bert_features.config.output_specs import plan_outputs
from bert_features.config.outputs import OutputConfig
from bert_features.config.packing import POSITION_IDS, TEXT_NUMBERS
from bert_features.encoder.step import MODEL_INPUTS, DeviceStep, Precision
from bert_features.extraction.extractor import FeatureExtractor
from bert_features.machine.names import Attention
from bert_features.runtime.base import CompiledStep
from bert_features.verify.report import Timing

FORMS: tuple[Attention, ...] = ("xla", "pallas")
# Lengths that runs pad their rows to.
LENGTHS = (64, 128, 256, 512)
# Batches of one measurement, of which some are always under way, as in a run.
_BATCHES = 20
# Measurements of each form, in turn; the quickest counts.
ROUNDS = 3


def has_both_forms(extractor: FeatureExtractor) -> bool:
    """Whether attention has two forms where this extractor runs: on a TPU with JAX."""
    return (extractor.devices.kind, extractor.preparation.runtime.name) == ("tpu", "jax")


def time_on(
    extractor: FeatureExtractor, precision: Precision, *, packed: bool = False
) -> Iterator[Timing]:
    """Times a step with small outputs, the mean of each row, in both forms, by JAX on a TPU.

    Where runs pack their rows, so are those that are timed.
    """
    from bert_features.runtime.jax import JaxRuntime

    config = extractor.checkpoint.config
    mean = OutputConfig.of({"level": "sequence", "pooling": "mean", "layers": [-1]})
    step = DeviceStep(
        config,
        read_weights(extractor.checkpoint),
        plan_outputs([mean], config),
        precision=precision,
        fuse_qkv=False,
        packed=packed,
    )
    positions = config.positions
    yield from time_steps(
        {form: JaxRuntime("tpu", form).compile(step.step, step.weights) for form in FORMS},
        packed_buckets(min(positions, LENGTHS[-1])) if packed else lengths_up_to(positions),
        devices=extractor.devices.count,
        vocabulary=config.vocab_size,
        packed_positions=positions if packed else None,
    )


def lengths_up_to(positions: int) -> tuple[int, ...]:
    """The lengths to time that a checkpoint with this number of positions takes."""
    return tuple(length for length in LENGTHS if length <= positions) or (positions,)


def time_steps(
    compiled: Mapping[Attention, CompiledStep],
    lengths: Sequence[int],
    *,
    devices: int,
    vocabulary: int,
    tokens: int = DEVICE_BATCH_TOKENS,
    rounds: int = ROUNDS,
    packed_positions: int | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Timing]:
    """Times compiled steps, which differ in nothing but their form of attention.

    A form that raises an error has no time; the others continue.

    Args:
      compiled: form of attention -> the step.
      lengths: lengths of rows, S.
      devices: number of devices.
      vocabulary: number of token ids.
      tokens: tokens of a batch for each device.
      rounds: number of measurements; the quickest counts.
      packed_positions: positions of the checkpoint if the steps take packed rows.
      clock: gives the seconds.
    """
    for length in lengths:
        rows = max(tokens // length, 1) * devices
        batch = _batch(rows, length, vocabulary)
        if packed_positions is not None:  # two texts a row; more where positions are few
            places = np.arange(length, dtype=np.int32)
            size = min(length // 2, packed_positions)
            batch[TEXT_NUMBERS] = np.tile(places // size + 1, (rows, 1))
            batch[POSITION_IDS] = np.tile(places % size, (rows, 1))
        seconds = {form: _warmed_up(one, batch) for form, one in compiled.items()}
        for _ in range(rounds):
            for form, quickest in seconds.items():
                if quickest is not None:
                    seconds[form] = min(quickest, _seconds(compiled[form], batch, clock))
        yield Timing(length, rows, {str(form): value for form, value in seconds.items()})


def _batch(rows: int, length: int, vocabulary: int) -> dict[str, np.ndarray]:
    """Rows without padding, int32 [B, S] each."""
    ids = np.random.default_rng(0).integers(0, vocabulary, (rows, length), np.int32)
    arrays = ids, np.ones_like(ids), np.zeros_like(ids)
    return dict(zip(MODEL_INPUTS, arrays, strict=True))


def _warmed_up(step: CompiledStep, batch: Mapping[str, np.ndarray]) -> float | None:
    """Infinity after a first batch, for which the step is compiled; None if it fails."""
    try:
        step(batch)()
    # A device and its compiler may raise anything; the check of the numbers shows what.
    except Exception:
        return None
    return float("inf")


def _seconds(
    step: CompiledStep, batch: Mapping[str, np.ndarray], clock: Callable[[], float]
) -> float:
    """The time of one batch in a row of many."""
    started = clock()
    pending = [step(batch) for _ in range(step.in_flight)]
    for _ in range(_BATCHES - step.in_flight):
        pending.pop(0)()
        pending.append(step(batch))
    for one in pending:
        one()
    return (clock() - started) / _BATCHES

"""Whether the devices at hand compute the right numbers: every check in every precision."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from bert_features.batches.bucketing import resolve_buckets
from bert_features.check.comparisons import CHECKS, Reference, SkippedError, Subject
from bert_features.check.finding import Finding, Status
from bert_features.check.tolerances import TOLERANCES
from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.sources.minilm import MINILM
from bert_features.config.layers import EMBEDDINGS
from bert_features.encoder.step import Precision
from bert_features.errors import ConfigError, first_line
from bert_features.extraction.extractor import FeatureExtractor
from bert_features.machine.names import describe_devices
from bert_features.machine.tpu_errors import advice

PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
# The first is for texts alone: almost no padding.
_BUCKETS = (8, 32, 64, 128, 256, 512)
# Rows of a batch at the longest bucket: on any number of devices at least TEXTS and a filler.
_ROWS = 8
# An error with its cause and its cure may be long.
_MAX_CHARACTERS = 600


def check_numbers(
    checkpoint: str = MINILM, *, precisions: Sequence[Precision] = PRECISIONS, **settings: Any
) -> Iterator[Finding]:
    """Checks that the devices at hand compute the right numbers; run it first on a new TPU.

    Args:
      checkpoint: anything `find_checkpoint` accepts.
      precisions: the precisions of the arithmetic; each is checked by itself.
      **settings: settings of `ExtractConfig`: device, do_lower_case, vocab_file, …

    Yields:
      What computes, then a finding for each check and precision: `broken` if the check fails,
      `note` if it does not apply. A check that raises an error fails; the others continue.

    Raises:
      BertFeaturesError: the checkpoint is not usable, the wanted device is missing, or a precision
        is none of `PRECISIONS`.
    """
    if any(precision not in PRECISIONS for precision in precisions):
        raise ConfigError(f"precisions are {[*precisions]}; allowed: {', '.join(PRECISIONS)}")
    source = find_checkpoint(
        checkpoint,
        **{name: settings.get(name) for name in ("config_file", "vocab_file", "hidden_act")},
    )
    settings = {**_settings(source), "checkpoint": checkpoint, **settings}
    reference = Reference(source)
    for precision in precisions:
        extractor = FeatureExtractor.from_checkpoint(**(settings | {"precision": precision}))
        if precision == precisions[0]:
            yield _describe(checkpoint, extractor)
        yield from _run_checks(Subject(extractor, reference))


def _settings(checkpoint: Checkpoint) -> dict[str, Any]:
    """Settings that compute every layer in the declared shapes."""
    positions = checkpoint.config.positions
    buckets = resolve_buckets(_BUCKETS[:-1], min(positions, _BUCKETS[-1]))
    return {
        "layers": [EMBEDDINGS, *range(checkpoint.config.num_hidden_layers)],
        "buckets": [*buckets],
        "max_seq_length": buckets[-1],
        "batch_tokens": _ROWS * buckets[-1],
    }


def _describe(checkpoint: str, extractor: FeatureExtractor) -> Finding:
    devices, runtime = extractor.devices, extractor.preparation.runtime.name
    described = f"{checkpoint} on {describe_devices(devices.kind, devices.count)} by {runtime}"
    details = {"checkpoint": checkpoint, "device": devices.kind, "devices": devices.count}
    return Finding("numbers", "ok", described, details=details | {"runtime": runtime})


def _run_checks(subject: Subject) -> Iterator[Finding]:
    precision = subject.extractor.precision
    tolerance = TOLERANCES[precision]
    details = {"precision": precision, "measure": tolerance.measure, "limit": tolerance.limit}
    for name, check in CHECKS.items():
        titled = f"{name}, {precision}"
        try:
            comparison = check(subject)
            measured = comparison.measure(tolerance.measure)
        except SkippedError as reason:
            yield Finding(titled, "note", str(reason), details=details)
        # A device and its compiler may raise anything; finding that out is the purpose.
        except Exception as error:
            described = first_line(error, _MAX_CHARACTERS, empty="no message")
            found = f"{type(error).__name__}: {described}{advice(error)}"
            yield Finding(titled, "broken", found, details=details)
        else:
            # JSON has no NaN.
            value = measured if math.isfinite(measured) else str(measured)
            found = f"{tolerance.describe(measured)}: {comparison.compared}"
            status: Status = "ok" if tolerance.allows(measured) else "broken"
            yield Finding(titled, status, found, details=details | {"measured": value})

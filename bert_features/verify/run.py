"""verify(): runs every check in every precision."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bert_features.batches.bucketing import resolve_buckets
from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.sources.minilm import MINILM
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.layers import EMBEDDINGS
from bert_features.encoder.step import Precision
from bert_features.errors import ConfigError
from bert_features.extraction.checks import packs
from bert_features.extraction.extractor import FeatureExtractor
from bert_features.machine.selection import choose_runtime
from bert_features.verify import attention, other_runtime
from bert_features.verify.attention import has_both_forms
from bert_features.verify.checks import CHECKS, TEXTS, Reference, SkippedError, Subject
from bert_features.verify.comparison import TOLERANCES
from bert_features.verify.report import Check, Outcome, Report, Timing, describe_error
from bert_features.verify.speed import measure

PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
# The first is for texts alone: almost no padding.
_BUCKETS = (8, 32, 64, 128, 256, 512)
# Rows of a batch at the longest bucket: on any number of devices at least TEXTS and a filler.
_ROWS = 8


def verify(
    checkpoint: str = MINILM,
    *,
    precisions: Sequence[Precision] = PRECISIONS,
    progress: Callable[[Check], None] | None = None,
    speed: bool = False,
    **settings: Any,
) -> Report:
    """Checks that the devices at hand compute the right numbers; run it first on a new TPU.

    Args:
      checkpoint: anything `find_checkpoint` accepts.
      precisions: the precisions of the arithmetic; each is checked by itself.
      progress: called with the result of each check.
      speed: whether to measure the speed of devices and host, too.
      **settings: settings of `ExtractConfig`: device, do_lower_case, vocab_file, …

    Returns:
      A result for each check and precision, and on a TPU with JAX the times of both forms of
      attention. A check that raises an error fails; the others continue.

    Raises:
      BertFeaturesError: the checkpoint is not usable, the wanted device is missing, or a precision
        is none of `PRECISIONS`.
    """
    if any(precision not in PRECISIONS for precision in precisions):
        raise ConfigError(f"precisions are {[*precisions]}; allowed: {', '.join(PRECISIONS)}")
    found = find_checkpoint(
        checkpoint,
        **{name: settings.get(name) for name in ("config_file", "vocab_file", "hidden_act")},
    )
    given = {"checkpoint": checkpoint, **settings}
    settings = {**_settings(found), **given}
    reference = Reference(found)
    checks = []
    with contextlib.ExitStack() as stack:
        # Start all now: they compute while this process does.
        others = {p: _start_other(stack, settings | {"precision": p}) for p in precisions}
        for precision in precisions:
            extractor = FeatureExtractor.from_checkpoint(**(settings | {"precision": precision}))
            for check in _run_checks(Subject(extractor, reference, others[precision])):
                checks.append(check)
                if progress:
                    progress(check)
    devices, runtime = extractor.devices, extractor.preparation.runtime.name
    timings: tuple[Timing, ...] = ()
    usual = extractor.preparation.runtime.choose_precision("auto")
    usual = usual if usual in precisions else precisions[0]
    if has_both_forms(extractor):
        packed = packs(ExtractConfig.of(given), any_shape=False)
        timings = tuple(attention.time_on(extractor, usual, packed=packed))
    found_speeds = measure(extractor, usual, given, timings) if speed else None
    return Report(
        checkpoint, devices.kind, devices.count, runtime, tuple(checks), timings, found_speeds
    )


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


def _start_other(
    stack: contextlib.ExitStack, settings: Mapping[str, Any]
) -> other_runtime.OtherRuntime | None:
    other = other_runtime.OTHERS[
        choose_runtime(settings.get("runtime", "auto"), settings.get("device", "auto"))
    ]
    if other_runtime.unavailable_reason(other):
        return None
    return stack.enter_context(other_runtime.OtherRuntime(other, TEXTS, settings))


def _run_checks(subject: Subject) -> Iterator[Check]:
    precision = subject.extractor.precision
    tolerance = TOLERANCES[precision]
    for name, check in CHECKS.items():
        outcome: Outcome = "fail"
        measured = None
        try:
            comparison = check(subject)
            compared = comparison.compared
            measured = comparison.measure(tolerance.measure)
            outcome = "pass" if tolerance.allows(measured) else "fail"
        except SkippedError as reason:
            outcome, compared = "skipped", str(reason)
        # A device and its compiler may raise anything; finding that out is the purpose.
        except Exception as error:
            compared = describe_error(error)
        yield Check(
            name, precision, outcome, compared, tolerance.measure, measured, tolerance.limit
        )

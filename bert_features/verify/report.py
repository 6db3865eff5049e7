"""What `verify` found: a row for each check, and the report."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from bert_features.encoder.step import Precision

Outcome = Literal["pass", "fail", "skipped"]


@dataclass(frozen=True)
class Check:
    """The result of one check in one precision.

    Attributes:
      name: what is checked.
      precision: the precision of the arithmetic.
      outcome: `pass`, `fail` or `skipped`.
      compared: what was compared; or why it was skipped, or could not be compared.
      measure: `deviation` (see `comparison.deviation`) or `cosine`.
      measured: the measured value; None if nothing was compared.
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
class Timing:
    """The time of a batch by each form of attention.

    Attributes:
      length: tokens of a row.
      rows: rows of a batch, on all devices together.
      seconds: form of attention -> seconds of a batch; None where it failed.
    """

    length: int
    rows: int
    seconds: dict[str, float | None]

    def tokens_per_second(self, form: str) -> float | None:
        """The speed of a form; None where it failed."""
        seconds = self.seconds[form]
        return None if seconds is None else self.rows * self.length / seconds

    @property
    def gain(self) -> float | None:
        """How many times as fast as `xla` `pallas` is; None where one of them failed."""
        xla, pallas = self.seconds["xla"], self.seconds["pallas"]
        return None if xla is None or pallas is None else xla / pallas


@dataclass(frozen=True)
class Report:
    """The results of all checks.

    Attributes:
      checkpoint: name of the checkpoint.
      device: `tpu`, `gpu` or `cpu`.
      device_count: number of devices.
      runtime: `tensorflow` or `jax`.
      checks: the results.
      timings: the times of both forms of attention, on a TPU with JAX.
    """

    checkpoint: str
    device: str
    device_count: int
    runtime: str
    checks: tuple[Check, ...]
    timings: tuple[Timing, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.outcome != "fail" for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """The report for JSON; a measured value that is not finite becomes a string."""
        values = asdict(self) | {"passed": self.passed}
        for check in values["checks"]:
            if check["measured"] is not None and not math.isfinite(check["measured"]):
                check["measured"] = str(check["measured"])
        return values

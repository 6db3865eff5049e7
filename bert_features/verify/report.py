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
class Report:
    """The results of all checks.

    Attributes:
      checkpoint: name of the checkpoint.
      device: `tpu`, `gpu` or `cpu`.
      device_count: number of devices.
      runtime: `tensorflow` or `jax`.
      checks: the results.
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
        """The report for JSON; a measured value that is not finite becomes a string."""
        values = asdict(self) | {"passed": self.passed}
        for check in values["checks"]:
            if check["measured"] is not None and not math.isfinite(check["measured"]):
                check["measured"] = str(check["measured"])
        return values

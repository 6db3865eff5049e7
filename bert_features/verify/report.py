"""What `verify` found: a row for each check, and the report."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from bert_features.encoder.step import Precision
from bert_features.errors import first_line
from bert_features.machine.tpu_errors import advice

# An error with its cause and its cure may be long.
_MAX_CHARACTERS = 600

Outcome = Literal["pass", "fail", "skipped"]


@dataclass(frozen=True)
class Check:
    """The result of one check in one precision.

    Attributes:
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
class Speed:
    """The speed of a part of the job.

    Attributes:
      part: `device` (the step alone), `host` (`extract` with a step that computes nothing) or
        `extract`.
      tokens_per_second: its speed; None if it failed.
      utilisation: its operations as a share of the devices' peak; None if the peak is unknown.
    """

    part: str
    length: int
    tokens_per_second: float | None
    utilisation: float | None = None
    problem: str = ""


@dataclass(frozen=True)
class Surroundings:
    """What a reader of the report needs to know of the machine, and how fast it is.

    Attributes:
      versions: package -> its version; None if it is not installed.
      chips: kind and memory (bytes; None if the runtime does not list it) of each device.
      precision: precision of the arithmetic in `speeds`.
    """

    versions: Mapping[str, str | None]
    chips: tuple[Mapping[str, Any], ...]
    precision: Precision
    speeds: tuple[Speed, ...]


@dataclass(frozen=True)
class Report:
    """The results of all checks.

    Attributes:
      device: `tpu`, `gpu` or `cpu`.
      runtime: `tensorflow` or `jax`.
      timings: the times of both forms of attention, on a TPU with JAX.
      surroundings: the machine and its speed, if they were asked for.
    """

    checkpoint: str
    device: str
    device_count: int
    runtime: str
    checks: tuple[Check, ...]
    timings: tuple[Timing, ...] = ()
    surroundings: Surroundings | None = None

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.outcome != "fail" for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """The report for JSON; a measured value that is not finite becomes a string."""
        values = asdict(self) | {"passed": self.passed}
        values |= values.pop("surroundings") or {}
        for check in values["checks"]:
            if check["measured"] is not None and not math.isfinite(check["measured"]):
                check["measured"] = str(check["measured"])
        return values


def describe_error(error: Exception) -> str:
    """An error in one line, with its cause and its cure if they are known."""
    words = first_line(error, _MAX_CHARACTERS, empty="no message")
    return f"{type(error).__name__}: {words}{advice(error)}"

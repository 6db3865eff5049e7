"""The outcome of a check of `bert-features doctor`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "note", "warning", "broken"]


@dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    Attributes:
      status: `ok`, `note` (something optional is absent, or a check does not apply), `warning`
        (runs work, but not as well as they could) or `broken` (no run works, or its numbers are
        wrong).
      found: one line for people.
      remedy: the command that fixes the problem; None if there is no problem or no such command.
      details: the same facts for programs, as JSON types.
    """

    check: str
    status: Status
    found: str
    remedy: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

"""What a check of `bert-features doctor` says."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "warning", "broken"]


@dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    Attributes:
      check: its name.
      status: `ok`; `warning`: runs work, though not as well as they could; `broken`: they do not.
      found: one line for people.
      remedy: the command that mends it; None if there is nothing to mend, or no command does it.
      details: the same for machines, of types that JSON knows.
    """

    check: str
    status: Status
    found: str
    remedy: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


def describe_bytes(count: float) -> str:
    """A number of bytes for people."""
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"

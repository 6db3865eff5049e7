"""Board: an actor of Ray where replicas report, and where they learn that the service stops."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import Metric

# A replica that has not reported for so long has died.
_SILENT_SECONDS = 5.0
# Lines of the log that wait to be fetched.
_MAX_LINES = 1000
_STATE_NOW = "gauge"


@dataclass
class _Report:
    families: list[Metric] = field(default_factory=list)
    running: int = 0
    knows: bool = False
    time: float = 0.0

    @property
    def is_alive(self) -> bool:
        return time.monotonic() - self.time < _SILENT_SECONDS


class Board:
    """The state of all replicas. One process holds it; calls come one after the other."""

    def __init__(self) -> None:
        self._reports: dict[str, _Report] = {}
        self._lines: list[tuple[int, str]] = []
        self._is_draining = False

    def report(
        self,
        replica: str,
        families: Iterable[Metric],
        running: int,
        lines: Sequence[tuple[int, str]],
        *,
        knows: bool,
    ) -> bool:
        """Takes the state of a replica.

        Args:
          replica: its name.
          families: its metrics.
          running: number of requests that it is answering.
          lines: new lines of its log, each with its level.
          knows: whether it takes no more requests.

        Returns:
          Whether it must take no more requests.
        """
        self._reports[replica] = _Report(list(families), running, knows, time.monotonic())
        self._lines = [*self._lines, *lines][-_MAX_LINES:]
        return self._is_draining

    def metrics_of_others(self, replica: str) -> list[list[Metric]]:
        """The metrics of the other replicas; of those that died, what they had counted."""
        return [
            [f for f in report.families if report.is_alive or f.type != _STATE_NOW]
            for name, report in self._reports.items()
            if name != replica
        ]

    def drain(self) -> None:
        """Lets no replica take any more requests."""
        self._is_draining = True

    def is_drained(self) -> bool:
        """Whether all replicas know that, and answer none any more."""
        alive = [report for report in self._reports.values() if report.is_alive]
        return all(report.knows and not report.running for report in alive)

    def take_lines(self) -> list[tuple[int, str]]:
        """The lines of the logs of replicas since the last call."""
        lines, self._lines = self._lines, []
        return lines

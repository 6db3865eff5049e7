"""A replica: a process of Ray Serve that holds the model and answers requests."""

import contextlib
import logging
import threading
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.serve_settings import ServeSettings
from bert_features.machine.hardware import limit_cores
from bert_features.machine.quiet_tensorflow import import_tensorflow
from bert_features.serving.asgi import App

if TYPE_CHECKING:
    from prometheus_client.core import Metric

logger = logging.getLogger("bert_features")

_REPORT_SECONDS = 0.5
_MAX_LINES = 1000


def app_of_replica(
    config: ExtractConfig, settings: ServeSettings, cores: int | None, board: Any
) -> Callable[[], App]:
    """A function that loads the model in the process of a replica and makes its application.

    Args:
      config: the settings of the model and the outputs.
      settings: the settings of the service.
      cores: the CPU cores that the replica may use; None for all.
      board: the handle of the `Board`.
    """

    def build() -> App:
        if cores is not None:
            limit_cores(cores)
        import_tensorflow()
        from bert_features.serving.app import make_app
        from bert_features.serving.service import Service

        lines = _Lines()
        logger.addHandler(lines)
        service = Service.load(config, settings)
        reporter = Reporter(service, board, lines)
        reporter.start()
        return make_app(service, reporter.metrics_of_others)

    return build


class _Lines(logging.Handler):
    """Keeps the lines of the log until they are reported."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lines: deque[tuple[int, str]] = deque(maxlen=_MAX_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps a line."""
        self._lines.append((record.levelno, self.format(record)))

    def take(self) -> list[tuple[int, str]]:
        """The lines since the last call."""
        return [self._lines.popleft() for _ in range(len(self._lines))]


class Reporter(threading.Thread):
    """Reports the state of a service to the board, twice a second.

    Args:
      service: the service.
      board: the handle of the `Board`.
      lines: the lines of the log.
    """

    def __init__(self, service: Any, board: Any, lines: _Lines) -> None:
        super().__init__(name="reporter", daemon=True)
        self._service = service
        self._board = board
        self._lines = lines
        self._name = uuid.uuid4().hex

    def run(self) -> None:
        """Reports until the process ends."""
        import ray

        waiting = threading.Event()
        while not waiting.wait(_REPORT_SECONDS):
            metrics = self._service.metrics
            # A board that has gone means that the service ends.
            with contextlib.suppress(ray.exceptions.RayError):
                self._service.is_draining = ray.get(
                    self._board.report.remote(
                        self._name,
                        metrics.collect(),
                        metrics.running,
                        self._lines.take(),
                        knows=self._service.is_draining,
                    )
                )

    async def metrics_of_others(self) -> "Sequence[Sequence[Metric]]":
        """The metrics of the other replicas."""
        families: Sequence[Sequence[Metric]] = await self._board.metrics_of_others.remote(
            self._name
        )
        return families

"""--metrics: the state of a run in Prometheus' text format, in a file or on a port."""

import contextlib
import importlib.util
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_features import __version__
from bert_features.config.serve_settings import ServeSettings, is_for
from bert_features.config.settings import shown
from bert_features.errors import ConfigError, MissingExtraError, OutputError
from bert_features.files import Role, check_apart, check_target, local_path
from bert_features.monitor.run import RunMonitor, State

if TYPE_CHECKING:
    from bert_features.extraction.counts import Counts

logger = logging.getLogger("bert_features")

_FILE_SECONDS = 10.0
_THIS_MACHINE = "127.0.0.1"
_ADDRESS = re.compile(r"(?:(?P<host>[^/:]+|\[[0-9a-fA-F:.]+\]):)?(?P<port>\d+)")
_MAX_PORT = 65535
_PREFIX = "bert_features_"
_COUNTERS = {
    "examples": ("examples", "Examples that are done."),
    "tokens": ("tokens", "Real tokens of these examples, [CLS] and [SEP] included."),
    "tokens_reused": ("reused_tokens", "Tokens whose features were known (--dedupe)."),
    "computed_tokens": ("computed_tokens", "Tokens computed, padding and filler rows included."),
    "tokens_lost": ("lost_tokens", "Tokens that truncation cut off."),
    "truncated_examples": ("truncated_examples", "Examples that lost tokens."),
    "tokens_unknown": ("unknown_tokens", "Tokens that are [UNK]."),
    "non_finite_examples": ("non_finite_examples", "Examples with NaN or infinite values."),
}
_QUEUES = {
    "windows_prepared": ("prepared_windows", "Pools of texts that wait to be cut into batches."),
    "batches_under_way": ("running_batches", "Batches that are on the device."),
    "bytes_to_write": ("unwritten_bytes", "Bytes of features that wait to be written."),
}


@dataclass(eq=False)  # a registry keeps collectors by identity
class RunMetrics:
    """The state of a run as metrics; a collector of prometheus_client."""

    monitor: RunMonitor = field(default_factory=RunMonitor)
    is_finished: bool = False
    publish: Callable[[], None] = lambda: None
    _counts: dict[str, int] = field(default_factory=dict)
    _state: State = field(default_factory=State)

    def update(self, counts: "Counts", state: State) -> None:
        """Takes the latest totals, and how far the run is."""
        for name in _COUNTERS:  # they never fall, though the work of a lost process is done again
            self._counts[name] = max(getattr(counts, name), self._counts.get(name, 0))
        self._state = state
        self.publish()

    def finish(self, counts: "Counts") -> None:
        """Takes the totals of a run that has ended well."""
        self._counts, self.is_finished = {name: getattr(counts, name) for name in _COUNTERS}, True

    @property
    def has_begun(self) -> bool:
        """Whether the model is loaded, or there was nothing to do."""
        return bool(self.monitor.checkpoint) or self.is_finished

    def collect(self) -> Iterator[Any]:
        """The metrics of this moment."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

        for name, (metric, text) in _COUNTERS.items():
            value = self._counts.get(name, 0)
            yield CounterMetricFamily(_PREFIX + metric, text, value=value)
        times = self.monitor.times()
        yield _by_label("stage_busy_seconds", "Time each stage worked.", "stage", times.busy)
        text = "Time of the leading thread, by what it did or waited for."
        yield _by_label("lead_seconds", text, "activity", times.led)
        rate, shards = self._state.rate or 0.0, self.monitor.shards
        finished = None if shards is None else self.monitor.finished_shards
        gauges: list[tuple[str, str, float | None]] = [
            *((*_QUEUES[queue], depth) for queue, depth in times.queues.items()),
            ("tokens_per_second", "Real tokens a second since the first step.", rate),
            ("input_examples", "Examples to compute in all.", self._state.total),
            ("shards", "Shards of the folder.", shards),
            ("finished_shards", "Shards that are finished.", finished),
            ("finished", "1 once the run has finished, else 0.", int(self.is_finished)),
        ]
        for name, text, number in gauges:
            if number is not None:
                yield GaugeMetricFamily(_PREFIX + name, text, value=number)
        names = ("checkpoint", "runtime", "device", "precision")
        facts = {"version": __version__, **{name: getattr(self.monitor, name) for name in names}}
        yield InfoMetricFamily("bert_features", "What computes.", value=facts)


def _by_label(name: str, text: str, label: str, values: Any) -> Any:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(_PREFIX + name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


@contextlib.contextmanager
def publishing(
    metrics: RunMetrics, target: str | None, written: Iterable[Role] = ()
) -> Iterator[None]:
    """Publishes metrics while the block runs.

    Args:
      metrics: the metrics.
      target: a file, a port of this machine, or HOST:PORT; None for nowhere.
      written: what the run writes: the part that each plays, as `the output`, and its path.

    Raises:
      ConfigError: the port is not allowed.
      MissingExtraError: prometheus_client is not installed.
      OutputError: the port is in use, or the file cannot be written.
    """
    if target is None:
        yield
        return
    if importlib.util.find_spec("prometheus_client") is None:
        raise MissingExtraError("prometheus_client", "metrics")
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    registry.register(metrics)
    address = _ADDRESS.fullmatch(target)
    if address:
        if int(address["port"]) > _MAX_PORT:
            raise ConfigError.naming(
                "{metrics} is {target}; allowed: a port of 0 to {limit} (0: any that is free), or "
                "a file",
                target=shown(target),
                limit=_MAX_PORT,
            )
        host = (address["host"] or _THIS_MACHINE).strip("[]")
        publish = _serving(host, int(address["port"]), registry)
    else:
        publish = _writing(metrics, _file(target, written), registry)
    with publish:
        yield


@contextlib.contextmanager
def _serving(host: str, port: int, registry: Any) -> Iterator[None]:
    from prometheus_client import start_http_server

    named = f"[{host}]" if ":" in host else host
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise OutputError.naming(
            "cannot serve metrics at {host}:{port}: {reason}; pass another port to {metrics}",
            host=named,
            port=port,
            reason=error.strerror or error,
        ) from error
    # As the service: no page on the web may read them by DNS rebinding.
    page: Any = server.get_app()
    hosts = ServeSettings(host).hosts()

    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        if is_for(hosts, environ.get("HTTP_HOST", host)):
            return page(environ, start_response)
        start_response("421 Misdirected Request", [("Content-Type", "text/plain")])
        return [f"Host is not allowed; allowed: {', '.join(hosts or ())}\n".encode()]

    server.set_app(guarded)
    logger.info("metrics are at http://%s:%d/metrics", named, server.server_port)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _file(target: str, written: Iterable[Role]) -> Path:
    """The file to write the metrics to, checked."""
    path = local_path(target)
    check_target(path, overwrite=True)
    if path.exists():
        with path.open("rb") as file:
            beginning = f"# HELP {_PREFIX}".encode()
            if file.read(len(beginning)) not in (b"", beginning):
                raise OutputError(f"{path} exists and holds no metrics of a run; name another file")
    check_apart((), [*written, ("the metrics file", path)])
    return path


@contextlib.contextmanager
def _writing(metrics: RunMetrics, path: Path, registry: Any) -> Iterator[None]:
    """Writes the file after a state, if it is some time since the last, and at the end.

    It is not written before the run has begun: a wrong setting leaves the file as it was.
    """
    from prometheus_client import write_to_textfile

    last = -_FILE_SECONDS
    failed = False

    def write() -> None:
        nonlocal last, failed
        last = time.monotonic()
        try:
            write_to_textfile(str(path), registry)
        except OSError as error:
            if not failed:  # features are worth more than metrics
                logger.warning("cannot write the metrics file %s: %s", path, error.strerror)
            failed = True

    def write_now_and_then() -> None:
        if time.monotonic() - last >= _FILE_SECONDS:
            write()

    metrics.publish = write_now_and_then
    try:
        yield
    finally:
        if metrics.has_begun:
            write()

"""Metrics of the service in Prometheus' text format, added up over its processes on a machine."""

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from bert_features.extraction.counts import Counts

CONTENT_TYPE = CONTENT_TYPE_LATEST
_PREFIX = "bert_features_"
# Seconds: from one short text to the time limit.
_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_COUNTERS = {
    "examples": ("examples", "Texts computed."),
    "tokens": ("tokens", "Real tokens computed, [CLS] and [SEP] included."),
    "computed_tokens": ("computed_tokens", "Tokens computed, padding and filler rows included."),
    "tokens_lost": ("lost_tokens", "Tokens that truncation cut off."),
}


class ServiceMetrics:
    """The metrics of one process."""

    def __init__(self) -> None:
        disable_created_metrics()  # times, which have no sum
        self._registry = CollectorRegistry()
        self.running = self._gauge("running_requests", "Requests that are being answered.")
        self.queued_tokens = self._gauge("queued_tokens", "Tokens that wait to be computed.")
        requests = "Requests answered, by path and status."
        self._requests = self._counter("requests", requests, "path", "status")
        self._seconds = Histogram(
            f"{_PREFIX}request_seconds",
            "Seconds from the request to its answer, by path.",
            ("path",),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        loads = "Loads computed: texts of several requests, taken together."
        self._loads = self._counter("loads", loads)
        busy = "Seconds spent on loads; several are computed at the same time."
        self._busy = self._counter("load_seconds", busy)
        self._counters = {field: self._counter(*row) for field, row in _COUNTERS.items()}

    def note_request(self, path: str, status: int, seconds: float) -> None:
        """Counts a request that was answered."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def note_load(self, counts: Counts, seconds: float) -> None:
        """Counts a load that was computed."""
        self._loads.inc()
        self._busy.inc(seconds)
        for field, counter in self._counters.items():
            counter.inc(getattr(counts, field))

    def to_text(self) -> bytes:
        """The metrics now; with several processes the sums of all of them."""
        registry = self._registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
        return generate_latest(registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(_PREFIX + name, text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        # The state of a process that has died does not count.
        return Gauge(_PREFIX + name, text, registry=self._registry, multiprocess_mode="livesum")

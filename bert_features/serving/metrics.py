"""Metrics of the service in Prometheus' text format: those of all replicas together."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

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
    """The metrics of one replica.

    Args:
      queued: gives the tokens that wait now.
    """

    def __init__(self, queued: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        self._queued = queued
        self.running = 0
        self._requests = Counter(
            f"{_PREFIX}requests",
            "Requests answered, by path and status.",
            ("path", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            f"{_PREFIX}request_seconds",
            "Seconds from the request to its answer, by path.",
            ("path",),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._loads = Counter(
            f"{_PREFIX}loads",
            "Loads computed: texts of several requests, taken together.",
            registry=self._registry,
        )
        self._busy = Counter(
            f"{_PREFIX}load_seconds",
            "Seconds spent on loads; several are computed at the same time.",
            registry=self._registry,
        )
        self._counters = {
            field: Counter(_PREFIX + name, text, registry=self._registry)
            for field, (name, text) in _COUNTERS.items()
        }

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

    def collect(self) -> list[Metric]:
        """The state of the metrics now."""
        gauges = [
            GaugeMetricFamily(
                f"{_PREFIX}queued_tokens", "Tokens that wait to be computed.", self._queued()
            ),
            GaugeMetricFamily(
                f"{_PREFIX}running_requests", "Requests that are being answered.", self.running
            ),
        ]
        return [*self._registry.collect(), *gauges]


def to_text(replicas: Sequence[Iterable[Metric]]) -> bytes:
    """The metrics of all replicas, summed, in the text format.

    Args:
      replicas: for each replica what `ServiceMetrics.collect` gave.
    """
    registry = CollectorRegistry()
    registry.register(_Collected([_sum(replicas)]))
    return generate_latest(registry)


class _Collected:
    def __init__(self, families: Sequence[list[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return [family for families in self._families for family in families]


def _sum(replicas: Sequence[Iterable[Metric]]) -> list[Metric]:
    families: dict[str, Metric] = {}
    sums: dict[str, dict[tuple[Any, ...], float]] = {}
    for replica in replicas:
        for family in replica:
            families.setdefault(family.name, family)
            values = sums.setdefault(family.name, {})
            for sample in family.samples:
                if not sample.name.endswith("_created"):  # a time, which has no sum
                    key = sample.name, tuple(sorted(sample.labels.items()))
                    values[key] = values.get(key, 0.0) + sample.value
    summed = []
    for name, family in families.items():
        total = Metric(name, family.documentation, family.type)
        for (sample_name, labels), value in sums[name].items():
            total.add_sample(sample_name, dict(labels), value)
        summed.append(total)
    return summed

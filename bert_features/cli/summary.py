"""The summary of a run as one JSON object (`--log-json`)."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bert_features.extraction.job import ExtractSummary


def summary_fields(summary: "ExtractSummary", advice: str) -> dict[str, Any]:
    """The summary as values that JSON has.

    Args:
      summary: the summary.
      advice: which stage limits the run and what to change; empty for a run that computed nothing.
    """
    stages = summary.stages
    return {
        **asdict(summary.counts),
        "pad_waste": round(summary.counts.pad_waste, 4),
        "examples_before": summary.before.examples,
        "seconds": round(summary.seconds, 3),
        "tokens_per_second": round(summary.tokens_per_second, 1),
        "output": None if summary.output is None else str(summary.output),
        "bytes": summary.bytes_written,
        "shards": summary.shards,
        "stages": {
            "busy_seconds": _rounded(stages.busy),
            "waited_seconds": _rounded(stages.waited),
            "limiting": stages.limiting,
            "advice": advice or None,
        },
    }


def _rounded(seconds: Any) -> dict[str, float]:
    return {name: round(value, 3) for name, value in seconds.items()}

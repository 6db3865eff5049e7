"""The summary of a run: as lines, or as one JSON object (`--log-json`)."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bert_features.cli.settings import describe_cures
from bert_features.cli.tables import table
from bert_features.files.reporting import describe_size

if TYPE_CHECKING:
    from bert_features.corpus.summary import ExtractSummary
    from bert_features.extraction.counts import Counts


def describe_summary(summary: "ExtractSummary") -> str:
    """The lines that `extract` prints at the end of a run, without those of its stages."""
    counts = summary.counts
    cures = describe_cures(summary.cures) if counts.tokens_lost else ""
    rows = {
        "examples": f"{counts.examples:,}{_describe_before(summary)}",
        "tokens": f"{counts.tokens:,}",
        "truncated": f"{counts.truncated_examples:,} examples, {counts.tokens_lost:,} tokens lost"
        + cures,
        **_describe_rare(counts),
        "pad waste": f"{counts.pad_waste:.1%} of computed tokens",
        "speed": f"{summary.tokens_per_second:,.0f} tokens/s over {summary.seconds:.1f} s",
        "output": f"{summary.output or 'standard output'} ({describe_size(summary.bytes_written)})",
    }
    if summary.before.examples == counts.examples > 0:
        del rows["speed"]  # nothing was computed
    if summary.shards is not None:
        rows["shards"] = f"{summary.shards:,}"
    return table([*rows.items()], widths=[9])


def _describe_before(summary: "ExtractSummary") -> str:
    before = summary.before.examples
    if not before:
        return ""
    share = "all" if before == summary.counts.examples else f"{before:,}"
    return f", {share} before this run"


def _describe_rare(counts: "Counts") -> dict[str, str]:
    """Lines of the summary that only some runs need."""
    rows = {}
    if counts.examples_reused:
        share = counts.examples_reused / counts.examples
        rows["reused"] = f"{counts.examples_reused:,} of {counts.examples:,} examples ({share:.0%})"
        if counts.examples_from_cache:
            rows["reused"] += f", {counts.examples_from_cache:,} from the cache"
    if counts.empty_examples:
        rows["empty"] = f"{counts.empty_examples:,} examples without text"
    if counts.tokens_unknown:
        rows["unknown"] = f"{counts.tokens_unknown:,} tokens are [UNK], {counts.unknown_share:.1%}"
    if counts.non_finite_examples:
        rows["non-finite"] = f"{counts.non_finite_examples:,} examples have NaN or infinite values"
    if counts.rows > counts.examples:
        rows["rows"] = f"{counts.rows:,} computed for {counts.examples:,} examples"
    if counts.words:
        rows["words"] = f"{counts.words:,}"
    if counts.words_vanished or counts.words_lost:
        rows["zero"] = (
            f"{counts.words_vanished:,} words vanished in cleaning, {counts.words_lost:,} were cut "
            "off; their vectors are zero, surprisals NaN"
        )
    return rows


def summary_fields(summary: "ExtractSummary", advice: str) -> dict[str, Any]:
    """The summary as values that JSON has; the advice is empty for a small run."""
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

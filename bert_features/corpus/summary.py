"""The result of a run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from bert_features.extraction.counts import Counts
from bert_features.files import Location
from bert_features.monitor.stages import StageTimes

# Called with the totals so far, and the number of examples of the run if it is known.
Progress: TypeAlias = Callable[[Counts, int | None], None]


@dataclass(frozen=True, repr=False)
class ExtractSummary:
    """The result of `extract`.

    Attributes:
      seconds: time from the first example read to the file closed.
      bytes_written: size of the output.
      output: the file or the folder written: its path, or its address; None for standard output.
      cures: settings that would keep what truncation cut off, with their values as in Python.
      before: the part of `counts` that earlier runs into the same folder computed.
      shards: the number of shards of a folder; None for a single file.
      stages: where the time of this run went; of several processes, their sum.
    """

    counts: Counts
    seconds: float
    bytes_written: int
    output: Location | None
    cures: Mapping[str, str] = field(default_factory=dict)
    before: Counts = field(default_factory=Counts)
    shards: int | None = None
    stages: StageTimes = field(default_factory=StageTimes)

    def __repr__(self) -> str:
        return (
            f"<ExtractSummary: {self.counts.examples:,} examples, {self.counts.tokens:,} tokens in "
            f"{self.seconds:.1f} s, {self.counts.tokens_lost:,} tokens lost, "
            f"{self.bytes_written:,} bytes in {self.output or 'standard output'}>"
        )

    @property
    def tokens_per_second(self) -> float:
        """Real tokens of this run divided by its whole time."""
        tokens = self.counts.tokens - self.before.tokens
        return tokens / self.seconds if self.seconds else 0.0

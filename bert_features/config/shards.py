"""Shares of a job: each of n processes computes every n-th example."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Self, TypeVar

from bert_features.config.settings import shown
from bert_features.errors import ConfigError

AUTO = "auto"
# Names of files have five digits for each, and so sort by number.
MAX_COUNT = 99_999
PATTERN = re.compile(r"(\d{1,5})/(\d{1,5})", re.ASCII)

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Shard:
    """A share of a job.

    Attributes:
      index: its number, from 0.
    """

    index: int = 0
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `index/count`; raises ConfigError for another form or an index too high."""
        match = PATTERN.fullmatch(text)
        shard = cls(*map(int, match.groups())) if match else None
        if shard is None or shard.index >= shard.count:
            raise ConfigError(
                f"shard is {shown(text)}; allowed: auto, or I/N with I from 0 to N - 1, as in 0/4, "
                f"and N at most {MAX_COUNT}"
            )
        return shard

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def has(self, number: int) -> bool:
        """Whether an item, by its number from 0, is in this share."""
        return number % self.count == self.index

    def take(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """Every `count`-th item, from the `index`-th, so that shares have the same size."""
        return islice(items, self.index, None, self.count)

    def size(self, total: int) -> int:
        """Number of items that `take` gives of `total`."""
        return len(range(self.index, total, self.count))

    def path(self, path: str | Path) -> Path:
        """The name of this share's file: `out.parquet` becomes `out-00000-of-00004.parquet`.

        A single share keeps the name.
        """
        path = Path(path)
        if self.count == 1:
            return path
        # All suffixes, as in `out.jsonl.gz`; not the dots of a folder, as in `bert.v2/…`.
        stem, dot, suffixes = path.name.partition(".")
        if not stem:  # a hidden file
            stem, dot, suffixes = path.name, "", ""
        return path.with_name(f"{stem}-{self.index:05d}-of-{self.count:05d}{dot}{suffixes}")


WHOLE = Shard()

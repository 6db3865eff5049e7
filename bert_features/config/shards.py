"""Shares of a job: every n-th example to each of n processes."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Self, TypeVar

from bert_features.errors import ConfigError

AUTO = "auto"
PATTERN = re.compile(r"(\d+)/(\d+)")

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Shard:
    """A share of a job.

    Attributes:
      index: which it is, from 0.
      count: how many there are.
    """

    index: int = 0
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `index/count`.

        Raises:
          ConfigError: it is not of that form, or there is no such share.
        """
        match = PATTERN.fullmatch(text)
        shard = cls(*map(int, match.groups())) if match else None
        if shard is None or shard.index >= shard.count:
            raise ConfigError(
                f"shard is {text!r}; allowed: auto, or I/N with I from 0 to N - 1, as in 0/4"
            )
        return shard

    def take(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """Every `count`-th item, from the `index`-th: shares of one size, whatever their order."""
        return islice(items, self.index, None, self.count)

    def size(self, total: int) -> int:
        """How many of `total` items `take` leaves."""
        return len(range(self.index, total, self.count))

    def path(self, path: str | Path) -> Path:
        """The name of this share's file: `out.parquet` becomes `out-00000-of-00004.parquet`.

        The name stays as it is where there is one share only.
        """
        path = Path(path)
        if self.count == 1:
            return path
        # All suffixes, for names such as `out.jsonl.gz`; not the dots of `bert.v2/…`, a folder.
        stem, dot, suffixes = path.name.partition(".")
        if not stem:  # a hidden file's
            stem, dot, suffixes = path.name, "", ""
        return path.with_name(f"{stem}-{self.index:05d}-of-{self.count:05d}{dot}{suffixes}")

"""The texts: a file as it is, long documents made of its lines, and lengths by a log-normal law."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

_SEED = 20
# Batch sizes that a peer may choose from: fewer rows where rows are long. The first is tried first.
_BATCH_SIZES_OF_SHORT = (32, 16, 64, 128)
_BATCH_SIZES_OF_LONG = (8, 4, 16, 32)


@dataclass(frozen=True)
class Corpus:
    """A set of texts.

    Attributes:
      name: for the tables.
      texts: each becomes one vector.
      max_length: tokens of the longest row, [CLS] and [SEP] included; the rest is cut off.
      batch_sizes: what peers choose from.
    """

    name: str
    texts: tuple[str, ...]
    max_length: int
    batch_sizes: tuple[int, ...]

    def sample(self, count: int, *, name: str = "") -> "Corpus":
        """So many of its texts, drawn by a seed, in their order."""
        if count >= len(self.texts):
            return self
        chosen = sorted(random.Random(_SEED).sample(range(len(self.texts)), count))
        texts = tuple(self.texts[i] for i in chosen)
        return Corpus(name or self.name, texts, self.max_length, self.batch_sizes)

    def write(self, path: Path) -> Path:
        """Writes it for a worker."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return path

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Reads what `write` wrote."""
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        return cls(
            values["name"],
            tuple(values["texts"]),
            values["max_length"],
            tuple(values["batch_sizes"]),
        )


def read_lines(path: Path) -> list[str]:
    """The lines of a file that hold something."""
    lines = path.read_text(encoding="utf-8").split("\n")
    return [line.strip() for line in lines if line.strip()]


def ud_ewt(lines: Sequence[str]) -> Corpus:
    """The lines as they are."""
    return Corpus("ud_ewt", tuple(lines), 128, _BATCH_SIZES_OF_SHORT)


def long_documents(lines: Sequence[str], count: int = 96) -> Corpus:
    """Documents of 300 to 900 words, lines drawn by a seed; many do not fit 512 tokens."""
    rng = random.Random(_SEED)
    documents = []
    for _ in range(count):
        wanted, parts, words = rng.randint(300, 900), [], 0
        while words < wanted:
            parts.append(rng.choice(lines))
            words += len(parts[-1].split())
        documents.append(" ".join(parts))
    return Corpus("long", tuple(documents), 512, _BATCH_SIZES_OF_LONG)


def lognormal(lines: Sequence[str], count: int = 2000) -> Corpus:
    """Words of the lines, drawn by a seed; lengths log-normal, median 20 words, sigma 0.8."""
    return Corpus("lognormal", tuple(drawn_texts(lines, count, 20)), 512, _BATCH_SIZES_OF_SHORT)


def drawn_texts(lines: Sequence[str], count: int, median: float) -> Iterator[str]:
    """Texts of words drawn from lines, of log-normal lengths with sigma 0.8."""
    rng = random.Random(_SEED)
    words = [word for line in lines for word in line.split()]
    for _ in range(count):
        yield " ".join(rng.choices(words, k=max(1, round(median * rng.lognormvariate(0.0, 0.8)))))


CORPORA: dict[str, Callable[[Sequence[str]], Corpus]] = {
    "ud_ewt": ud_ewt,
    "long": long_documents,
    "lognormal": lognormal,
}

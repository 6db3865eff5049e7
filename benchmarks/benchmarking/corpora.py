"""The texts: the lines of a file, long documents made of them, texts of log-normal lengths."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

_SEED = 20
# Batch sizes that a peer may choose from, with fewer rows for long texts. The first is the default.
_SHORT_BATCH_SIZES = (32, 8, 16, 64, 128)
_LONG_BATCH_SIZES = (8, 4, 16, 32)


@dataclass(frozen=True)
class Corpus:
    """A set of texts.

    Attributes:
      name: name in the tables.
      texts: the texts; each becomes one vector.
      max_length: maximum tokens of a row, [CLS] and [SEP] included; the rest is cut off.
      batch_sizes: batch sizes that peers may choose from.
    """

    name: str
    texts: tuple[str, ...]
    max_length: int
    batch_sizes: tuple[int, ...]

    def sample(self, count: int, *, name: str = "") -> "Corpus":
        """`count` of the texts, drawn with a seed, in their order."""
        if count >= len(self.texts):
            return self
        chosen = sorted(random.Random(_SEED).sample(range(len(self.texts)), count))
        texts = tuple(self.texts[i] for i in chosen)
        return Corpus(name or self.name, texts, self.max_length, self.batch_sizes)

    def write(self, path: Path) -> Path:
        """Writes the corpus to a file for a worker."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return path

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Reads a corpus that `write` wrote."""
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        return cls(
            values["name"],
            tuple(values["texts"]),
            values["max_length"],
            tuple(values["batch_sizes"]),
        )


def read_lines(path: Path) -> list[str]:
    """The lines of a file that are not empty."""
    lines = path.read_text(encoding="utf-8").split("\n")
    return [line.strip() for line in lines if line.strip()]


def ud_ewt(lines: Sequence[str]) -> Corpus:
    """The lines, unchanged."""
    return Corpus("ud_ewt", tuple(lines), 128, _SHORT_BATCH_SIZES)


def long_documents(lines: Sequence[str], count: int = 96) -> Corpus:
    """Documents of 300 to 900 words, made of lines drawn with a seed; many exceed 512 tokens."""
    rng = random.Random(_SEED)
    documents = []
    for _ in range(count):
        wanted, parts, words = rng.randint(300, 900), [], 0
        while words < wanted:
            parts.append(rng.choice(lines))
            words += len(parts[-1].split())
        documents.append(" ".join(parts))
    return Corpus("long", tuple(documents), 512, _LONG_BATCH_SIZES)


def lognormal(lines: Sequence[str], count: int = 2000) -> Corpus:
    """Words of the lines, drawn with a seed; log-normal lengths, median 20 words, sigma 0.8."""
    return Corpus("lognormal", tuple(drawn_texts(lines, count, 20)), 512, _SHORT_BATCH_SIZES)


def drawn_texts(lines: Sequence[str], count: int, median: float) -> Iterator[str]:
    """Yields texts of words drawn from lines; log-normal lengths with sigma 0.8."""
    rng = random.Random(_SEED)
    words = [word for line in lines for word in line.split()]
    for _ in range(count):
        yield " ".join(rng.choices(words, k=max(1, round(median * rng.lognormvariate(0.0, 0.8)))))


def ud_ewt_words(lines: Sequence[str]) -> Corpus:
    """The lines for vectors of their words; longer rows, so that every word has its tokens."""
    return Corpus("ud_ewt", tuple(lines), 512, _SHORT_BATCH_SIZES)


CORPORA: dict[str, Callable[[Sequence[str]], Corpus]] = {
    "ud_ewt": ud_ewt,
    "long": long_documents,
    "lognormal": lognormal,
}

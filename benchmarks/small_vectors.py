"""How well small vectors rank similarities: Spearman's correlation with the scores of people.

    .venv/bin/python benchmarks/small_vectors.py FILE [--checkpoint minilm]
        [--scale-from 1000] [--precision float32]

FILE has pairs of texts with a score, in the format of the STS benchmark: tab-separated lines with
genre, file, year, id, score and two sentences (`sts-dev.csv`). Lines of three columns are two texts
and their score; lines that begin with # are left out. One run of `extract` writes the vectors of
all texts in each dtype and width, with pooling `auto`; similarities are cosines of the floats that
`read_features(floats=True)` gives back. Of two vectors of bits the cosine ranks as their Hamming
distance; "binary, one side float" compares the floats of the first text with the bits of the
second, as `neighbors` does.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

from bert_features import ExtractConfig, extract, read_features
from bert_features.config.features import ITEM_SIZES, Feature

DTYPES = ("float32", "float16", "int8", "binary")
WIDTHS = (None, 256, 128)
STS_COLUMNS = (5, 6, 4)  # sentences and score
OWN_COLUMNS = (0, 1, 2)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("pairs", type=Path, help="file of pairs with a score")
    parser.add_argument("--checkpoint", default="minilm")
    parser.add_argument("--scale-from", default="1000", help="as the setting of that name")
    parser.add_argument("--precision", default="float32", help="as the setting of that name")
    arguments = parser.parse_args()
    firsts, seconds, scores = read_pairs(arguments.pairs)
    texts = sorted({*firsts, *seconds})
    place = {text: i for i, text in enumerate(texts)}
    a, b = ([place[text] for text in side] for side in (firsts, seconds))
    print(f"{len(scores)} pairs of {arguments.pairs.name}, {len(texts)} texts\n")
    print("| dtype | dimensions | bytes | Spearman |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for features in vectors_of(texts, arguments, folder):
            floats, _ = features["float32"]
            for dtype, (values, feature) in features.items():
                report(dtype, feature, cosines(values[a], values[b]), scores)
                if dtype == "binary":
                    one_side = cosines(floats[a], values[b])
                    report("binary, one side float", feature, one_side, scores)


def read_pairs(path: Path) -> tuple[list[str], list[str], np.ndarray]:
    """The first texts, the second texts and the scores of a file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    columns = OWN_COLUMNS if len(rows[0]) == len(OWN_COLUMNS) else STS_COLUMNS
    first, second, score = ([row[column] for row in rows] for column in columns)
    return first, second, np.array(score, float)


def vectors_of(
    texts: list[str], arguments: argparse.Namespace, folder: str
) -> list[dict[str, tuple[np.ndarray, Feature]]]:
    """For each width the vectors of the texts, as floats, and the feature, by dtype."""
    outputs = [
        {
            **{"name": f"{dtype}_{width}", "level": "sequence", "pooling": "auto"},
            **{"dtype": dtype, "dim": width},
            "scale_from": arguments.scale_from if dtype == "int8" else None,
        }
        for width in WIDTHS
        for dtype in DTYPES
    ]
    source, target = Path(folder, "texts.jsonl"), Path(folder, "vectors.npz")
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    settings = {"checkpoint": arguments.checkpoint, "precision": arguments.precision}
    extract(ExtractConfig(**settings, outputs=outputs), source, target)
    stored = {feature.name: feature for feature in read_features(target).features}
    file = read_features(target, floats=True)
    return [
        {
            dtype: (np.asarray(file.ragged(name)[0], np.float64), stored[name])
            for dtype in DTYPES
            for name in [f"{dtype}_{width}"]
        }
        for width in WIDTHS
    ]


def report(name: str, feature: Feature, similarities: np.ndarray, scores: np.ndarray) -> None:
    """Prints a line of the table."""
    size = feature.stored_width * ITEM_SIZES[feature.dtype]
    correlation = np.corrcoef(ranks(similarities), ranks(scores))[0, 1]
    print(f"| {name} | {feature.width} | {size} | {correlation:.4f} |")


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The cosine of each row of a and of b."""
    products = (a * b).sum(axis=1)
    cosine: np.ndarray = products / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return cosine.round(12)  # equal ones are equal


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0; equal values have their mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    found: np.ndarray = ((ends - counts + ends - 1) / 2)[places]
    return found


if __name__ == "__main__":
    main()

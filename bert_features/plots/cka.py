"""Linear CKA (Kornblith et al. 2019) of each layer of one features file with each of another.

Shape legend: `N` rows, `M` rows of a block, `P` and `Q` widths, `R` and `C` layers of the files.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt
import numpy as np

from bert_features.config.kinds import KINDS
from bert_features.config.levels import LEVELS
from bert_features.errors import InputError
from bert_features.formats import read_features
from bert_features.formats.reader import FeatureFile
from bert_features.formats.records import Feature
from bert_features.plots.charts import Chart
from bert_features.plots.figures import PANEL_TITLE, finish
from bert_features.plots.heat_map import HeatMap
from bert_features.plots.model import Report, title_of

_BLOCK_BYTES = 48 << 20  # of the rows of a block, as float64
_SUM_BYTES = 192 << 20  # of the sums of a pass; more layers take more passes
_PARTS = 256  # of the second file, in random order for the null
_NUMBER = ("row", "int32")  # level and dtype of the numbers of a shuffled store


@dataclass(frozen=True)
class LayerSimilarity(Chart):
    """The CKA of each pair of layers, and the same with the rows of the second file permuted.

    `values` are float64 [2, R, C], `layers` their labels, `rows` the number and level of the rows.
    """

    models: tuple[str, str]
    layers: tuple[Sequence[str], Sequence[str]]
    values: np.ndarray
    rows: str

    def describe(self) -> tuple[str, str]:
        """What was drawn, in one line; and the title of a page."""
        most = f"with permuted rows at most {np.abs(self.values[1]).max():.1g}"
        count = " x ".join(str(len(each)) for each in self.layers)
        return f"CKA of {count} layers, {self.rows}; {most}", f"Linear CKA: {self.models[0]}"

    @property
    def _heat_map(self) -> HeatMap:
        values: Any = dict(enumerate(self.values))
        one, other = (name.replace(", ", ",\n") for name in self.models)
        return HeatMap(*self.layers, *self.layers, values, 0, titles=(one, other), value="CKA")

    def data(self) -> dict[str, list[dict[str, Any]]]:
        """The cells."""
        return {"cells": self._heat_map.data()}

    def draw(self, *, interactive: bool) -> alt.TopLevelMixin:
        """Both heat maps."""
        heat_map, title = self._heat_map, f"Linear CKA of each pair of layers, {self.rows}"
        maps = [
            replace(heat_map, shown=str(i)).draw(title=alt.Title(name, **PANEL_TITLE))
            for i, name in enumerate(["the same rows", "null: rows permuted"])
        ]
        parameters = heat_map.label_parameters()
        return finish(alt.hconcat(*maps), title, "unbiased estimator", *parameters)


class _Side(NamedTuple):
    """The features of a file that have vectors of one level, or some of them."""

    file: FeatureFile
    level: str
    features: Sequence[Feature]

    def blocks(self, size: int, parts: Sequence[range]) -> Iterator[list[np.ndarray]]:
        """`size` rows at a time: ids, positions and names; then vectors, [M, P] each."""
        # A row of a shuffled store has its position and its name first, as features of int32.
        of_store = [f.name for f in self.file.features if (f.level, f.dtype) == _NUMBER][:2]
        names = [*list(LEVELS[self.level].columns)[:1], *of_store, *(f.name for f in self.features)]
        held: list[np.ndarray] = []
        for part in parts:
            for batch in self.file.batches(["unique_ids", *names], part):
                rows = [batch.unique_ids, *(batch.columns[name] for name in names)]
                if self.level in batch.levels:
                    splits = batch.levels[self.level].splits
                    starts, lengths = splits[:-1], np.diff(splits)
                    positions = np.arange(splits[-1]) - np.repeat(starts, lengths)
                    rows[:1] = np.repeat(batch.unique_ids, lengths), positions
                held = [*map(np.concatenate, zip(held, rows, strict=True))] if held else rows
                while len(held[0]) >= size:
                    yield [column[:size] for column in held]
                    held = [column[size:] for column in held]
        if held and len(held[0]):
            yield held


def compare_layers(
    first: str | Path, second: str | Path, report: Report = lambda unit, done, total: None
) -> LayerSimilarity:
    """Computes the CKA of each layer of a features file or folder with each layer of another.

    A row is a token, a word, a span, a text, or a row of a shuffled store: the first of these that
    both files have. In the null, 256 parts of the second file stand in random order, and then the
    rows of each block.

    Raises InputError if they have no such level in common, other texts, units or order, fewer than
    4 rows, or a layer with the same vector in each row, or values that are not finite; OutputError
    if they cannot be read.
    """
    files = [read_features(path, floats=True) for path in (first, second)]
    dense = [
        [f for f in file.features if KINDS[f.kind].has_vectors and (f.level, f.dtype) != _NUMBER]
        for file in files
    ]
    levels = [{feature.level for feature in each} for each in dense]
    level = next((level for level in LEVELS if all(level in each for each in levels)), None)
    if level is None:
        has = " and ".join(", ".join(sorted(each)) or "no" for each in levels)
        raise InputError(f"{first} and {second} have {has} vectors; extract both of one level")
    texts = [file.texts() for file in files]
    if level == "sequence" and (texts[0] != texts[1] or not all(crc for _, crc in texts[0])):
        cure = "extract both from one input, with the same shards, and not as jsonl"
        raise InputError(f"{first} and {second} lack the same checksums of texts; {cure}")
    dense = [[feature for feature in each if feature.level == level] for each in dense]
    a, b = (_Side(file, level, each) for file, each in zip(files, dense, strict=True))
    layer_bytes = 16 * max(f.width + 2 for f in a.features) * sum(f.width + 2 for f in b.features)
    step, found = max(1, _SUM_BYTES // layer_bytes), []
    for start in range(0, len(a.features), step):
        count, values = _values(a._replace(features=a.features[start : start + step]), b)
        found.append(values)
        report("layers", min(start + step, len(a.features)), len(a.features))
    models = [file.recipe.checkpoint for file in files]
    one, other = (title_of(m["name"], m["bert_config"]["num_hidden_layers"]) for m in models)
    rows, columns = ([",".join(map(str, f.layers)) for f in each] for each in dense)
    named = f"{count:,} {LEVELS[level].unit.replace('sequence', 'text')}s"
    return LayerSimilarity((one, other), (rows, columns), np.hstack(found), named)


@np.errstate(invalid="ignore", over="ignore")  # of values that are not finite, which are refused
def _values(a: _Side, b: _Side) -> tuple[int, np.ndarray]:
    """N; and CKA and null of some layers and all of the second file, [2, R, C].

    One pass over the first file, and two over the second, in its order and in another.
    """
    random, sums, shifts = np.random.default_rng(0), list[Any](), list[np.ndarray]()
    features, ours, theirs = [*a.features, *b.features], len(a.features), len(b.features)
    size = max(_BLOCK_BYTES // (8 * sum(f.width + 2 for f in (*features, *b.features))), 64)
    bounds = np.linspace(0, len(b.file), min(_PARTS, len(b.file)) + 1).astype(int).tolist()
    parts = [range(*each) for each in pairwise(bounds)]
    mixed = b.blocks(size, [parts[i] for i in random.permutation(len(parts))])
    none: list[np.ndarray] = []
    both = a.blocks(size, [range(len(a.file))]), b.blocks(size, [range(len(b.file))])
    for mine, its, others in zip_longest(*both, mixed, fillvalue=none):
        keys, its_keys = mine[:-ours], its[:-theirs]
        if len(keys) != len(its_keys) or not all(map(np.array_equal, keys, its_keys)):
            raise InputError(
                f"{a.file.path} and {b.file.path} have rows of different ids, positions, tokens or "
                "words; extract both from one input, or shuffle both with the same seed"
            )
        order = random.permutation(len(keys[0]))
        vectors = [*mine[-ours:], *its[-theirs:], *(each[order] for each in others[-theirs:])]
        # Near most rows, so that few digits cancel; of equal rows exactly their vector.
        shifts = shifts or [np.median(each[:63].astype(float), 0) for each in vectors[:-theirs]]
        extended = [*map(_extended, vectors, shifts + shifts[ours:])]
        products = [x.T @ y for x in extended[:ours] for y in extended[ours:]]
        products += [x.T @ x for x in extended[:-theirs]]
        sums = sums or [0.0] * len(products)
        for i, product in enumerate(products):
            sums[i] += product
    if (count := int(sums[0][-1, -1]) if sums else 0) < 4:  # the estimator divides by N - 3
        raise InputError(f"{a.file.path} has {count} rows; CKA needs at least 4")
    pairs, own = np.split(np.array([*map(_hsic, sums)]), [2 * ours * theirs])
    for feature, value in zip(features, own, strict=True):
        if not 0 < value < np.inf:
            same = "the same vector in each row, or in all but one"
            why = same if np.isfinite(value) else "values that are not finite"
            where = f"{feature.name} of {a.file.path} or {b.file.path}"
            raise InputError(f"{where} has {why}, so it has no CKA; extract other layers")
    pairs = np.moveaxis(pairs.reshape(ours, 2, theirs), 1, 0)
    return count, pairs / np.sqrt(np.outer(own[:ours], own[ours:]))


def _extended(vectors: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """float64 [M, P + 2]: vectors [M, P] less a shift, their squared lengths, and ones."""
    moved = vectors.astype(np.float64) - shift
    return np.column_stack([moved, np.square(moved).sum(1), np.ones(len(moved))])


def _hsic(products: np.ndarray) -> float:
    """The unbiased HSIC of two linear kernels, exactly, from the products of N extended rows.

    Of x_i with k_i = x_i.x_i and y_i with l_i = y_i.y_i, `products` has sums over the rows:

        [sum x y', sum l x, sum x]
        [sum k y', sum k l, sum k]
        [sum y',   sum l,   N    ]

    Song et al. 2012 take the kernels K = XX' and L = YY' with zeros on their diagonals:

        HSIC = (tr(KL) + 1'K1 1'L1 / ((N-1)(N-2)) - 2 1'KL1 / (N-2)) / (N (N-3))

    Off the diagonal K_ij L_ij = x_i'(x_j y_j')y_i, so tr(KL) is the sum of the squares of X'Y, less
    sum k l. Row i of K adds up to x_i.s - k_i with s = sum x, and of L to y_i.t - l_i with
    t = sum y. So 1'K1 = s.s - sum k, and 1'KL1, the sum of the products of these, is
    s'(X'Y)t - (sum k y).t - (sum l x).s + sum k l. A shift of all x or all y changes nothing.
    """
    xy, lx, s = products[:-2, :-2], products[:-2, -2], products[:-2, -1]
    ky, kl, k = products[-2, :-2], products[-2, -2], products[-2, -1]
    t, y_squares, n = products[-1, :-2], products[-1, -2], products[-1, -1]
    total = np.square(xy).sum() - kl + (s @ s - k) * (t @ t - y_squares) / ((n - 1) * (n - 2))
    total -= 2 * (s @ xy @ t - ky @ t - lx @ s + kl) / (n - 2)
    return float(total / (n * (n - 3)))

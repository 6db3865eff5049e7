"""Whether the vectors of two recipes may be compared: by what decides them, then by canaries.

Canaries are the vectors of fixed texts by the very output. They show numbers that changed though
no setting did.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from bert_features.config.features import SMALL_DTYPES
from bert_features.config.recipe import Canaries, Recipe
from bert_features.errors import OutputError
from bert_features.formats.columns import value_dtype
from bert_features.formats.records import Feature, FeatureBatch
from bert_features.formats.small_vectors import encode, restore

logger = logging.getLogger("bert_features")

Verdict: TypeAlias = Literal["same", "rounded", "other"]

AGREEMENT = " (their canaries agree)"  # ends the difference of weights that may be equal
_MOST_VALUES, _LEAST_VALUES = 1024, 16  # of a text: of all features, and of one
_GOLDEN = (5**0.5 - 1) / 2


class Tolerance(NamedTuple):
    """The largest difference of two values and the least cosine of two vectors.

    A difference counts by the largest value of its vector if that is above 1.
    """

    difference: float
    cosine: float


# By precision: of the same arithmetic on two machines, and beside another arithmetic or precision.
_TOLERANCES: dict[str, tuple[Tolerance, Tolerance]] = {
    # Sums in another order; kernels that round in other places, such as XLA's.
    "float32": (Tolerance(1e-5, 0.999), Tolerance(1e-3, 0.999)),
    "float16": (Tolerance(1e-3, 0.999), Tolerance(1e-3, 0.999)),  # one rounding, at the end
    "bfloat16": (Tolerance(0.05, 0.999), Tolerance(0.05, 0.999)),  # 8 bits in each operation
    # The last bits of floats round to other integers; each product of an encoder in 8 bits.
    "int8": (Tolerance(0.2, 0.99), Tolerance(0.5, 0.95)),
}


class Distance(NamedTuple):
    """How far two sets of canaries are apart.

    Attributes:
      cosine: the least cosine of two vectors.
      difference: the largest difference of two values, by the largest value of their vectors if
        that is above 1.
    """

    cosine: float
    difference: float

    def __str__(self) -> str:
        return f"the canaries differ by {self.difference:.1e}, cosine {self.cosine:.6f}"

    @property
    def is_close(self) -> bool:
        """Whether they are as close as float32 on two machines."""
        return self.difference <= _TOLERANCES["float32"][0].difference

    def is_within(self, most: Tolerance) -> bool:
        """Whether no value differs by more, and no cosine is less."""
        return self.difference <= most.difference and self.cosine >= most.cosine


@dataclass(frozen=True)
class Comparison:
    """How the vectors of two features relate.

    Attributes:
      feature: the name of the first one.
      other: the name of the second one.
      verdict: `same` vectors, to 1e-5; `rounded` in other places; or `other` vectors, which may not
        be compared. Without canaries of both sides `same` is by their recipes alone.
      differences: what differs, each as `layers [-1] and [-2]`: of other vectors the reasons, else
        what changes their digits alone.
      cosine: the least cosine of two canaries as the features hold them; None without canaries.
    """

    feature: str
    other: str
    verdict: Verdict
    differences: tuple[str, ...] = ()
    cosine: float | None = None

    @property
    def may_be_compared(self) -> bool:
        """Whether the vectors are the same but for rounding."""
        return self.verdict != "other"

    def __str__(self) -> str:
        because = "; ".join(self.differences)
        if self.verdict == "other":
            return f"other: {because}"
        if self.cosine is None:
            return f"same by recipe; no number was compared: {because}"
        if self.verdict == "same":
            return "same: equal to 1e-5"
        least = math.floor(self.cosine * 1e6) / 1e6  # "at least" is never rounded up
        text = f"rounded: cosine at least {least:.6f} on the canaries"
        return f"{text} ({because})" if because else text


def compare_recipes(a: Recipe, b: Recipe, feature: str | None = None) -> list[Comparison]:
    """Compares outputs of two recipes: those of one name, or else those that are made the same way.

    `feature` is one name for both, or `NAME=NAME` for two. Raises OutputError if there is nothing
    to compare.
    """
    pairs = [(name, name) for name in a.outputs if name in b.outputs] or [
        (mine, theirs)
        for mine in a.outputs
        for theirs in b.outputs
        if not a.differences(b, mine, theirs).vectors
    ]
    if feature is not None:
        first, _, second = (feature, "", "") if feature in a.outputs else feature.partition("=")
        second = second or first
        pairs = [(first, second)] if first in a.outputs and second in b.outputs else []
    if not pairs:
        missing = (
            "no feature of the same name or recipe"
            if feature is None
            else f"no feature {feature!r}"
        )
        raise OutputError(
            f"the two have {missing}; {a.name} has {', '.join(a.outputs)}, and {b.name} has "
            f"{', '.join(b.outputs)}: name one of each as NAME=NAME"
        )
    left = {*a.outputs, *b.outputs}.difference(*pairs)
    if left and feature is None:
        logger.info("not compared, as one side alone has them: %s", ", ".join(sorted(left)))
    return [_compare(a, b, *pair) for pair in pairs]


def _compare(a: Recipe, b: Recipe, name: str, other: str) -> Comparison:
    sides = (a, name), (b, other)
    vectors, digits = a.differences(b, name, other)
    without = [recipe.name for recipe, output in sides if output not in recipe.canaries]
    exact = None if without else distance(a.canaries[name], b.canaries[other])
    if vectors:
        return Comparison(name, other, "other", _with_agreement(vectors, exact))
    if exact is None:
        reason = f"{' and '.join(without)} {'have' if len(without) > 1 else 'has'} no canaries"
        return Comparison(name, other, "same", (reason, *digits))
    if not exact.is_within(max(_TOLERANCES[_precision(*side)][1] for side in sides)):
        reason = f"other numbers by the same recipe ({exact})"
        return Comparison(name, other, "other", (reason, *digits), exact.cosine)
    stored = distance(*(_stored(*side) for side in sides))
    verdict: Verdict = "same" if stored.is_close else "rounded"
    explains = exact.is_close or any(d.startswith(("precision ", "dtype ")) for d in digits)
    reasons = digits if verdict == "same" or explains else (*digits, str(exact))
    return Comparison(name, other, verdict, reasons, stored.cosine)


def _with_agreement(vectors: tuple[str, ...], exact: Distance | None) -> tuple[str, ...]:
    """Adds to the difference of weights whether the canaries agree, if both sides have some."""
    said = "" if exact is None else AGREEMENT if exact.is_close else f" ({exact})"
    return tuple(d + said * d.startswith(("checkpoint ", "head ")) for d in vectors)


def check_numbers(begun: Recipe, now: Recipe) -> None:
    """Refuses canaries that are others than those of a run that has begun; raises OutputError."""
    both = now.canaries.keys() & begun.canaries.keys()
    for name in filter(both.__contains__, now.outputs):  # ids have canaries alone
        apart = distance(begun.canaries[name], now.canaries[name])
        if not apart.is_within(_TOLERANCES[_precision(now, name)][0]):
            raise OutputError(
                f"this machine computes other numbers of {name!r} than the run began with, by the "
                f"same recipe ({apart}): run bert-features doctor, resume it where it began, or "
                "pass accept_new_numbers=True to mix both"
            )


def _precision(recipe: Recipe, output: str) -> str:
    """The coarsest of the arithmetic and of the dtype that floats are stored in."""
    both = recipe.arithmetic.get("precision"), recipe.outputs[output]["dtype"]
    if both[0] == "int8":
        return "int8"
    return next((name for name in ("bfloat16", "float16") if name in both), "float32")


def _stored(recipe: Recipe, output: str) -> np.ndarray:
    """The canaries as the dtype of the output holds them, float32 [texts, W]."""
    settings, values = recipe.outputs[output], recipe.canaries[output]
    if settings["dtype"] not in SMALL_DTYPES:
        return values.astype(value_dtype(settings["dtype"])).astype(np.float32)
    places = _places(settings["width"], values.shape[1])
    scale = tuple(tuple(np.array(row)[places].tolist()) for row in settings.get("scale") or ())
    kept = Feature("canaries", (), "none", len(places), settings["dtype"], scale=scale)
    return restore(encode(values, kept), kept)


def distance(a: np.ndarray, b: np.ndarray) -> Distance:
    """How far canaries are apart, float32 [N, W]; one of them may have more rows or columns.

    Single numbers, W = 1, are one vector.
    """
    rows, columns = np.minimum(a.shape, b.shape)
    a, b = (each[:rows, :columns].astype(np.float64) for each in (a, b))
    if columns == 1:
        a, b = a.T, b.T
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)):
        return Distance(-1.0, np.inf)
    a, b = np.where(finite, a, 0), np.where(finite, b, 0)
    differences = np.abs(a - b).max(axis=1) / np.maximum(np.abs(a).max(axis=1), 1)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosines = (a * b).sum(axis=1) / np.where(lengths > 0, lengths, 1)
    cosines = np.where((a == b).all(axis=1), 1, cosines)  # zeros too
    return Distance(float(cosines.min()), float(differences.max()))


def _places(width: int, kept: int) -> np.ndarray:
    """Which `kept` of D values a canary has: spread, and of fewer the first of these."""
    return np.argsort((np.arange(width) * _GOLDEN) % 1, kind="stable")[:kept]


def choose_canaries(batch: FeatureBatch, features: Sequence[Feature]) -> Canaries:
    """The canaries in the vectors of the texts.

    Of each text the third vector counts, or the last of fewer: the first is [CLS], which has the
    same embedding everywhere. A text without vectors has zeros.
    """
    kept = max(_MOST_VALUES // max(len(features), 1), _LEAST_VALUES)
    canaries: Canaries = {}
    for feature in features:
        values, splits = batch.features[feature.name], batch.row_splits(feature)
        if splits is not None:
            third = np.minimum(splits[:-1] + 2, splits[1:] - 1)
            values = np.concatenate([values, np.zeros((1, values.shape[1]), values.dtype)])
            values = values[np.where(np.diff(splits) > 0, third, -1)]
        chosen = values[:, _places(values.shape[1], kept)]
        canaries[feature.name] = chosen.astype(np.float32)
    return canaries

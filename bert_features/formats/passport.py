"""Passports: what vectors depend on, and whether those of two sides may be compared.

A passport is made from the metadata of a features file, and needs no checkpoint. Beside what was
set it has the canaries: vectors of fixed texts by the very output, which show numbers that changed
though no setting did.
"""

import base64
import functools
import itertools
import json
import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np
from pydantic import TypeAdapter, ValidationError

from bert_features.config.features import SMALL_DTYPES
from bert_features.config.kinds import KINDS
from bert_features.config.output_specs import as_floats
from bert_features.errors import OutputError
from bert_features.formats.columns import value_dtype
from bert_features.formats.records import Feature, FeatureBatch
from bert_features.formats.small_vectors import encode, restore

logger = logging.getLogger("bert_features")

Verdict: TypeAlias = Literal["equal", "lower precision", "same settings", "not comparable"]
# By the name of the feature, see `FeaturePassport`.
Canaries: TypeAlias = Mapping[str, Sequence[str]]

CANARIES = "canaries"  # their key in the metadata
AGREEMENT = " (their canaries agree)"  # ends the difference of weights that may be equal
_MOST_VALUES, _LEAST_VALUES = 1024, 16  # of a text: of all features, and of one
# What values differ by, by the largest of a vector if that is above 1, and the least cosine of
# vectors: float32 on machines that work; float32 that is rounded in other places, or to float16;
# bfloat16; int8 on two machines, whose last bits round to other integers; int8 and float32.
_CLOSE, _NEAR, _ROUGH = (1e-5, 0.999), (1e-3, 0.999), (0.05, 0.999)
_OTHER_INTEGERS, _ROUGHEST = (0.2, 0.99), (0.5, 0.95)
_LONG = 120  # characters of a list whose values a difference does not show
_GOLDEN = (5**0.5 - 1) / 2

# What a vector depends on beside its output and the model: what settings resolve to.
_RESOLVED = ("vocabulary", "do_lower_case", "prompt", "lower_cased_first", "task")
_OF_TRAINING = ("attention_probs_dropout_prob", "hidden_dropout_prob", "initializer_range")
# SHA-256; a message has the first digits.
_DIGEST = re.compile("'([0-9a-f]{12})[0-9a-f]{52}'")


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
        return self.difference <= _CLOSE[0]

    def is_within(self, most: tuple[float, float]) -> bool:
        """Whether no value differs by more, and no cosine is less."""
        return self.difference <= most[0] and self.cosine >= most[1]


@dataclass(frozen=True)
class FeaturePassport:
    """What the vectors of one feature depend on.

    Attributes:
      space: what decides whether two vectors may be compared, by name.
      numbers: what changes their digits alone: dtype, precision, runtime and versions.
      ranges: those of int8.
      canaries: for each text the base64 of float32 [W], little-endian: W of the D values of a
        vector, of float16 and bfloat16 as rounded on the device; empty where nothing computed them.
    """

    space: dict[str, Any]
    numbers: dict[str, Any]
    ranges: tuple[tuple[float, ...], ...] = ()
    canaries: tuple[str, ...] = ()

    @classmethod
    def of(cls, feature: Feature, metadata: Mapping[str, Any]) -> Self:
        """The passport of a feature; KeyError, TypeError or AttributeError: it has none."""
        config, model = metadata["config"], metadata["checkpoint"]
        count = model["bert_config"]["num_hidden_layers"]
        (floats,) = as_floats([replace(feature, labelled=False)])
        length, policy = config["max_seq_length"], config["long_text"]
        space = {
            "max_seq_length": length,
            # The vectors that `error` lets through are the same.
            "long_text": "truncate" if policy == "error" else policy,
            "stride": config["stride"] or (length - 2) // 2 if policy == "window" else None,
            **{n: v for n, v in model["bert_config"].items() if n not in _OF_TRAINING},
            **{name: metadata.get(name) for name in _RESOLVED},
            **{n: v for n, v in floats.to_metadata().items() if n not in ("name", "dtype")},
            # Counted from the last, as a layer has two numbers.
            "layers": [e if isinstance(e, str) or e < 0 else e - count for e in feature.layers],
            "kind": feature.kind,
            "checkpoint": model["sha256"],
            "head": model.get("heads", {}).get(feature.name),
        }
        if feature.unit == "word":
            space["word_split"] = config.get("word_split")
        for name in metadata.keys() & {"modules", "terms"}:
            space[name] = metadata[name].get(feature.name, [])
        if KINDS[feature.kind].needs == "projection":
            space["sides"] = metadata.get("sides")
        numbers = {name: metadata.get(name) for name in ("precision", "runtime")}
        numbers |= {"dtype": feature.dtype, **metadata.get("versions", {})}
        canaries = tuple(metadata.get(CANARIES, {}).get(feature.name, ()))
        return cls(json.loads(json.dumps(space)), numbers, feature.ranges, canaries)

    @property
    def tolerance(self) -> tuple[float, float]:
        """What its values may differ by from those of float32 on machines that work."""
        if self.numbers["precision"] == "int8":
            return _ROUGHEST
        is_rough = "bfloat16" in (self.numbers["precision"], self.numbers["dtype"])
        return _ROUGH if is_rough else _NEAR

    def values(self, name: str) -> np.ndarray:
        """The canaries, float32 [texts, W]; OutputError if those of `name` are damaged."""
        try:
            decoded = [base64.b64decode(text, validate=True) for text in self.canaries]
            return np.stack([np.frombuffer(data or b"?", "<f4") for data in decoded])
        except (ValueError, TypeError) as error:  # binascii.Error is one of the first
            raise OutputError(
                f"the canaries of {name} are damaged ({error}); extract again"
            ) from error

    def stored(self, name: str) -> np.ndarray:
        """The canaries as the feature's dtype holds them; errors as `values`."""
        dtype, values = self.numbers["dtype"], self.values(name)
        if dtype not in SMALL_DTYPES:
            return values.astype(value_dtype(dtype)).astype(np.float32)
        places = _places(self.space["width"], values.shape[1])
        ranges = tuple(tuple(np.array(row)[places].tolist()) for row in self.ranges)
        kept = Feature("canaries", (), "none", len(places), dtype, ranges=ranges)
        return restore(encode(values, kept), kept)


@dataclass(frozen=True)
class Comparison:
    """How the vectors of two features relate.

    Attributes:
      feature: the name of the first one.
      other: the name of the second one.
      verdict: `equal` to 1e-5; `lower precision`; `same settings`, where one has no canaries, so
        that no number was compared; or `not comparable`.
      differences: what differs, each as `layers [-1] and [-2]`: of vectors that are not comparable
        the reasons, else what changes their digits alone.
      cosine: the least cosine of two canaries as the features hold them; None without canaries.
    """

    feature: str
    other: str
    verdict: Verdict
    differences: tuple[str, ...] = ()
    cosine: float | None = None

    @property
    def may_be_compared(self) -> bool:
        """Whether the vectors lie in the same space."""
        return self.verdict != "not comparable"

    def __str__(self) -> str:
        because = "; ".join(self.differences)
        if self.verdict == "equal":
            return "the same space, equal to 1e-5"
        if self.verdict == "same settings":
            return f"the same space by its settings; no number was compared: {because}"
        if self.verdict == "lower precision":
            least = math.floor((self.cosine or 0) * 1e6) / 1e6  # "at least" is never rounded up
            text = f"the same space, lower precision: cosine at least {least:.6f} on the canaries"
            return f"{text} ({because})" if because else text
        return f"not comparable: {because}"


@dataclass(frozen=True)
class Passport:
    """What the vectors of a features file, a service or an export depend on.

    Attributes:
      name: whose they are, for messages.
      features: by the name of the feature.
    """

    name: str
    features: dict[str, FeaturePassport]

    @classmethod
    def of(cls, name: str, metadata: Mapping[str, Any], features: Sequence[Feature]) -> Self:
        """The passport in the metadata of a features file.

        Raises OutputError if the metadata does not say how the features were made.
        """
        vectors = [feature for feature in features if feature.dtype != "int32"]  # ids
        try:
            return cls(name, {each.name: FeaturePassport.of(each, metadata) for each in vectors})
        except (KeyError, TypeError, AttributeError) as error:
            raise OutputError(
                f"{name} does not record how its features were made, so nothing can be compared "
                "with them; extract them with bert_features, and keep the .metadata.json of a "
                "jsonl or tfrecord file beside it"
            ) from error

    def to_json(self) -> dict[str, Any]:
        """The features as a service sends them."""
        return {name: asdict(feature) for name, feature in self.features.items()}

    @classmethod
    def from_json(cls, name: str, values: object) -> Self:
        """The reverse of `to_json`; raises OutputError if it is not a passport."""
        try:
            found = TypeAdapter(dict[str, FeaturePassport]).validate_python(values)
            for feature in found.values():
                _ = feature.space["width"], feature.numbers["dtype"], feature.numbers["precision"]
            return cls(name, found)
        except (ValidationError, KeyError) as error:
            raise OutputError(
                f"{name} has no passport that this release can read; use the version that wrote it"
            ) from error

    def compare(self, other: "Passport", feature: str | None = None) -> list[Comparison]:
        """Compares the features that both have, by their names; or one, which is named.

        `feature` is one name for both, or `NAME=NAME` for two. Without it, if they have no name in
        common and one has a single feature, it is compared with the feature of the other that is
        most like it. Raises OutputError if there is nothing to compare.
        """
        pairs = self._pairs(other, feature)
        if not pairs:
            wanted = "no feature of the same name" if feature is None else f"no feature {feature!r}"
            raise OutputError(
                f"the two have {wanted}; {self.name} has {', '.join(self.features)}, and "
                f"{other.name} has {', '.join(other.features)}: name one of each as NAME=NAME"
            )
        return [self._compare(other, *pair) for pair in pairs]

    def _pairs(self, other: "Passport", feature: str | None) -> list[tuple[str, str]]:
        """The names of the features that `compare` compares; logs which it leaves out."""
        mine, theirs = self.features, other.features
        if feature is not None:
            first, _, second = feature.partition("=")
            second = second or first
            return [(first, second)] if first in mine and second in theirs else []
        pairs = [(name, name) for name in mine if name in theirs]
        if not pairs and min(len(mine), len(theirs)) == 1:
            every = itertools.product(mine, theirs)
            pairs = [min(every, key=lambda p: len(_both(mine[p[0]].space, theirs[p[1]].space)))]
        left = {*mine, *theirs}.difference(*pairs)
        if pairs and left:
            logger.info("not compared, as one side alone has them: %s", ", ".join(sorted(left)))
        return pairs

    def _compare(self, other: "Passport", a: str, b: str) -> Comparison:
        """Compares the feature `a` of this passport with the feature `b` of another one."""
        made, mine, theirs = (
            functools.partial(Comparison, a, b),
            self.features[a],
            other.features[b],
        )
        sides = (self.name, mine), (other.name, theirs)
        without = [name for name, each in sides if not each.canaries]
        exact = None if without else distance(*(each.values(name) for name, each in sides))
        if space := _both(mine.space, theirs.space):
            return made("not comparable", _with_agreement(space, exact))
        numbers = _both(mine.numbers, theirs.numbers)
        if mine.ranges and theirs.ranges and mine.ranges != theirs.ranges:
            numbers = (*numbers, "other int8 ranges")
        if exact is None:
            reason = f"{' and '.join(without)} {'have' if len(without) > 1 else 'has'} no canaries"
            return made("same settings", (reason, *numbers))
        if not exact.is_within(max(mine.tolerance, theirs.tolerance)):
            reason = f"other numbers by the same settings ({exact})"
            return made("not comparable", (reason, *numbers), exact.cosine)
        found = distance(*(each.stored(name) for name, each in sides))
        if found.is_close:
            return made("equal", numbers, found.cosine)
        if not (exact.is_close or any(d.startswith(("precision ", "dtype ")) for d in numbers)):
            numbers = (*numbers, str(exact))  # else nothing would explain the difference
        return made("lower precision", numbers, found.cosine)


def _with_agreement(differences: tuple[str, ...], exact: Distance | None) -> tuple[str, ...]:
    """Adds to the difference of weights whether the canaries agree, if both have some."""
    said = "" if exact is None else AGREEMENT if exact.is_close else f" ({exact})"
    return tuple(d + said * d.startswith(("checkpoint ", "head ")) for d in differences)


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


def encode_canaries(batch: FeatureBatch, features: Sequence[Feature]) -> Canaries:
    """The canaries in the vectors of the texts.

    Of each text the third vector counts, or the last of fewer: the first is [CLS], which has the
    same embedding everywhere. A text without vectors has zeros.
    """
    kept, found = max(_MOST_VALUES // max(len(features), 1), _LEAST_VALUES), {}
    for feature in features:
        values, splits = batch.features[feature.name], batch.row_splits(feature)
        if splits is not None:
            third = np.minimum(splits[:-1] + 2, splits[1:] - 1)
            values = np.concatenate([values, np.zeros((1, values.shape[1]), values.dtype)])
            values = values[np.where(np.diff(splits) > 0, third, -1)]
        chosen = values[:, _places(values.shape[1], kept)].astype("<f4")
        found[feature.name] = [base64.b64encode(row.tobytes()).decode() for row in chosen]
    return found


def check_numbers(
    before: Canaries, now: Canaries, features: Sequence[Feature], precision: str
) -> None:
    """Refuses canaries that differ by more than dtype and precision allow; raises OutputError."""
    for feature in features:
        both = [FeaturePassport({}, {}, (), tuple(c.get(feature.name, ()))) for c in (before, now)]
        if not all(passport.canaries for passport in both):
            continue
        found = distance(*(passport.values(feature.name) for passport in both))
        most = _CLOSE if feature.dtype != "float16" else _NEAR
        if "bfloat16" in (precision, feature.dtype):
            most = _ROUGH
        if precision == "int8":
            most = _OTHER_INTEGERS
        if not found.is_within(most):
            raise OutputError.naming(
                "this machine computes other numbers of {name!r} than the run began with, by the "
                "same settings ({difference}): run bert-features doctor, go on where it began, or "
                "pass {accept_new_numbers:True} to mix both",
                name=feature.name,
                difference=found,
            )


def _both(a: dict[str, Any], b: dict[str, Any]) -> tuple[str, ...]:
    """The differences between what both have: one may be of an earlier release."""
    mine, theirs = ({n: each[n] for n in a.keys() & b.keys()} for each in (a, b))
    found = find_differences(mine, theirs, between=" and")
    alone, side = " (of queries alone)", "sides.query."
    return tuple(_DIGEST.sub(r"\1…", text) + alone * text.startswith(side) for text in found)


def find_differences(before: Any, now: Any, name: str = "", *, between: str = ", now") -> list[str]:
    """Each value of two descriptions that differs, as `dtype 'float16', now 'float32'`."""
    pairs: list[tuple[str, Any, Any]] = []
    are_lists = isinstance(before, list) and isinstance(now, list)
    if isinstance(before, dict) and isinstance(now, dict):
        prefix = "" if name in ("", "settings") else f"{name}."
        keys = sorted(before.keys() | now.keys())
        pairs = [(f"{prefix}{key}", before.get(key), now.get(key)) for key in keys]
    elif are_lists and len(before) == len(now) and any(isinstance(v, dict) for v in before):
        pairs = [(f"{name}[{i}]", *both) for i, both in enumerate(zip(before, now, strict=True))]
    elif before != now:
        values = repr(before), repr(now)
        if are_lists and max(map(len, values)) > _LONG:
            values = f"of {len(before)} values", f"of {len(now)}"
        return [f"{name} {values[0]}{between} {values[1]}"]
    return [text for key, a, b in pairs for text in find_differences(a, b, key, between=between)]

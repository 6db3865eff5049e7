"""Recipe: how vectors were made, as plain values, in memory and as JSON.

Files, folders, caches, services and exports carry one and ask it. What must agree depends on the
use; what each setting decides stands where it is declared (`settings.Decides`).

| use | what must agree |
|---|---|
| comparing, searching, reading files as one, taking a scale | what decides the vectors: `vectors` |
| the cache | that, and what decides their digits: `digest`, and more (`cache_key`) |
| a run that is resumed, repaired or on several nodes | what decides the bytes: `changes`; then |
| | `vectors` and `arithmetic` (`check_ready` in `corpus/resuming.py`) |
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field, replace
from typing import Annotated, Any, NamedTuple, Self, TypeAlias

import numpy as np
from pydantic import ConfigDict, PlainSerializer, PlainValidator, TypeAdapter
from pydantic.dataclasses import dataclass

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.features import SMALL_DTYPES, OutputSpec
from bert_features.config.settings import Decides
from bert_features.errors import OutputError


def _decoded(value: np.ndarray | str) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    data = base64.b64decode(value, validate=True) or b"?"  # none is damaged too
    return np.frombuffer(data, "<f4").reshape(_CANARY_TEXTS, -1)


def _encoded(values: np.ndarray) -> str:
    return base64.b64encode(values.astype("<f4").tobytes()).decode()


_CANARY_TEXTS = 8
# By output float32 [texts, W]; JSON has the base64 of its bytes, little-endian.
Canaries: TypeAlias = dict[
    str, Annotated[np.ndarray, PlainValidator(_decoded), PlainSerializer(_encoded)]
]
RECIPE = "recipe"  # its key in the metadata of files, and in what services and exports say
# Their values say less than what they resolve to, which a recipe has too.
_RESOLVED = frozenset(
    {"checkpoint", "config_file", "vocab_file", "do_lower_case", "hidden_act", "prompt", "outputs"}
    | {"max_seq_length", "long_text", "stride", "word_split", "device", "runtime", "precision"}
    | {"packing", "buckets", "batch_size", "batch_tokens"}
)
_OF_TRAINING = ("attention_probs_dropout_prob", "hidden_dropout_prob", "initializer_range")
# Of an output: these change the digits of its vectors alone.
_DIGITS = ("dtype", "scale")
# These decide nothing, or something else says it: `layers` and `scale`.
_NOT_OF_VECTORS = ("name", "labelled", "states", "scale_from", "is_part")
_LONG = 120  # characters of a list whose values a difference does not show
# SHA-256; a message has the first digits.
_DIGEST = re.compile("'([0-9a-f]{12})[0-9a-f]{52}'")


class Differences(NamedTuple):
    """What differs between two recipes, each as `layers [-1] and [-2]`.

    Attributes:
      vectors: what makes their vectors others.
      digits: what changes the digits of equal vectors alone.
    """

    vectors: tuple[str, ...]
    digits: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Recipe:
    """How the vectors of a run are made.

    A run that is planned has no more than settings, checkpoint, vocabulary and versions.

    Attributes:
      settings: those that decide something, as they were set.
      checkpoint: its `name`, `family` and `bert_config`; `sha256` of the encoder's weights, and
        by output `heads`, the same of other weights that it uses.
      vocabulary: `sha256`, and the `rules` of the tokenizer that are not those of its kind.
      versions: of the libraries, by package.
      texts: what is done to each text: `max_seq_length`, `long_text`, `do_lower_case`, `prompt`, ….
      outputs: by name what is done to the states of the encoder: layers, pooling, modules, ….
      arithmetic: `runtime`, `device` (its kind), `precision`, `packing`.
      canaries: by output the vectors of eight fixed texts, float32 [8, W]: W of the D values of
        each; empty where nothing computed them. They do not count when recipes are equal.
      name: whose recipe it is, for messages; JSON does not have it.
    """

    settings: dict[str, Any]
    checkpoint: dict[str, Any]
    vocabulary: dict[str, Any]
    versions: dict[str, str | None]
    texts: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    arithmetic: dict[str, Any] = field(default_factory=dict)
    canaries: Canaries = field(default_factory=dict, compare=False)
    name: str = field(default="", compare=False)

    @classmethod
    def of_run(
        cls, config: ExtractConfig, *, canaries: Canaries | None = None, **facts: Any
    ) -> Self:
        """The recipe of a run, from its settings and the other attributes."""
        idle = {*ExtractConfig.names(decides="nothing")}
        settings = config.model_dump(mode="json", exclude=idle, exclude_unset=True)
        return cls(settings=settings, canaries=canaries or {}, **_plain(facts))

    @staticmethod
    def from_json(name: str, values: object) -> "Recipe":
        """The reverse of `to_json`; raises OutputError if the values are no recipe."""
        try:
            recipe = replace(_AS_JSON.validate_python(values), name=name)
            recipe.check()
        except (TypeError, ValueError) as error:  # pydantic's too
            raise OutputError(
                f"{name} does not record how its features were made, so nothing can be compared "
                "with them; extract them with this release of bert_features, and keep the "
                ".metadata.json of a jsonl or tfrecord file beside it"
            ) from error
        return recipe

    def check(self) -> None:
        """Raises ValueError if a value that comparisons need is absent, or of another kind."""
        try:
            self.digest()
            _ = self.checkpoint["name"], self.checkpoint["bert_config"]["num_hidden_layers"]
            for output in self.outputs:
                _ = self.vectors(output), self.width(output)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"its recipe lacks a value, or has another kind: {error}") from error

    def to_json(self) -> dict[str, Any]:
        """The attributes but for the name, as files, manifests and services write them."""
        written: dict[str, Any] = _AS_JSON.dump_python(self, mode="json", exclude={"name"})
        return written

    def to_config(self, *decides: Decides, **changes: Any) -> ExtractConfig:
        """The settings; only those that decide some of these, if any are named.

        Raises ConfigError if a setting is unknown here.
        """
        settings = self.settings
        if decides:
            names = {name for each in decides for name in ExtractConfig.names(decides=each)}
            settings = {name: value for name, value in settings.items() if name in names}
        return ExtractConfig.of(settings | changes)

    def for_queries(self, named: Mapping[str, str | None]) -> ExtractConfig:
        """The settings that make vectors of floats to compare with these; errors as `to_config`.

        `named` has the `checkpoint`, `config_file` and `vocab_file` of the user, or None for each.
        """
        outputs = [
            {**output, "dtype": "float32", "scale_from": None}
            if output.get("dtype") in SMALL_DTYPES
            else output
            for output in self.settings.get("outputs", ())
        ]
        passed = {name: value for name, value in named.items() if value is not None}
        changes = named if named["checkpoint"] is not None else passed
        return self.to_config("vectors", **({"outputs": outputs} if outputs else {}), **changes)

    def width(self, output: str) -> int:
        """D, the number of values of the vectors of an output."""
        width: int = self.outputs[output]["width"]
        return width

    def vectors(self, output: str) -> dict[str, Any]:
        """What decides where the vectors of an output lie."""
        return {
            **self._model()["bert_config"],
            **self._by_value("vectors"),
            **self.texts,
            "checkpoint": self.checkpoint["sha256"],
            "head": self.checkpoint.get("heads", {}).get(output),
            "vocabulary": self.vocabulary,
            **{n: v for n, v in self.outputs[output].items() if n not in _DIGITS},
        }

    def digits(self, output: str) -> dict[str, Any]:
        """What decides the digits of these vectors."""
        values = {name: self.outputs[output].get(name) for name in _DIGITS}
        return {**self._by_value("digits"), **self.arithmetic, **self.versions, **values}

    def differences(
        self, other: "Recipe", output: str, other_output: str | None = None
    ) -> Differences:
        """What differs between an output and one of another recipe, by default of the same name."""
        theirs = other_output or output
        digits = (each.digits(n) for each, n in ((self, output), (other, theirs)))
        mine, others = ({n: v for n, v in each.items() if n != "scale"} for each in digits)
        both = [each.outputs[n].get("scale") for each, n in ((self, output), (other, theirs))]
        return Differences(
            tuple(_between(self.vectors(output), other.vectors(theirs))),
            (*_between(mine, others), *["another scale"] * (all(both) and both[0] != both[1])),
        )

    def changes(self, other: "Recipe") -> list[str]:
        """What decides the bytes of a run and is another now, as `dtype 'float32', now …`."""
        return find_differences(self._of_bytes(), other._of_bytes())

    def digest(self, **more: Any) -> str:
        """SHA-256 of what decides vectors and digits, and of more such values."""
        checkpoint = {name: v for name, v in self._model().items() if name != "name"}
        outputs = {name: _as_floats(values) for name, values in self.outputs.items()}
        facts = {
            "settings": self._by_value("vectors") | self._by_value("digits"),
            "checkpoint": checkpoint,
            "vocabulary": self.vocabulary,
            "versions": self.versions,
            "texts": self.texts,
            "outputs": outputs,
            "arithmetic": self.arithmetic,
            **more,
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def _model(self) -> dict[str, Any]:
        """The checkpoint without what decides nothing."""
        model = self.checkpoint["bert_config"]
        model = {name: value for name, value in model.items() if name not in _OF_TRAINING}
        return {n: v for n, v in self.checkpoint.items() if n != "family"} | {"bert_config": model}

    def _by_value(self, decides: Decides) -> dict[str, Any]:
        names = {*ExtractConfig.names(decides=decides)} - _RESOLVED
        fields = ExtractConfig.model_fields.items()
        return {n: self.settings.get(n, field.default) for n, field in fields if n in names}

    def _of_bytes(self) -> dict[str, Any]:
        # A folder's format is compared by itself, and its shards are those of the whole input.
        left_out = {"format", "shard", *ExtractConfig.names(decides="nothing")}
        settings = self.to_config().model_dump(mode="json", exclude=left_out)
        if [output["name"] for output in settings["outputs"]] == [None]:
            settings |= settings.pop("outputs")[0]  # as its user wrote them
        return {
            "settings": settings,
            "checkpoint": self._model(),
            "vocabulary": self.vocabulary,
            "versions": self.versions,
        }


_AS_JSON = TypeAdapter(Recipe)


def describe_output(output: OutputSpec, num_layers: int, **more: Any) -> dict[str, Any]:
    """What is done to the states of an encoder for an output.

    Args:
      output: the output.
      num_layers: the blocks of the checkpoint: a layer counts from the last one, as it has two
        numbers.
      **more: what else decides its vectors.
    """
    layers = [e if isinstance(e, str) or e < 0 else e - num_layers for e in output.layers]
    values = asdict(output) | {"layers": layers, **more}
    return _plain({n: v for n, v in values.items() if n not in _NOT_OF_VECTORS})


def _as_floats(output: dict[str, Any]) -> dict[str, Any]:
    dtype = "float32" if output["dtype"] in SMALL_DTYPES else output["dtype"]
    return {n: v for n, v in (output | {"dtype": dtype}).items() if n != "scale"}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """The values as JSON has them: lists for tuples."""
    plain: dict[str, Any] = json.loads(json.dumps(values))
    return plain


def _between(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterable[str]:
    differences = find_differences(dict(a), dict(b), between=" and")
    alone, side = " (of queries alone)", "sides.query."
    return (_DIGEST.sub(r"\1…", text) + alone * text.startswith(side) for text in differences)


def _are_tables(values: Any) -> bool:
    return isinstance(values, list) and bool(values) and isinstance(values[0], dict)


def find_differences(before: Any, now: Any, name: str = "", *, between: str = ", now") -> list[str]:
    """Each value of two tables that differs, as `dtype 'float16', now 'float32'`."""
    pairs: list[tuple[str, Any, Any]] = []
    if isinstance(before, dict) and isinstance(now, dict):
        prefix = "" if name in ("", "settings") else f"{name}."
        keys = sorted(before.keys() | now.keys())
        pairs = [(f"{prefix}{key}", before.get(key), now.get(key)) for key in keys]
    elif _are_tables(before) and _are_tables(now) and len(before) == len(now):
        pairs = [(f"{name}[{i}]", *both) for i, both in enumerate(zip(before, now, strict=True))]
    elif before != now:
        values = repr(before), repr(now)
        if isinstance(before, list) and isinstance(now, list) and max(map(len, values)) > _LONG:
            values = f"of {len(before)} values", f"of {len(now)}"
        return [f"{name} {values[0]}{between} {values[1]}"]
    return [text for key, a, b in pairs for text in find_differences(a, b, key, between=between)]

"""Named outputs: which layers each takes, and how they become vectors of a level.

Nothing here computes; `encoder.pooling` does. Importing this module does not import Keras.

Shape legend: `B` batch, `S` sequence, `H` hidden, `K` selected layers, `D` width of an output.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Integral
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from bert_features.config.bert_config import BertConfig
from bert_features.config.settings import MAX_INT, Settings, shown
from bert_features.errors import BertFeaturesError, ConfigError

Combine = Literal["none", "sum", "mean", "concat", "weighted"]
Level = Literal["token", "word", "sequence"]
OutputDtype = Literal["float32", "float16", "bfloat16"]
ITEM_SIZES: dict[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2}  # bytes
LayerEntry = Annotated[int, Field(strict=True, ge=-MAX_INT, le=MAX_INT)] | Literal["embeddings"]
# LAYERS as a caller may pass them: one entry, several, or several as text ("-1,-2").
Layers = int | str | Sequence[int | str]

# The sum below the first block; layer 0 in tutorials that count 13 layers.
EMBEDDINGS = "embeddings"
DEFAULT_LAYERS: tuple[int, ...] = (-1, -2, -3, -4)

# Poolings of each level; the first is the default.
POOLINGS: dict[Level, tuple[str, ...]] = {
    "token": ("none",),
    "word": ("mean", "first", "last", "first_last", "sum", "max"),
    "sequence": ("mean", "cls", "pooler", "max", "mean_max", "first", "last", "sqrt_len_mean"),
}
# The pooling of a sequence that the checkpoint asks for; see `AutoPooling`.
AUTO_POOLING = "auto"
# bert-as-service's names (its server/graph.py, PoolingStrategy): there SEP_TOKEN and LAST_TOKEN
# are one value, and so are CLS_TOKEN and FIRST_TOKEN.
POOLING_ALIASES: dict[str, str] = {
    "NONE": "none",
    "REDUCE_MEAN": "mean",
    "REDUCE_MAX": "max",
    "REDUCE_MEAN_MAX": "mean_max",
    "CLS_TOKEN": "cls",
    "FIRST_TOKEN": "first",
    "SEP_TOKEN": "last",
    "LAST_TOKEN": "last",
}
# Poolings that put two vectors side by side.
_DOUBLE_WIDTH = {"first_last", "mean_max"}
# Poolings that take the vector of [CLS].
_OF_CLS = {"cls", "pooler"}


def split_layers(layers: Any) -> Any:
    """LAYERS as a tuple: (-1, -2) for [-1, -2], range(-1, -3, -1) or "-1,-2", and (-1,) for -1.

    What is none of these comes back as it is, for the check that follows.
    """
    if isinstance(layers, str):
        words = [word.strip() for word in layers.split(",")]
        return tuple(int(w) if re.fullmatch(r"[+-]?\d{1,9}", w, re.ASCII) else w for w in words)
    entries = layers if isinstance(layers, list | tuple | range) else (layers,)
    if layers is None or not all(map(_is_entry, entries)):
        return tuple(layers) if isinstance(layers, list) else layers
    return tuple(entry if isinstance(entry, str) else int(entry) for entry in entries)


def _is_entry(entry: Any) -> bool:
    """Whether it has the type of a LAYERS entry; NumPy's integers do, a bool does not."""
    return isinstance(entry, Integral | str) and not isinstance(entry, bool)


class OutputConfig(Settings):
    """One output as the user describes it; `Feature` explains each setting.

    A setting that is None takes the value of the whole run.
    """

    name: str | None = Field(
        default=None,
        min_length=1,
        description="Name of the output in records and files.",
        json_schema_extra={"allowed": "a string that is not empty"},
    )
    layers: tuple[LayerEntry, ...] | None = Field(
        default=None,
        min_length=1,
        description="Layers to take: encoder blocks, -L to L-1, and the word `embeddings`.",
        json_schema_extra={"allowed": "a list of integers and the word 'embeddings'"},
    )
    combine: Combine = Field(
        default="none",
        description="How several layers become one vector; none keeps them apart.",
        json_schema_extra={"allowed": "'none', 'sum', 'mean', 'concat' or 'weighted'"},
    )
    weights: tuple[float, ...] | None = Field(
        default=None,
        description="One weight for each layer, used unscaled, for combine = 'weighted'.",
        json_schema_extra={"allowed": "a list of finite numbers, one for each layer"},
    )
    level: Level = Field(
        default="token",
        description="What each vector represents: a token, a word or the whole sequence.",
        json_schema_extra={"allowed": "'token', 'word' or 'sequence'"},
    )
    pooling: str | None = Field(
        default=None,
        description="How token vectors become the vector of a word or of the sequence; auto takes "
        "the sequence pooling that the checkpoint was trained with.",
        json_schema_extra={"allowed": "a string"},
    )
    special_tokens: bool = Field(
        default=True,
        description="Include [CLS] and [SEP] when a sequence is pooled.",
        json_schema_extra={"allowed": "true or false"},
    )
    normalize: bool = Field(
        default=False,
        description="Scale each vector to length 1.",
        json_schema_extra={"allowed": "true or false"},
    )
    dim: Annotated[int, Field(ge=1, le=MAX_INT)] | None = Field(
        default=None,
        description="Number of values of each vector to keep, from the first.",
        json_schema_extra={"allowed": "an integer of at least 1"},
    )
    dtype: OutputDtype | None = Field(
        default=None,
        description="Data type of the features.",
        json_schema_extra={"allowed": "'float32', 'float16' or 'bfloat16'"},
    )

    @field_validator("layers", mode="before")
    @classmethod
    def _split_layers(cls, value: Any) -> Any:
        return split_layers(value)

    @field_validator("pooling")
    @classmethod
    def _resolve_alias(cls, value: str | None) -> str | None:
        return None if value is None else POOLING_ALIASES.get(value, value)

    @model_validator(mode="after")
    def _settings_fit_together(self) -> Self:
        if not _is_pooling(self.pooling, self.level):
            raise _wrong_pooling(str(self.pooling), self.level)
        if not self.special_tokens and self.level != "sequence":
            raise ConfigError.naming(
                "{special_tokens} is false, which only level 'sequence' allows; this output has "
                "level '{received}': pass {level:'sequence'}",
                received=self.level,
            )
        if not self.special_tokens and not _OF_CLS.isdisjoint(pooling_parts(self.pooling or "")):
            raise ConfigError.naming(
                "{special_tokens} is false; {pooling} '{received}' is the vector of [CLS] itself",
                received=self.pooling,
            )
        if (self.combine == "weighted") != (self.weights is not None):
            raise ConfigError.naming(
                "{combine} is '{received}' and {weights} is {numbers}; combine 'weighted' needs "
                "one weight for each layer, and no other combine takes weights",
                received=self.combine,
                numbers=self.weights,
            )
        if self.weights is not None and self.layers is not None:
            _check_weights(self.weights, self.layers)
        return self


def pooling_parts(pooling: str) -> tuple[str, ...]:
    """The poolings whose vectors stand side by side: ('cls', 'mean') for 'cls+mean'."""
    return tuple(pooling.split("+"))


def _is_pooling(pooling: str | None, level: Level) -> bool:
    """Whether a level has a pooling, or for sequences several joined by `+`."""
    if pooling is None or pooling in POOLINGS[level]:
        return True
    if level != "sequence":
        return False
    # The pooler has weights of its own and takes [CLS] alone.
    return pooling == AUTO_POOLING or set(pooling_parts(pooling)) <= {*POOLINGS[level]} - {"pooler"}


def _wrong_pooling(pooling: str, level: Level) -> ConfigError:
    """The error for a pooling that its level does not have; it names the levels that do."""
    allowed = ", ".join(POOLINGS[level])
    if level == "sequence":
        allowed += ", auto; or several but pooler and auto, joined by +, such as cls+mean"
    others = [other for other in POOLINGS if _is_pooling(pooling, other)]
    cure = " or ".join(f"{{level:'{other}'}}" for other in reversed(others))
    return ConfigError.naming(
        "{pooling} is {received}; allowed for level '{own}': {allowed}"
        + (f"; pass {cure} for this pooling" if cure else ""),
        received=shown(pooling),
        own=level,
        allowed=allowed,
    )


@dataclass(frozen=True)
class AutoPooling:
    """What pooling `auto` means for a checkpoint.

    Attributes:
      pooling: its pooling, or several joined by `+`.
      normalize: whether it scales each vector to length 1, where the output does not say.
    """

    pooling: str = "mean"
    normalize: bool = False


@dataclass(frozen=True)
class Feature:
    """One named feature: its layers and what is done with them, as a file's metadata lists it.

    Attributes:
      name: name in predictions and files: `layer_output_0`, … as in the official script, or the
        user's own.
      layers: LAYERS entries as the user wrote them: block numbers, or the word `embeddings`.
      combine: `none` for a single layer, else how `layers` become one vector.
      width: D, number of values of a vector.
      dtype: `float16`, `float32` or `bfloat16`.
      level: what each vector represents: a `token`, a `word` or the whole `sequence`.
      pooling: one of `POOLINGS[level]`: how token vectors become vectors of words or sequences; for
        a sequence also several joined by `+`, whose vectors stand side by side.
      weights: one for each layer where `combine` is `weighted`, else empty.
      special_tokens: whether [CLS] and [SEP] count when a sequence is pooled.
      normalize: whether each vector is scaled to length 1, as the last operation.
    """

    name: str
    layers: tuple[int | str, ...]
    combine: str
    width: int
    dtype: str
    level: Level = "token"
    pooling: str = "none"
    weights: tuple[float, ...] = ()
    special_tokens: bool = True
    normalize: bool = False

    def describe(self) -> str:
        """Its name, dtype and shape, as `features float32 [tokens, 384]`."""
        rows = {"token": "tokens, ", "word": "words, ", "sequence": ""}[self.level]
        return f"{self.name} {self.dtype} [{rows}{self.width}]"

    def to_metadata(self) -> dict[str, Any]:
        """The fields of `Feature` by name; those that a subclass adds are left out."""
        return {entry.name: getattr(self, entry.name) for entry in fields(Feature)}


@dataclass(frozen=True)
class OutputSpec(Feature):
    """A feature whose layers are resolved against a checkpoint: one output of the device step.

    Attributes:
      states: `layers` resolved: 0 is the embeddings, i the output of the i-th block.
    """

    states: tuple[int, ...] = field(kw_only=True)

    @property
    def is_pooled_output(self) -> bool:
        """Whether this is [CLS] through the pooler, a layer with its own weights."""
        return self.pooling == "pooler"


# Outputs as a caller passes them: each an `OutputConfig` or its settings.
Outputs = Sequence[OutputConfig | Mapping[str, Any]]


def parse_outputs(outputs: Outputs | None) -> tuple[OutputConfig, ...]:
    """Checks outputs that a caller passed.

    Args:
      outputs: the outputs; None for the default, each layer by itself.

    Raises:
      ConfigError: a setting is unknown, or has a value that is not allowed.
    """
    if outputs is None:
        return (OutputConfig(),)
    if isinstance(outputs, str | Mapping) or not outputs:
        raise ConfigError.naming(
            "{outputs} is {received}; allowed: a list of dicts, one for each output",
            received=shown(outputs),
        )
    return tuple(
        output if isinstance(output, OutputConfig) else parse_output(output, source=f"outputs[{i}]")
        for i, output in enumerate(outputs)
    )


def parse_output(output: Mapping[str, Any], *, source: str) -> OutputConfig:
    """Checks one output that a caller passed; `source` says which, for error messages.

    Raises:
      ConfigError: see `Settings.of`. Its settings are keys, in Python, TOML and on the command
        line alike.
    """
    try:
        return OutputConfig.of(output, source=source)
    except ConfigError as error:
        raise ConfigError(str(error)) from error


def resolve_layers(layers: Sequence[int | str], num_layers: int) -> tuple[int, ...]:
    """Resolves LAYERS entries: 0 for the embeddings, 1 … num_layers for the blocks' outputs.

    An integer entry indexes the blocks from either end, as in the official script: -1 is the last,
    0 the first.

    Raises:
      ConfigError: `layers` is empty, an entry is out of range or unknown, or a layer is named
        twice.
    """
    if not layers:
        raise ConfigError(f"no layers; name at least one of {-num_layers} … {num_layers - 1}")
    states = tuple(_resolve(entry, num_layers) for entry in layers)
    for i, state in enumerate(states):
        if state in states[:i]:
            first = layers[states.index(state)]
            raise ConfigError(
                f"layers {list(layers)}: {layers[i]} and {first} are the same layer of "
                f"{num_layers}; name each layer once"
            )
    return states


def _resolve(entry: int | str, num_layers: int) -> int:
    if entry == EMBEDDINGS:
        return 0
    if not isinstance(entry, int):
        raise ConfigError(f"layer {entry!r} is neither a number nor the word '{EMBEDDINGS}'")
    if not -num_layers <= entry < num_layers:
        raise ConfigError(
            f"layer {entry} is outside [{-num_layers}, {num_layers - 1}]: this checkpoint has "
            f"{num_layers} layers"
        )
    return entry % num_layers + 1


def plan_outputs(
    outputs: Sequence[OutputConfig],
    config: BertConfig,
    *,
    layers: Layers = DEFAULT_LAYERS,
    dtype: OutputDtype = "float32",
    auto: AutoPooling | None = None,
) -> tuple[OutputSpec, ...]:
    """Resolves outputs against an architecture.

    With `combine` none each of K layers becomes a separate output. Without a name they are
    `layer_output_0`, …, as in the official script; with a name they are `NAME_0`, …, and a single
    layer is `NAME`. Every other output without a name is called `features`: one that combines
    layers, and one of words or the sequence with a single layer.

    Args:
      outputs: the outputs to resolve.
      config: the architecture.
      layers: LAYERS of outputs that have none.
      dtype: dtype of outputs that have none.
      auto: what pooling `auto` means; by default the mean. It takes the last layer if its output
        names no layers.

    Raises:
      ConfigError: as `resolve_layers`; the number of weights is not that of layers, `dim` is wider
        than the vector, `pooler` is combined with a layer other than the last, or two outputs have
        the same name, or names that differ only by case.
    """
    specs = tuple(
        spec
        for output in resolve_auto(outputs, auto)
        for spec in _specs(output, config, split_layers(layers), dtype)
    )
    check_names_differ([spec.name for spec in specs])
    return specs


def check_names_differ(names: Sequence[str], error: type[BertFeaturesError] = ConfigError) -> None:
    """Refuses names of outputs that are the same, or the same but for case; raises `error`."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(name.casefold())
        if other == name:
            raise error(f"two outputs are named '{name}'; give each a different name")
        if other is not None:
            raise error(
                f"outputs '{other}' and '{name}' differ only by case, which DuckDB and Spark "
                "ignore; give each a different name"
            )
        seen[name.casefold()] = name


def output_names(
    outputs: Sequence[OutputConfig], layers: Sequence[int | str] = DEFAULT_LAYERS
) -> list[str]:
    """The names that `plan_outputs` gives the outputs, for any architecture."""
    return [
        name
        for output in resolve_auto(outputs)
        for name in _names(output, len(output.layers or layers))
    ]


def uses_auto_pooling(outputs: Sequence[OutputConfig]) -> bool:
    """Whether an output leaves its pooling to the checkpoint."""
    return any(output.pooling == AUTO_POOLING for output in outputs)


def resolve_auto(
    outputs: Sequence[OutputConfig], auto: AutoPooling | None = None
) -> tuple[OutputConfig, ...]:
    """The outputs with the pooling that `auto` means; by default the mean."""
    return tuple(_without_auto(output, auto) for output in outputs)


def _without_auto(output: OutputConfig, auto: AutoPooling | None) -> OutputConfig:
    if output.pooling != AUTO_POOLING:
        return output
    auto = auto or AutoPooling()
    settings = {name: getattr(output, name) for name in output.model_fields_set}
    chosen = {"layers": output.layers or (-1,), "pooling": auto.pooling}
    return OutputConfig.of({"normalize": auto.normalize, **settings, **chosen})


def _specs(
    output: OutputConfig, config: BertConfig, layers: tuple[int | str, ...], dtype: OutputDtype
) -> list[OutputSpec]:
    of_pooler = output.pooling == "pooler"
    entries = output.layers or ((-1,) if of_pooler else layers)
    states = resolve_layers(entries, config.num_hidden_layers)
    if of_pooler and states != (config.num_hidden_layers,):
        raise ConfigError.naming(
            "{pooling} 'pooler' takes the last layer; {layers} is {received}, leave it out",
            received=list(entries),
        )
    weights = output.weights or ()
    if output.combine == "weighted":
        _check_weights(weights, entries)
    groups: list[tuple[tuple[int | str, ...], tuple[int, ...]]] = [(entries, states)]
    if _stay_apart(output):
        groups = [((entry,), (state,)) for entry, state in zip(entries, states, strict=True)]
    common: dict[str, Any] = {
        "combine": output.combine,
        "weights": weights,
        "level": output.level,
        "pooling": output.pooling or POOLINGS[output.level][0],
        "special_tokens": output.special_tokens,
        "normalize": output.normalize,
        "width": _width(output, config.hidden_size, len(groups[0][0])),
        "dtype": output.dtype or dtype,
    }
    names = _names(output, len(entries))
    return [
        OutputSpec(name=name, layers=group, states=of_group, **common)
        for name, (group, of_group) in zip(names, groups, strict=True)
    ]


def _stay_apart(output: OutputConfig) -> bool:
    """Whether each layer becomes an output of its own."""
    return output.combine == "none" and output.pooling != "pooler"


def _names(output: OutputConfig, num_layers: int) -> list[str]:
    count = num_layers if _stay_apart(output) else 1
    if output.name is None:
        as_official = _stay_apart(output) and (output.level == "token" or count > 1)
        return [f"layer_output_{i}" for i in range(count)] if as_official else ["features"]
    return [output.name] if count == 1 else [f"{output.name}_{i}" for i in range(count)]


def _width(output: OutputConfig, hidden_size: int, num_layers: int) -> int:
    width = hidden_size * (num_layers if output.combine == "concat" else 1)
    width *= sum(2 if part in _DOUBLE_WIDTH else 1 for part in pooling_parts(output.pooling or ""))
    if output.dim is not None and output.dim > width:
        raise ConfigError.naming(
            "{dim} is {received}; the vector has {width} values, take at most {width}",
            received=output.dim,
            width=width,
        )
    return output.dim or width


def _check_weights(weights: Sequence[float], layers: Sequence[int | str]) -> None:
    if len(weights) != len(layers):
        raise ConfigError.naming(
            "{weights} has {count} numbers for {wanted} layers {entries}; give one weight for "
            "each layer",
            count=len(weights),
            wanted=len(layers),
            entries=list(layers),
        )


def blocks_needed(outputs: Sequence[OutputSpec]) -> int:
    """Number of blocks, from the first, that the outputs need."""
    return max(state for output in outputs for state in output.states)


def needs_pooler(outputs: Sequence[OutputSpec]) -> bool:
    """Whether an output needs the pooler."""
    return any(output.is_pooled_output for output in outputs)


def check_special_ids(outputs: Sequence[OutputSpec], special_ids: Sequence[int]) -> None:
    """Checks that the ids of [CLS] and [SEP] are known if an output leaves these out.

    Raises:
      ConfigError: they are unknown.
    """
    for output in outputs:
        if not output.special_tokens and not special_ids:
            raise ConfigError(
                f"output '{output.name}' leaves out [CLS] and [SEP], but their ids are unknown; "
                "pass special_ids, or a checkpoint with a vocabulary"
            )


def needs_static_length(outputs: Sequence[OutputSpec]) -> list[str]:
    """The names of outputs that need S to be known when the graph is made."""
    return [o.name for o in outputs if o.level == "word" or "last" in pooling_parts(o.pooling)]


def outputs_on_device(outputs: Sequence[OutputSpec], *, in_windows: bool) -> tuple[OutputSpec, ...]:
    """The outputs as the device step computes them.

    Args:
      outputs: the outputs of the run.
      in_windows: whether long texts are computed in windows. The vectors of a sequence are then
        averaged over its windows, and scaled and cast only after that, on the host.
    """
    if not in_windows:
        return tuple(outputs)
    return tuple(
        replace(output, normalize=False, dtype="float32") if output.level == "sequence" else output
        for output in outputs
    )

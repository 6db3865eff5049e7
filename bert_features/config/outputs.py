"""What a run is asked for: named outputs, each some layers, made into vectors of a level.

Nothing here computes; `pooling` does. Importing this does not import Keras.

Shape legend: `B` batch, `S` sequence, `H` hidden, `K` selected layers, `D` width of an output.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from bert_features.config.bert_config import BertConfig
from bert_features.config.settings import Settings
from bert_features.errors import ConfigError

Combine = Literal["none", "sum", "mean", "concat", "weighted"]
Level = Literal["token", "word", "sequence"]
OutputDtype = Literal["float32", "float16", "bfloat16"]
ITEM_SIZES: dict[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2}  # bytes
LayerEntry = Annotated[int, Field(strict=True)] | Literal["embeddings"]

# The word for the sum below the first block, layer 0 of the tutorials that count 13.
EMBEDDINGS = "embeddings"
DEFAULT_LAYERS: tuple[int, ...] = (-1, -2, -3, -4)

# By level; the first of each is what a level means if nothing is said.
POOLINGS: dict[Level, tuple[str, ...]] = {
    "token": ("none",),
    "word": ("mean", "first", "last", "first_last", "sum", "max"),
    "sequence": ("mean", "cls", "pooler", "max", "mean_max", "first", "last", "sqrt_len_mean"),
}
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
# These put two vectors side by side.
_DOUBLE_WIDTH = {"first_last", "mean_max"}
# These are of [CLS] itself.
_OF_CLS = {"cls", "pooler"}


class OutputConfig(Settings):
    """One output as a user asks for it; see `OutputSpec` for what each setting means.

    Settings that are None take the run's.
    """

    name: str | None = Field(
        default=None,
        min_length=1,
        description="of the output in records and files",
        json_schema_extra={"allowed": "a string that is not empty"},
    )
    layers: tuple[LayerEntry, ...] | None = Field(
        default=None,
        min_length=1,
        description="LAYERS: encoder blocks, -L to L-1, and the word `embeddings`",
        json_schema_extra={"allowed": "a list of integers and the word 'embeddings'"},
    )
    combine: Combine = Field(
        default="none",
        description="how the layers become one vector; none keeps them apart",
        json_schema_extra={"allowed": "'none', 'sum', 'mean', 'concat' or 'weighted'"},
    )
    weights: tuple[float, ...] | None = Field(
        default=None,
        description="of the layers, for combine = 'weighted', one for each, used as they are",
        json_schema_extra={"allowed": "a list of numbers, one for each layer"},
    )
    level: Level = Field(
        default="token",
        description="what a vector stands for",
        json_schema_extra={"allowed": "'token', 'word' or 'sequence'"},
    )
    pooling: str | None = Field(
        default=None,
        description="how tokens become a word's or the sequence's vector",
        json_schema_extra={"allowed": "a string"},
    )
    special_tokens: bool = Field(
        default=True,
        description="whether [CLS] and [SEP] count when a sequence is pooled",
        json_schema_extra={"allowed": "true or false"},
    )
    normalize: bool = Field(
        default=False,
        description="scale each vector to length 1",
        json_schema_extra={"allowed": "true or false"},
    )
    dim: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="how many values of each vector to keep, from the first",
        json_schema_extra={"allowed": "an integer of at least 1"},
    )
    dtype: OutputDtype | None = Field(
        default=None,
        description="of the values",
        json_schema_extra={"allowed": "'float32', 'float16' or 'bfloat16'"},
    )

    @field_validator("pooling")
    @classmethod
    def _by_its_own_name(cls, value: str | None) -> str | None:
        return None if value is None else POOLING_ALIASES.get(value, value)

    @model_validator(mode="after")
    def _settings_fit_together(self) -> Self:
        if self.pooling is not None and self.pooling not in POOLINGS[self.level]:
            raise ValueError(
                f"pooling is {self.pooling!r}; allowed for level '{self.level}': "
                f"{', '.join(POOLINGS[self.level])}"
            )
        if not self.special_tokens and self.level != "sequence":
            raise ValueError(
                "special_tokens is false; it is for level 'sequence', this output's is "
                f"'{self.level}'"
            )
        if not self.special_tokens and self.pooling in _OF_CLS:
            raise ValueError(
                f"special_tokens is false; pooling '{self.pooling}' is the vector of [CLS] itself"
            )
        if (self.combine == "weighted") != (self.weights is not None):
            raise ValueError(
                f"combine is '{self.combine}' and weights is {self.weights}; weights go with "
                "combine 'weighted', one for each layer"
            )
        if self.weights is not None and self.layers is not None:
            _check_weights(self.weights, self.layers)
        return self


@dataclass(frozen=True)
class OutputSpec:
    """One named output of the device step.

    Attributes:
      name: its name in predictions and files.
      layers: LAYERS entries, as the user wrote them.
      states: the same, resolved: 0 is the embeddings, i the output of the i-th block.
      combine: `none` for a single layer, else how they become one vector.
      weights: of the layers, where `combine` is `weighted`; else empty.
      level: what a vector stands for: a `token`, a `word` or the `sequence`.
      pooling: one of `POOLINGS[level]`.
      special_tokens: whether [CLS] and [SEP] count when a sequence is pooled.
      normalize: whether each vector is scaled to length 1, after all else.
      width: D, the values of a vector.
      dtype: of the values.
    """

    name: str
    layers: tuple[int | str, ...]
    states: tuple[int, ...]
    combine: Combine
    width: int
    weights: tuple[float, ...] = ()
    level: Level = "token"
    pooling: str = "none"
    special_tokens: bool = True
    normalize: bool = False
    dtype: OutputDtype = "float32"

    @property
    def is_pooled_output(self) -> bool:
        """Whether it is [CLS] through the pooler, which has weights of its own."""
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
        raise ConfigError(f"outputs is {outputs!r}; allowed: a list of dicts, one for each output")
    return tuple(
        output
        if isinstance(output, OutputConfig)
        else OutputConfig.of(output, source=f"outputs[{i}]")
        for i, output in enumerate(outputs)
    )


def resolve_layers(layers: Sequence[int | str], num_layers: int) -> tuple[int, ...]:
    """Resolves LAYERS entries: 0 for the embeddings, 1 … num_layers for the blocks' outputs.

    An integer entry indexes the blocks from either end, as in the official script: -1 is the last,
    0 the first.

    Raises:
      ConfigError: no entry, an entry that is out of range or unknown, or a layer named twice.
    """
    if not layers:
        raise ConfigError(f"no layers; name at least one of {-num_layers} … {num_layers - 1}")
    states = tuple(_resolve(entry, num_layers) for entry in layers)
    for i, state in enumerate(states):
        if state in states[:i]:
            first = layers[states.index(state)]
            raise ConfigError(
                f"layers {list(layers)}: {layers[i]} and {first} are the same layer of "
                f"{num_layers}; name each once"
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
    layers: Sequence[int | str] = DEFAULT_LAYERS,
    dtype: OutputDtype = "float32",
) -> tuple[OutputSpec, ...]:
    """Resolves outputs against an architecture.

    With `combine` none each of K layers is an output of its own: `layer_output_0`, … as the
    official script names them, or `NAME_0`, … of an output with a name; a single layer of a named
    output is `NAME` itself. Any other output without a name is `features`: one that combines
    layers, or is of words or the sequence and of a single layer.

    Args:
      outputs: what is asked for.
      config: the architecture.
      layers: LAYERS of outputs that name none.
      dtype: of outputs that name none.

    Raises:
      ConfigError: as `resolve_layers`; weights are not one for each layer, `dim` is wider than the
        vector, `pooler` is asked of a layer other than the last, or two outputs share a name.
    """
    specs = tuple(
        spec for output in outputs for spec in _specs(output, config, tuple(layers), dtype)
    )
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two outputs are named '{name}'; give each output a name of its own")
    return specs


def _specs(
    output: OutputConfig, config: BertConfig, layers: tuple[int | str, ...], dtype: OutputDtype
) -> list[OutputSpec]:
    of_pooler = output.pooling == "pooler"
    entries = output.layers or ((-1,) if of_pooler else layers)
    states = resolve_layers(entries, config.num_hidden_layers)
    if of_pooler and states != (config.num_hidden_layers,):
        raise ConfigError(
            f"pooling 'pooler' is of the last layer; layers is {list(entries)}, leave it out"
        )
    weights = output.weights or ()
    if output.combine == "weighted":
        _check_weights(weights, entries)
    apart = output.combine == "none" and not of_pooler
    groups: list[tuple[tuple[int | str, ...], tuple[int, ...]]] = [(entries, states)]
    if apart:
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
    as_official = apart and (output.level == "token" or len(groups) > 1)
    names = _names(output.name, len(groups), as_official=as_official)
    return [
        OutputSpec(name=name, layers=group, states=of_group, **common)
        for name, (group, of_group) in zip(names, groups, strict=True)
    ]


def _names(name: str | None, count: int, *, as_official: bool) -> list[str]:
    if name is None:
        return [f"layer_output_{i}" for i in range(count)] if as_official else ["features"]
    return [name] if count == 1 else [f"{name}_{i}" for i in range(count)]


def _width(output: OutputConfig, hidden_size: int, num_layers: int) -> int:
    width = hidden_size * (num_layers if output.combine == "concat" else 1)
    if output.pooling in _DOUBLE_WIDTH:
        width *= 2
    if output.dim is not None and output.dim > width:
        raise ConfigError(f"dim is {output.dim}; the vector has {width} values, take at most these")
    return output.dim or width


def _check_weights(weights: Sequence[float], layers: Sequence[int | str]) -> None:
    if len(weights) != len(layers):
        raise ConfigError(
            f"weights has {len(weights)} numbers for {len(layers)} layers {list(layers)}; give one "
            "for each"
        )


def blocks_needed(outputs: Sequence[OutputSpec]) -> int:
    """How many blocks, from the first, the outputs need."""
    return max(state for output in outputs for state in output.states)


def needs_pooler(outputs: Sequence[OutputSpec]) -> bool:
    """Whether an output is of the pooler."""
    return any(output.is_pooled_output for output in outputs)


def outputs_on_device(outputs: Sequence[OutputSpec], *, in_windows: bool) -> tuple[OutputSpec, ...]:
    """What the device step makes of the outputs: all of it, but what waits for further windows.

    Args:
      outputs: of the run.
      in_windows: whether long texts are computed in windows; vectors of sequences are then averaged
        over them, and scaled and cast after that.
    """
    if not in_windows:
        return tuple(outputs)
    return tuple(
        replace(output, normalize=False, dtype="float32") if output.level == "sequence" else output
        for output in outputs
    )

"""Named outputs as a user asks for them: layers, level, pooling.

`output_specs` resolves them against an architecture, and `encoder.pooling` computes them. Importing
this module does not import Keras.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from bert_features.config.features import SMALL_DTYPES, OutputDtype
from bert_features.config.kinds import KINDS, Kind, check_kind, unused
from bert_features.config.kinds.attention import HeadsSetting
from bert_features.config.kinds.masked_lm import DEFAULT_TOP_K
from bert_features.config.kinds.sparse import DEFAULT_TOP_K as DEFAULT_TERMS
from bert_features.config.layers import (
    ALL,
    DEFAULT_LAYERS,
    LAYERS_ALLOWED,
    LayersSetting,
    check_weights,
)
from bert_features.config.poolings import (
    AUTO_POOLING,
    OF_CLS,
    POOLING_ALIASES,
    POOLINGS,
    AutoPooling,
    Level,
    Module,
    is_pooling,
    pooling_parts,
    wrong_pooling,
)
from bert_features.config.settings import OUTPUTS, Positive, Settings, setting, shown
from bert_features.errors import ConfigError

Combine = Literal["none", "sum", "mean", "concat", "weighted"]
_FLOAT32_MAX = 3.4028234e38
Float32 = Annotated[float, Field(ge=-_FLOAT32_MAX, le=_FLOAT32_MAX)]
NonNegative32 = Annotated[float, Field(ge=0, le=_FLOAT32_MAX)]
# A number of texts, or a path.
ScaleSource = Annotated[
    str,
    BeforeValidator(lambda v: str(v) if isinstance(v, Path) or (type(v) is int and v > 0) else v),
    Field(pattern="[^0]"),
]


class OutputConfig(Settings):
    """One output as the user describes it; `Feature` explains each setting.

    A single output needs no table of its own: its settings may stand among those of the run, see
    `gather_outputs`.
    """

    name: str | None = setting(
        None, "Name of the output in records and files.", OUTPUTS, min_length=1
    )
    kind: Kind = setting(
        "layers",
        f"What the output is: {'; '.join(f'{n}, {k.summary}' for n, k in KINDS.items())}.",
        OUTPUTS,
    )
    heads: HeadsSetting | None = setting(
        None,
        "Heads to take, for kind attention: their numbers from 0, or all (the default), mean or "
        "max of all heads.",
        OUTPUTS,
        min_length=1,
        allowed="a list of integers from 0, or 'all', 'mean' or 'max'",
    )
    top_k: Positive | None = setting(
        None,
        f"Pieces of each token, for kind masked_lm, by default {DEFAULT_TOP_K}; or the most terms "
        f"of each text, for kind sparse, by default {DEFAULT_TERMS}.",
        OUTPUTS,
    )
    min_weight: NonNegative32 | None = setting(
        None, "Least weight of a term, for kind sparse; lighter ones are left out.", OUTPUTS
    )
    layers: LayersSetting | None = setting(
        None,
        "LAYERS to extract: encoder blocks, -L to L-1, and the word `embeddings`, the sum below "
        "them; `all` is every block, without the embeddings. By default "
        f"{','.join(map(str, DEFAULT_LAYERS))}; with pooling auto, kind masked_lm or score -1.",
        OUTPUTS,
        min_length=1,
        common=True,
        usage="Write them as --layers=-1,-2, as a range with both its ends, --layers=0-5 or "
        "--layers=-4--1, or as --layers=embeddings,all.",
        allowed=LAYERS_ALLOWED,
    )
    combine: Combine = setting(
        "none", "How several layers become one vector; none keeps them apart.", OUTPUTS, common=True
    )
    weights: tuple[Float32, ...] | None = setting(
        None,
        "One weight for each layer, used unscaled, for combine = 'weighted'.",
        OUTPUTS,
        allowed="a list of finite numbers that float32 holds, one for each layer",
    )
    level: Level = setting(
        "token",
        "What each vector represents: a token, a word, a span of the text or the whole sequence.",
        OUTPUTS,
        common=True,
    )
    pooling: str | None = setting(
        None,
        "How token vectors become the vector of a word, a span or the sequence; auto takes the "
        "sequence pooling that the checkpoint was trained with.",
        OUTPUTS,
        common=True,
        usage=" ".join(
            f"With --level {level}: {', '.join(POOLINGS[level])}."
            for level in ("word", "span", "sequence")
        ),
    )
    special_tokens: bool = setting(
        True, "Include [CLS] and [SEP] when a sequence is pooled.", OUTPUTS
    )
    normalize: bool | None = setting(
        None,
        "Scale each vector to length 1, or not; by default not, with pooling auto as the "
        "checkpoint's files say.",
        OUTPUTS,
        common=True,
    )
    dim: Positive | None = setting(
        None, "Number of values of each vector to keep, from the first.", OUTPUTS
    )
    dtype: OutputDtype = setting(
        "float32", "Data type of the features.", OUTPUTS, common=True, decides="digits"
    )
    scale_from: ScaleSource | None = setting(
        None,
        "What the scale of int8 vectors comes from: a number of texts at the start of the input "
        "(by default 1000), or a features file.",
        OUTPUTS,
        allowed="a number of texts, or the path of a features file",
        decides="digits",
        served=False,
        reads="the scale file",
    )

    def files(self) -> list[tuple[str, str]]:
        """The files that its settings name, each with its part in a run."""
        named = [(self.marks(name).reads, value) for name, value in self if value is not None]
        return [(role, path) for role, path in named if role and not path.isdecimal()]

    @field_validator("pooling")
    @classmethod
    def _resolve_alias(cls, value: str | None) -> str | None:
        return None if value is None else POOLING_ALIASES.get(value, value.replace("-", "_"))

    @model_validator(mode="after")
    def _settings_fit_together(self) -> Self:
        check_kind(self)
        if KINDS[self.kind].poolings is None and not is_pooling(self.pooling, self.level):
            raise wrong_pooling(str(self.pooling), self.level)
        if not self.special_tokens and not OF_CLS.isdisjoint(pooling_parts(self.pooling or "")):
            raise ConfigError(
                f"special_tokens is false; pooling '{self.pooling}' is the vector of [CLS] itself"
            )
        if (self.combine == "weighted") != (self.weights is not None):
            raise ConfigError(
                f"combine is '{self.combine}' and weights is {self.weights}; combine 'weighted' "
                "needs one weight for each layer, and no other combine takes weights"
            )
        if self.pooling == AUTO_POOLING and self.layers is None and self.combine != "none":
            raise ConfigError(
                f"combine is '{self.combine}', and pooling 'auto' takes one layer; name layers "
                "too, or leave combine out"
            )
        if self.weights is not None and self.layers is not None and ALL not in self.layers:
            check_weights(self.weights, self.layers)
        return self


# The settings of an output that may stand among those of a run; the second beside outputs too, for
# those without their own.
OUTPUT_SETTINGS = tuple(name for name in OutputConfig.model_fields if name != "name")
_OF_EACH = ("layers", "dtype")


def gather_outputs(
    flat: Mapping[str, Any], outputs: "Outputs | None" = None
) -> tuple[OutputConfig, ...]:
    """The outputs of a run: the single one whose settings stand among its own, or the named ones.

    Args:
      flat: the `OUTPUT_SETTINGS` among the settings of the run. `layers` and `dtype` may stand
        beside outputs, for those that have none.
      outputs: the named outputs; None if there are none.

    Raises:
      ConfigError: as `parse_outputs`; both are set; or no output has use for `layers` or `dtype`.
    """
    if outputs is None:
        return (OutputConfig.of(flat),)
    named = parse_outputs(outputs)
    if beside := [name for name in OUTPUT_SETTINGS if name in flat and name not in _OF_EACH]:
        raise ConfigError(
            f"{', '.join(beside)} and outputs are both set; set it in each output instead"
        )
    shared = {name: getattr(OutputConfig.of({name: value}), name) for name, value in flat.items()}
    for name in shared:
        if not any(_lacks(output, name) for output in named):
            raise ConfigError(f"no output uses {name}; leave {name} out")
    return tuple(
        OutputConfig.of(
            {n: getattr(output, n) for n in output.model_fields_set}
            | {n: value for n, value in shared.items() if _lacks(output, n)}
        )
        for output in named
    )


def _lacks(output: OutputConfig, name: str) -> bool:
    """Whether an output takes a setting of the run: it has a use for it, and none of its own."""
    is_set = name in output.model_fields_set and getattr(output, name) is not None
    follows = name == "layers" and output.pooling == AUTO_POOLING
    return not is_set and not follows and name not in unused(dict(output))


def idle_beside(values: Mapping[str, Any]) -> set[str]:
    """The settings among those of a run that have no use beside the others."""
    outputs = values.get("outputs") or ()
    if not outputs:
        return {*unused({name: v for name, v in values.items() if name in OUTPUT_SETTINGS})}
    named = parse_outputs(outputs)
    used = {name for name in _OF_EACH if any(_lacks(output, name) for output in named)}
    idle = ({*unused(dict(output))} for output in named)
    return {*OUTPUT_SETTINGS} - used | set.intersection(*idle)


# Outputs as a caller passes them: each an `OutputConfig` or its settings.
Outputs = Sequence[OutputConfig | Mapping[str, Any]]


def parse_outputs(outputs: Outputs, *, source: str = "") -> tuple[OutputConfig, ...]:
    """Checks outputs that a caller passed.

    Raises ConfigError if it is no list, a setting is unknown, or has a value that is not allowed;
    it names `source`.
    """
    if isinstance(outputs, str | Mapping) or not isinstance(outputs, Sequence) or not outputs:
        where = f"{source}: " if source else ""
        raise ConfigError(
            f"{where}outputs is {shown(outputs)}; allowed: a list of tables (in Python: dicts)"
        )
    return tuple(
        output
        if isinstance(output, OutputConfig)
        else parse_output(output, source=f"{source} outputs[{i}]".strip())
        for i, output in enumerate(outputs)
    )


def parse_output(output: Mapping[str, Any], *, source: str) -> OutputConfig:
    """Checks one output that a caller passed; `source` says which, for error messages.

    Raises ConfigError as `Settings.of`. Its settings are keys, in Python, TOML and on the command
    line alike.
    """
    try:
        return OutputConfig.of(output, source=source)
    except ConfigError as error:
        raise ConfigError(str(error)) from error


def check_floats(dtypes: Iterable[str | None], place: str) -> None:
    """Refuses the dtypes of small vectors for a place that has floats only; raises ConfigError."""
    for dtype in dtypes:
        if dtype in SMALL_DTYPES:
            raise ConfigError(
                f"dtype is '{dtype}', which only features files and encode have; for {place} pass "
                "'float32', 'float16' or 'bfloat16'"
            )


def check_names_differ(names: Sequence[str]) -> None:
    """Refuses names of outputs that are the same, or the same but for case; raises ConfigError."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(name.casefold())
        if other == name:
            raise ConfigError(f"two outputs are named '{name}'; give each a different name")
        if other is not None:
            raise ConfigError(
                f"outputs '{other}' and '{name}' differ only by case, which DuckDB and Spark "
                "ignore; give each a different name"
            )
        seen[name.casefold()] = name


def uses_auto_pooling(outputs: Sequence[OutputConfig]) -> bool:
    """Whether an output leaves its pooling to the checkpoint."""
    return any(o.pooling == AUTO_POOLING or KINDS[o.kind].follows_checkpoint for o in outputs)


def resolve_auto(
    output: OutputConfig, auto: AutoPooling | None = None
) -> tuple[OutputConfig, tuple[Module, ...]]:
    """An output with the pooling that `auto` means, by default the mean; and its modules."""
    if KINDS[output.kind].needs == "projection":
        return output, () if auto is None else auto.of_tokens
    if output.pooling != AUTO_POOLING:
        return output, ()
    auto = auto or AutoPooling()
    settings = {name: getattr(output, name) for name in output.model_fields_set}
    normalize, modules = output.normalize, auto.modules
    if normalize is None:
        normalize = auto.normalize
    if auto.dim is not None and output.dim is None:
        # As sentence-transformers, whose `truncate_dim` leaves a shorter vector than length 1.
        modules += ("normalize", auto.dim) if normalize else (auto.dim,)
        normalize = output.normalize or False
    chosen = {"layers": output.layers or (-1,), "pooling": auto.pooling, "normalize": normalize}
    return OutputConfig.of(settings | chosen), modules

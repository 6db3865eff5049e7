"""Outputs resolved against an architecture: which layers, how wide, what the encoder must compute.

Nothing here computes; `encoder.pooling` does.
Shape legend: `B` batch, `S` sequence, `H` hidden, `K` selected layers, `D` width of an output.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from bert_features.config.bert_config import BertConfig
from bert_features.config.features import Feature as Feature
from bert_features.config.features import OutputSpec as OutputSpec
from bert_features.config.kinds import DEFAULT_TOP_K, HEAD_KINDS
from bert_features.config.outputs import (
    DEFAULT_LAYERS,
    EMBEDDINGS,
    POOLINGS,
    SMALL_DTYPES,
    AutoPooling,
    DenseModule,
    Layers,
    Module,
    OutputConfig,
    OutputDtype,
    check_names_differ,
    check_weights,
    expand_all,
    parse_layers,
    pooling_parts,
    resolve_auto,
)
from bert_features.errors import ConfigError

_F = TypeVar("_F", bound=Feature)

_MAX_ATTENTION_BYTES = 512 << 20  # of the attention of a batch, on each device
# Poolings that put two vectors side by side.
_DOUBLE_WIDTH = {"first_last", "mean_max"}


def resolve_layers(layers: Sequence[int | str], num_layers: int) -> tuple[int, ...]:
    """Resolves LAYERS entries: 0 for the embeddings, 1 … num_layers for the blocks' outputs.

    An integer entry indexes the blocks from either end, as in the official script: -1 is the last,
    0 the first. Raises ConfigError if there are none, an entry is out of range or unknown, or a
    layer is named twice.
    """
    layers = expand_all(layers, num_layers)
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
        than the vector, `pooler` is combined with a layer other than the last or asked of an
        architecture without it, or two outputs have the same name, or names that differ only by
        case.
    """
    specs = tuple(
        spec
        for output, modules in (resolve_auto(output, auto) for output in outputs)
        for spec in _specs(output, config, parse_layers(layers), dtype, modules)
    )
    check_names_differ([spec.name for spec in specs])
    return specs


def output_names(
    outputs: Sequence[OutputConfig],
    layers: Sequence[int | str] = DEFAULT_LAYERS,
    num_layers: int = 2,
) -> list[str]:
    """The names that `plan_outputs` gives the outputs; of `all` layers those of `num_layers`."""
    return [
        name
        for output, _ in map(resolve_auto, outputs)
        for name in _names(output, len(expand_all(output.layers or layers, num_layers)))
    ]


def _specs(
    output: OutputConfig,
    config: BertConfig,
    layers: tuple[int | str, ...],
    dtype: OutputDtype,
    modules: tuple[Module, ...],
) -> list[OutputSpec]:
    if output.kind in HEAD_KINDS:
        return _specs_of_head(output, config)
    _check_small(output, output.dtype or dtype)
    if output.kind == "attention":
        return _specs_of_attention(output, config, output.layers or layers, output.dtype or dtype)
    of_pooler = output.pooling == "pooler"
    if of_pooler and not config.has_pooler:
        raise ConfigError.naming(
            "{pooling} 'pooler' is unavailable: an encoder of model_type {received} has no pooler; "
            "choose another, such as 'cls' or 'mean'",
            received=config.model_type,
        )
    entries = output.layers or ((-1,) if of_pooler else layers)
    entries = expand_all(entries, config.num_hidden_layers)
    states = resolve_layers(entries, config.num_hidden_layers)
    if of_pooler and states != (config.num_hidden_layers,):
        raise ConfigError.naming(
            "{pooling} 'pooler' takes the last layer; {layers} is {received}, leave it out",
            received=list(entries),
        )
    weights = output.weights or ()
    if output.combine == "weighted":
        check_weights(weights, entries)
    groups = [(entries, states)]
    if _stay_apart(output):
        groups = [((entry,), (state,)) for entry, state in zip(entries, states, strict=True)]
    common: dict[str, Any] = {
        "combine": output.combine,
        "weights": weights,
        "level": output.level,
        "pooling": output.pooling or POOLINGS[output.level][0],
        "special_tokens": output.special_tokens,
        "normalize": output.normalize,
        "width": _width(output, config.hidden_size, len(groups[0][0]), modules),
        "dtype": output.dtype or dtype,
        "calibration": output.calibration,
        "modules": modules,
    }
    names = _names(output, len(entries))
    return [
        OutputSpec(name=name, layers=group, states=of_group, **common)
        for name, (group, of_group) in zip(names, groups, strict=True)
    ]


def _check_small(output: OutputConfig, dtype: str) -> None:
    """Refuses small vectors of tokens and words, and a calibration that nothing uses."""
    if dtype in SMALL_DTYPES and output.level != "sequence":
        # Attention has no vectors of texts.
        cure = "pass {level:'sequence'}, or" if output.kind == "layers" else "pass"
        raise ConfigError.naming(
            "{dtype} is '{received}', which only level 'sequence' allows; this output has level "
            f"'{{own}}': {cure} a dtype of floats",
            received=dtype,
            own=output.level,
        )
    if output.calibration is not None and dtype != "int8":
        raise ConfigError.naming(
            "{calibration} is for dtype 'int8'; {dtype} is '{received}': leave {calibration} out",
            received=dtype,
        )


def attention_tokens(
    outputs: Sequence[OutputSpec], config: BertConfig, max_seq_length: int
) -> int | None:
    """Tokens of a batch on one device whose attention fits 512 MiB; None if none is wanted."""
    count = len({output.states for output in outputs if output.kind == "attention"})
    if not count:
        return None
    of_token = count * config.num_attention_heads * 4 * max_seq_length
    return max(_MAX_ATTENTION_BYTES // of_token, max_seq_length)


def _specs_of_attention(
    output: OutputConfig, config: BertConfig, layers: tuple[int | str, ...], dtype: OutputDtype
) -> list[OutputSpec]:
    """The features of an output of attention, one for each layer."""
    layers = expand_all(layers, config.num_hidden_layers)
    states = resolve_layers(layers, config.num_hidden_layers)
    if 0 in states:
        raise ConfigError.naming("{layers} has 'embeddings', which have no attention; leave it out")
    count = config.num_attention_heads
    heads = output.heads or ("all",)
    if heads == ("all",):
        heads = tuple(range(count))
    if bad := [head for head in heads if isinstance(head, int) and head >= count]:
        raise ConfigError.naming(
            "{heads} has {received}; allowed: 0 to {last}, as this checkpoint has {count} heads",
            received=bad[0],
            last=count - 1,
            count=count,
        )
    pooling = output.pooling or "none"
    return [
        OutputSpec(
            name=name,
            layers=(entry,),
            states=(state,),
            combine="none",
            width=len(heads),
            dtype=dtype,
            level=output.level if pooling == "cls" else f"{output.level}_pair",
            pooling=pooling,
            kind="attention",
            heads=heads,
        )
        for name, entry, state in zip(_names(output, len(layers)), layers, states, strict=True)
    ]


def _specs_of_head(output: OutputConfig, config: BertConfig) -> list[OutputSpec]:
    """The features of an output that the masked-LM head computes."""
    width = 1 if output.kind == "score" else output.top_k or DEFAULT_TOP_K
    if width > config.vocab_size:
        raise ConfigError.naming(
            "{top_k} is {received}; the vocabulary has {count} pieces",
            received=width,
            count=config.vocab_size,
        )
    common: dict[str, Any] = {
        "layers": (-1,),
        "combine": "none",
        "width": width,
        "level": output.level,
        "pooling": "sum" if output.level == "word" else "none",
        "kind": output.kind,
        "states": (config.num_hidden_layers,),
    }
    return [
        OutputSpec(name=name, dtype=dtype, **common)
        for name, dtype in zip(_names(output, 1), ("float32", "int32"), strict=False)
    ]


def _stay_apart(output: OutputConfig) -> bool:
    """Whether each layer becomes an output of its own."""
    return output.combine == "none" and output.pooling != "pooler"


def _names(output: OutputConfig, num_layers: int) -> list[str]:
    if output.kind == "masked_lm":
        name = output.name or "masked_lm"
        return [name, f"{name}_ids"]
    if output.kind == "score":
        return [output.name or ("surprisal" if output.level == "word" else "score")]
    count = num_layers if _stay_apart(output) else 1
    if output.name is None and output.kind == "attention":
        return ["attention"] if count == 1 else [f"attention_{i}" for i in range(count)]
    if output.name is None:
        as_official = _stay_apart(output) and (output.level == "token" or count > 1)
        return [f"layer_output_{i}" for i in range(count)] if as_official else ["features"]
    return [output.name] if count == 1 else [f"{output.name}_{i}" for i in range(count)]


def _width(
    output: OutputConfig, hidden_size: int, num_layers: int, modules: Sequence[Module]
) -> int:
    width = hidden_size * (num_layers if output.combine == "concat" else 1)
    width *= sum(2 if part in _DOUBLE_WIDTH else 1 for part in pooling_parts(output.pooling or ""))
    for module in modules:
        if isinstance(module, DenseModule) and module.inputs != width:
            raise ConfigError.naming(
                "{pooling} 'auto' has a Dense module for {inputs} values, and this output has "
                "{received} before it; leave {layers} and {combine} out",
                inputs=module.inputs,
                received=width,
            )
        if module != "normalize":
            width = min(module, width) if isinstance(module, int) else module.outputs
    if output.dim is not None and output.dim > width:
        raise ConfigError.naming(
            "{dim} is {received}; the vector has {width} values, take at most {width}",
            received=output.dim,
            width=width,
        )
    return output.dim or width


def blocks_needed(outputs: Sequence[OutputSpec]) -> int:
    """Number of blocks, from the first, that the outputs need."""
    return max(state for output in outputs for state in output.states)


def needs_pooler(outputs: Sequence[OutputSpec]) -> bool:
    """Whether an output is [CLS] through the pooler, a layer with its own weights."""
    return any(output.pooling == "pooler" for output in outputs)


def needs_head(outputs: Sequence[OutputSpec]) -> bool:
    """Whether an output is computed by the masked-LM head, which has its own weights."""
    return any(output.kind in HEAD_KINDS for output in outputs)


def dense_modules(outputs: Sequence[OutputSpec]) -> tuple[DenseModule, ...]:
    """The Dense modules that outputs need, each once; they have weights of their own."""
    modules = dict.fromkeys(module for output in outputs for module in output.modules)
    return tuple(module for module in modules if isinstance(module, DenseModule))


def has_scores(outputs: Sequence[OutputSpec] | Sequence[OutputConfig]) -> bool:
    """Whether an output is the score of each token or word, for which rows are masked."""
    return any(output.kind == "score" for output in outputs)


def has_words(outputs: Sequence[Feature]) -> bool:
    """Whether an output needs the words of the texts."""
    return any(output.unit == "word" for output in outputs)


def check_special_ids(outputs: Sequence[OutputSpec], special_ids: Sequence[int]) -> None:
    """Raises ConfigError if an output leaves out [CLS] and [SEP], and their ids are unknown."""
    for output in outputs:
        if not output.special_tokens and not special_ids:
            raise ConfigError(
                f"output '{output.name}' leaves out [CLS] and [SEP], but their ids are unknown; "
                "pass special_ids, or a checkpoint with a vocabulary"
            )


def needs_static_length(outputs: Sequence[OutputSpec]) -> list[str]:
    """The names of outputs that need S to be known when the graph is made."""
    return [o.name for o in outputs if o.unit == "word" or "last" in pooling_parts(o.pooling)]


def as_floats(outputs: Sequence[_F]) -> tuple[_F, ...]:
    """The outputs before small vectors are made from them: float32 instead of int8 and binary."""
    return tuple(
        replace(output, dtype="float32", ranges=()) if output.dtype in SMALL_DTYPES else output
        for output in outputs
    )


def outputs_on_device(outputs: Sequence[OutputSpec], *, in_windows: bool) -> tuple[OutputSpec, ...]:
    """The outputs as the device step computes them.

    If long texts are computed in windows, the vectors of a sequence are averaged over its windows,
    and scaled and cast only after that, on the host.
    """
    # int8 and binary are made on the host, where NaN and infinity are counted before.
    outputs = as_floats(outputs)
    if not in_windows:
        return outputs
    return tuple(
        replace(output, normalize=False, dtype="float32") if output.level == "sequence" else output
        for output in outputs
    )

"""Outputs resolved against an architecture: which layers, how wide, what the encoder must compute.

Nothing here computes; `encoder.pooling` does.
Shape legend: `B` batch, `S` sequence, `H` hidden, `K` selected layers, `D` width of an output.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from bert_features.config.bert_config import BertConfig
from bert_features.config.features import SMALL_DTYPES
from bert_features.config.features import Feature as Feature
from bert_features.config.features import OutputSpec as OutputSpec
from bert_features.config.kinds import KINDS
from bert_features.config.kinds.base import Context
from bert_features.config.layers import expand_all
from bert_features.config.levels import LEVELS
from bert_features.config.outputs import OutputConfig, check_names_differ, resolve_auto
from bert_features.config.poolings import AutoPooling, DenseModule, pooling_parts
from bert_features.errors import ConfigError

_F = TypeVar("_F", bound=Feature)

_MAX_ATTENTION_BYTES = 512 << 20  # of the attention of a batch, on each device
_UNCUT = 1 << 20  # values: wider than any vector


def plan_outputs(
    outputs: Sequence[OutputConfig],
    config: BertConfig,
    *,
    auto: AutoPooling | None = None,
    labelled: bool = False,
) -> tuple[OutputSpec, ...]:
    """Resolves outputs against an architecture.

    With `combine` none each of K layers becomes a separate output. Without a name they are
    `layer_output_0`, …, as in the official script; with a name they are `NAME_0`, …, and a single
    layer is `NAME`. Every other output without a name is called `features`: one that combines
    layers, and one of words or the sequence with a single layer.

    Args:
      outputs: the outputs to resolve.
      config: the architecture.
      auto: what pooling `auto` means; by default the mean. It takes the last layer if its output
        names no layers.
      labelled: whether words have labels.

    Raises:
      ConfigError: as `resolve_layers`; the number of weights is not that of layers, `dim` is wider
        than the vector, `pooler` is combined with a layer other than the last or asked of an
        architecture without it, or two outputs have the same name, or names that differ only by
        case.
    """
    specs = tuple(
        replace(spec, labelled=labelled and spec.unit == "word")
        for output, modules in (resolve_auto(output, auto) for output in outputs)
        for spec in KINDS[output.kind].specs(
            output, Context(config, modules, auto.sparse if auto else None)
        )
    )
    check_names_differ([spec.name for spec in specs])
    return specs


def output_names(outputs: Sequence[OutputConfig], num_layers: int = 2) -> list[str]:
    """The names that `plan_outputs` gives the outputs; `all` layers are `num_layers`."""
    return [
        name
        for output, _ in map(resolve_auto, outputs)
        for kind in (KINDS[output.kind],)
        for name in kind.names(
            output, len(expand_all(output.layers or kind.default_layers, num_layers))
        )
    ]


def attention_tokens(
    outputs: Sequence[OutputSpec], config: BertConfig, max_seq_length: int
) -> int | None:
    """Tokens of a batch on one device whose attention fits 512 MiB; None if none is wanted."""
    count = len({output.states for output in outputs if KINDS[output.kind].needs == "attention"})
    if not count:
        return None
    token_bytes = count * config.num_attention_heads * 4 * max_seq_length
    return max(_MAX_ATTENTION_BYTES // token_bytes, max_seq_length)


def blocks_needed(outputs: Sequence[OutputSpec]) -> int:
    """Number of blocks, from the first, that the outputs need."""
    return max(state for output in outputs for state in output.states)


def needs_pooler(outputs: Sequence[OutputSpec]) -> bool:
    """Whether an output is [CLS] through the pooler, a layer with its own weights."""
    return any(output.pooling == "pooler" for output in outputs)


def dense_modules(outputs: Sequence[OutputSpec]) -> tuple[DenseModule, ...]:
    """The Dense modules that outputs need, each once; they have weights of their own."""
    modules = dict.fromkeys(module for output in outputs for module in output.modules)
    return tuple(module for module in modules if isinstance(module, DenseModule))


def has_words(outputs: Sequence[Feature]) -> bool:
    """Whether an output needs the words of the texts."""
    return any(output.unit == "word" for output in outputs)


def has_spans(outputs: Sequence[Feature]) -> bool:
    """Whether an output needs spans of the texts."""
    return any(output.unit == "span" for output in outputs)


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


def scale_file(output: OutputConfig | OutputSpec) -> str | None:
    """The features file that an output's scale comes from; None if it comes from texts."""
    source = output.scale_from
    return None if source is None or source.isdecimal() else source


def as_floats(outputs: Sequence[_F]) -> tuple[_F, ...]:
    """The outputs before small vectors are made from them: float32 instead of int8 and binary."""
    return tuple(
        replace(output, dtype="float32", scale=()) if output.dtype in SMALL_DTYPES else output
        for output in outputs
    )


def outputs_on_device(outputs: Sequence[OutputSpec], *, in_windows: bool) -> tuple[OutputSpec, ...]:
    """The outputs as the device step computes them.

    If an example may have several rows, the vectors of a sequence or a span are put together from
    them on the host, and scaled and cast only there; those of a span are also cut only there.
    """
    # int8 and binary are made on the host, where NaN and infinity are counted before.
    outputs = as_floats(outputs)
    if not in_windows:
        return outputs
    for output in outputs:
        KINDS[output.kind].check_windows(output)
    # Of a span both ends are needed whole, which may lie in different windows.
    return tuple(
        replace(o, is_part=True, dtype="float32", width=o.width if o.is_sequence else _UNCUT)
        if LEVELS[o.level].is_text
        else o
        for o in outputs
    )

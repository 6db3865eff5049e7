"""Kind `layers`: vectors of the encoder's layers."""

from collections.abc import Sequence
from typing import Any

from bert_features.config.bert_config import BertConfig
from bert_features.config.features import SMALL_DTYPES, OutputSpec
from bert_features.config.kinds.base import Context, OutputKind, make_spec, numbered
from bert_features.config.layers import check_weights
from bert_features.config.poolings import DOUBLE_WIDTH, POOLINGS, DenseModule, pooling_parts
from bert_features.errors import ConfigError


class Layers(OutputKind):
    """Layers, each apart or combined, pooled to a token, a word or the sequence."""

    name = "layers"
    summary = "vectors of the encoder's layers"
    settings = frozenset(["layers", "pooling", "dtype", "scale_from"])  # others take them too
    levels = ("token", "word", "span", "sequence")
    has_vectors = True
    search = "vectors"

    def names(self, output: Any, num_layers: int) -> list[str]:
        """As the official script's for each layer apart, else `features`."""
        apart = _stay_apart(output)
        count = num_layers if apart else 1
        if output.name is not None:
            return numbered(output.name, count)
        as_official = apart and (output.level == "token" or count > 1)
        return [f"layer_output_{i}" for i in range(count)] if as_official else ["features"]

    def specs(self, output: Any, context: Context) -> list[OutputSpec]:
        """A feature of each layer, or of the layers combined."""
        check_small(self, output)
        is_pooler = output.pooling == "pooler"
        usual = (-1,) if is_pooler else self.default_layers
        entries, states = context.resolve(output.layers or usual)
        if is_pooler:
            _check_pooler(context.config, entries, states)
        if output.combine == "weighted":
            check_weights(output.weights, entries)
        groups = [(entries, states)]
        if _stay_apart(output):
            groups = [((entry,), (state,)) for entry, state in zip(entries, states, strict=True)]
        common = {
            "pooling": output.pooling or POOLINGS[output.level][0],
            "width": _width(output, context, len(groups[0][0])),
            "modules": context.modules,
        }
        names = self.names(output, len(entries))
        return [
            make_spec(output, name=name, layers=group, states=group_states, **common)
            for name, (group, group_states) in zip(names, groups, strict=True)
        ]


def check_small(kind: OutputKind, output: Any) -> None:
    """Refuses small vectors of tokens and words, and a source of a scale that nothing uses."""
    if output.dtype in SMALL_DTYPES and output.level not in kind.small_levels:
        # Attention has no vectors of texts.
        cure = "pass level='sequence', or" if output.kind == Layers.name else "pass"
        raise ConfigError(
            f"dtype is '{output.dtype}', which only level 'sequence' allows; this output has level "
            f"'{output.level}': {cure} a dtype of floats"
        )
    if output.scale_from is not None and output.dtype != "int8":
        raise ConfigError(
            f"scale_from is for dtype 'int8'; dtype is '{output.dtype}': leave scale_from out"
        )


def _stay_apart(output: Any) -> bool:
    """Whether each layer becomes a feature of its own."""
    return bool(output.combine == "none" and output.pooling != "pooler")


def _check_pooler(
    config: BertConfig, entries: Sequence[int | str], states: tuple[int, ...]
) -> None:
    if not config.has_pooler:
        raise ConfigError(
            f"pooling 'pooler' is unavailable: an encoder of model_type {config.model_type} has no "
            "pooler; choose another, such as 'cls' or 'mean'"
        )
    if states != (config.num_hidden_layers,):
        raise ConfigError(
            f"pooling 'pooler' takes the last layer; layers is {list(entries)}, leave it out"
        )


def _width(output: Any, context: Context, num_layers: int) -> int:
    width = context.config.hidden_size * (num_layers if output.combine == "concat" else 1)
    width *= sum(2 if part in DOUBLE_WIDTH else 1 for part in pooling_parts(output.pooling or ""))
    for module in context.modules:
        if isinstance(module, DenseModule) and module.inputs != width:
            raise ConfigError(
                f"pooling 'auto' has a Dense module for {module.inputs} values, and this output "
                f"has {width} before it; leave layers and combine out"
            )
        if module != "normalize":
            width = min(module, width) if isinstance(module, int) else module.outputs
    if output.dim is not None and output.dim > width:
        raise ConfigError(
            f"dim is {output.dim}; the vector has {width} values, take at most {width}"
        )
    dim: int = output.dim or width
    return dim

"""Which layers a run wants, and how they are combined; all of it inside the device step.

Shape legend: `B` batch, `S` sequence, `H` hidden, `L` blocks, `K` selected layers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from keras import ops

from bert_features.errors import ConfigError

Combine = Literal["none", "sum", "mean", "concat"]
LayerEntry = int | str

# The word for the sum below the first block, layer 0 of the tutorials that count 13.
EMBEDDINGS = "embeddings"

_COMBINERS: dict[str, Callable[[Sequence[Any]], Any]] = {
    "sum": lambda states: ops.sum(ops.stack(states), axis=0),
    "mean": lambda states: ops.mean(ops.stack(states), axis=0),
    "concat": lambda states: ops.concatenate(states, axis=-1),
}


@dataclass(frozen=True)
class OutputSpec:
    """One named output of the device step.

    Attributes:
      name: its name in predictions and files.
      layers: LAYERS entries, as the user wrote them.
      states: the same, resolved: 0 is the embeddings, i the output of the i-th block.
      combine: `none` for a single layer, else how they become one vector.
    """

    name: str
    layers: tuple[LayerEntry, ...]
    states: tuple[int, ...]
    combine: Combine

    def width(self, hidden_size: int) -> int:
        """Values per token."""
        return hidden_size * (len(self.layers) if self.combine == "concat" else 1)


def resolve_layers(layers: Sequence[LayerEntry], num_layers: int) -> tuple[int, ...]:
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


def _resolve(entry: LayerEntry, num_layers: int) -> int:
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
    layers: Sequence[LayerEntry], combine: Combine, num_layers: int
) -> tuple[OutputSpec, ...]:
    """The outputs that a LAYERS setting asks for.

    With `none` each layer is an output of its own, `layer_output_0`, … in the order given, as the
    official script names them; otherwise there is one, `features`.

    Raises:
      ConfigError: as `resolve_layers`; or `combine` is unknown.
    """
    if combine not in get_args(Combine):
        raise ConfigError(f"combine is {combine!r}; allowed: {', '.join(get_args(Combine))}")
    states = resolve_layers(layers, num_layers)
    if combine != "none":
        return (OutputSpec("features", tuple(layers), states, combine),)
    return tuple(
        OutputSpec(f"layer_output_{i}", (entry,), (state,), "none")
        for i, (entry, state) in enumerate(zip(layers, states, strict=True))
    )


def blocks_needed(outputs: Sequence[OutputSpec]) -> int:
    """How many blocks, from the first, the outputs need."""
    return max(state for output in outputs for state in output.states)


def combine_states(states: Sequence[Any], output: OutputSpec, dtype: str) -> Any:
    """One output from the encoder's states.

    Args:
      states: [embeddings, block 0, …], [B, S, H] each.
      output: which of them, and how they are combined (in float32).
      dtype: of the result.

    Returns:
      [B, S, H], or [B, S, K * H] for `concat`.
    """
    if output.combine == "none":
        return ops.cast(states[output.states[0]], dtype)
    wanted = [ops.cast(states[state], "float32") for state in output.states]
    return ops.cast(_COMBINERS[output.combine](wanted), dtype)

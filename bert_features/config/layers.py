"""LAYERS: which layers of the encoder, as a caller names them and as they are counted."""

import re
from collections.abc import Sequence
from numbers import Integral
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from bert_features.config.settings import MAX_INT, shown
from bert_features.errors import ConfigError

LayerWord = Literal["embeddings", "all"]
LayerEntry = Annotated[int, Field(strict=True, ge=-MAX_INT, le=MAX_INT)] | LayerWord
LAYERS_ALLOWED = "a list of integers (-1: the last), ranges (0-5 or -4--1), 'all' and 'embeddings'"
# LAYERS as a caller may pass them: one entry, several, or several as text ("-1,-2", "0-5").
Layers = int | str | Sequence[int | str]
# The sum below the first block; layer 0 in tutorials that count 13 layers.
EMBEDDINGS = "embeddings"
# Every block from the first to the last, without the embeddings; as `all_encoder_layers` of the
# official script.
ALL = "all"
_RANGE = re.compile(r"([+-]?\d{1,3})-([+-]?\d{1,3})", re.ASCII)
DEFAULT_LAYERS: tuple[int, ...] = (-1, -2, -3, -4)


def split_layers(layers: Any) -> Any:
    """LAYERS as a tuple: (-1, -2) for [-1, -2], range(-1, -3, -1) or "-1,-2", and (-1,) for -1.

    A range as text has both its ends: "0-2" is (0, 1, 2), and "-1--3" is (-1, -2, -3). What is none
    of these comes back as it is, for the check that follows.
    """
    if isinstance(layers, str):
        words = [word.strip() for word in layers.split(",")]
        layers = [int(w) if re.fullmatch(r"[+-]?\d{1,9}", w, re.ASCII) else w for w in words]
    entries = layers if isinstance(layers, list | tuple | range) else (layers,)
    if layers is None or not all(
        isinstance(e, Integral | str) and not isinstance(e, bool) for e in entries
    ):
        return tuple(layers) if isinstance(layers, list) else layers
    return tuple(layer for entry in entries for layer in _range_of(entry))


def _range_of(entry: Any) -> Sequence[int | str]:
    """The layers of a range such as "0-5" or "-4--1"; another entry alone."""
    if not isinstance(entry, str):
        return (int(entry),)
    ends = _RANGE.fullmatch(entry)
    first, last = map(int, ends.groups()) if ends else (0, -1)
    if (first < 0) != (last < 0):  # no range, or one whose length depends on the checkpoint
        return (entry,)
    return range(first, last + 1) if first <= last else range(first, last - 1, -1)


def expand_all(layers: Sequence[int | str], num_layers: int) -> tuple[int | str, ...]:
    """LAYERS with every block instead of the word `all`."""
    return tuple(
        layer for entry in layers for layer in (range(num_layers) if entry == ALL else (entry,))
    )


def parse_layers(layers: Any) -> tuple[int | str, ...]:
    """LAYERS as a tuple, see `split_layers`; raises ConfigError if it is no list of entries."""
    entries = split_layers(layers)
    if not isinstance(entries, tuple):
        raise ConfigError(f"layers is {shown(layers)}; allowed: {LAYERS_ALLOWED}")
    return entries


# LAYERS as the type of a setting.
LayersSetting = Annotated[tuple[LayerEntry, ...], BeforeValidator(split_layers)]


def check_weights(weights: Sequence[float], layers: Sequence[int | str]) -> None:
    """Refuses weights that are not one for each layer; raises ConfigError."""
    if len(weights) != len(layers):
        raise ConfigError(
            f"weights has {len(weights)} numbers for {len(layers)} layers {list(layers)}; give one "
            "weight for each layer"
        )


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
        raise ConfigError(f"layer {entry!r} is unknown; allowed: a number, or '{EMBEDDINGS}'")
    if not -num_layers <= entry < num_layers:
        raise ConfigError(
            f"layer {entry} is outside [{-num_layers}, {num_layers - 1}]: this checkpoint has "
            f"{num_layers} layers, and '{EMBEDDINGS}' below them"
        )
    return entry % num_layers + 1

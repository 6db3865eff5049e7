"""Which weights of a layer are trained: all, none, those of the top blocks, or those of names."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import keras

from bert_features.encoder.parts import Layer
from bert_features.errors import ConfigError

Trainable: TypeAlias = bool | int | str | Sequence[str]


class TrainedLayer(Layer):
    """A layer whose `trainable` may also be a number of top blocks, or names of weights."""

    def named_weights(self) -> dict[str, keras.Variable]:
        """The weights by the part of their paths behind the layer's, from the inputs up."""
        raise NotImplementedError

    def _train(self, value: Trainable) -> None:
        weights = self.named_weights()
        names = self._names(value, weights)
        for name, weight in weights.items():
            weight.trainable = any(_begins(name, each) for each in names)

    def trained(self) -> bool | list[str]:
        """What `trainable` may be set to for the same weights: True, False or names."""
        weights = self.named_weights()
        frozen = [name for name, weight in weights.items() if not weight.trainable]
        if len(frozen) in (0, len(weights)):
            return not frozen
        names = (_shortest(name, frozen) for name in weights if name not in frozen)
        return list(dict.fromkeys(names))

    def _names(self, value: Trainable, weights: Mapping[str, keras.Variable]) -> Sequence[str]:
        parts = list(dict.fromkeys(name.partition("/")[0] for name in weights))
        blocks = [part for part in parts if part.startswith("layer_")]
        if isinstance(value, bool):
            return parts if value else ()
        if isinstance(value, int) and 1 <= value <= len(blocks):
            return parts[parts.index(blocks[-value]) :]
        names = [value] if isinstance(value, str) else value
        if isinstance(names, Sequence) and names:
            unknown = [n for n in names if not any(_begins(weight, n) for weight in weights)]
            if not unknown:
                return names
        raise ConfigError(
            f"trainable is {value!r}; allowed: True, False, a number of top blocks from 1 to "
            f"{len(blocks)}, or names of weights or what these begin with: {', '.join(parts)}"
        )


def _begins(name: str, beginning: str) -> bool:
    return f"{name}/".startswith(f"{beginning}/")


def _shortest(name: str, frozen: Sequence[str]) -> str:
    """The shortest beginning of a name that no frozen weight has."""
    words = name.split("/")
    beginnings = ("/".join(words[:end]) for end in range(1, len(words) + 1))
    return next(each for each in beginnings if not any(_begins(other, each) for other in frozen))

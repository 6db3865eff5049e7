"""What Keras passes to a layer instead of values."""

from collections.abc import Iterable
from typing import Any

import keras

from bert_features.errors import ConfigError


def is_only_built() -> bool:
    """Whether Keras calls a layer with placeholders alone, to make the weights that it lacks.

    It does so as it loads a subclassed model. The placeholders are then all float32, and it
    swallows what is raised: the layers behind one that refused them would lose their weights.
    """
    with keras.SymbolicScope() as scope:
        return scope.original_scope is not None


def refuse_legacy(inputs: Iterable[Any]) -> None:
    """Refuses the symbols of tf_keras, which no layer of Keras 3 can take; raises ConfigError."""
    if any(type(value).__module__.startswith("tf_keras") for value in inputs):
        raise ConfigError(
            "the inputs are symbols of tf_keras (TF_USE_LEGACY_KERAS), and this layer is of Keras "
            "3; make the model with `import keras`, keras.Input and keras.Model"
        )

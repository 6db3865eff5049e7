"""What Keras passes to a layer instead of values."""

from collections.abc import Iterable
from typing import Any

import keras

from bert_features.errors import ConfigError


def is_only_built() -> bool:
    """Whether Keras calls a layer only for what it makes, with placeholders instead of values.

    It calls a subclassed model so when it loads it, to make the weights of the layers inside. All
    its placeholders are then float32, whatever the model was called with, and it swallows what is
    raised: the layers behind one that refused them would lose their weights.
    """
    with keras.SymbolicScope() as scope:
        return scope.original_scope is not None


def refuse_legacy(inputs: Iterable[Any]) -> None:
    """Refuses the symbols of tf_keras, which no layer of Keras 3 can take; raises ConfigError."""
    if any(type(value).__module__.partition(".")[0] == "tf_keras" for value in inputs):
        raise ConfigError(
            "the inputs are symbols of tf_keras, Keras 2 (TF_USE_LEGACY_KERAS), and this is a layer "
            "of Keras 3; make the model with `import keras`, keras.Input and keras.Model"
        )

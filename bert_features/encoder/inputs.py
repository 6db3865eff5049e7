"""The check of what the Keras layers are called with.

Shape legend: `B` batch, `S` sequence.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_features.config.bert_config import BertConfig
from bert_features.config.packing import SPAN_BOUNDS
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


def checked_inputs(
    inputs: Any, names: Sequence[str], config: BertConfig, *, has_end: bool = True
) -> dict[str, Any]:
    """The inputs of a layer, arrays instead of lists; raises ConfigError for what it cannot take.

    Values are checked where they are known, which they are not in a graph. With `has_end`, rows
    have no more tokens than the model has positions.
    """
    if not isinstance(inputs, Mapping):
        raise ConfigError(
            f"the inputs are {type(inputs).__name__}; allowed: a dict of {', '.join(names)}"
        )
    if missing := [name for name in names if name not in inputs]:
        raise ConfigError(
            f"the inputs lack {', '.join(missing)}; they hold {', '.join(inputs) or 'nothing'}"
        )
    refuse_legacy(inputs.values())
    arrays = {name: _array(name, inputs[name]) for name in names}
    first, shape = names[0], _shape(arrays[names[0]])
    for name, value in arrays.items():
        sizes = _shape(value)
        if any(None not in pair and pair[0] != pair[1] for pair in zip(sizes, shape, strict=True)):
            raise ConfigError(f"{name} has shape {sizes} and {first} {shape}; allowed: one [B, S]")
        _check_values(name, value, shape[1] or 0, config)
    positions = config.positions
    if has_end and (shape[1] or 0) > positions:
        raise ConfigError(
            f"the inputs have {shape[1]} tokens; this model allows at most {positions}"
        )
    others = {name: value for name, value in inputs.items() if hasattr(value, "dtype")}
    return others | arrays


def _array(name: str, value: Any) -> Any:
    """An input with a dtype and the shape [B, S]."""
    kind = type(value).__name__
    if kind in ("RaggedTensor", "SparseTensor") or getattr(value, "ragged", False):
        dense = "tf.sparse.to_dense({})" if kind == "SparseTensor" else "{}.to_tensor()"
        raise ConfigError(
            f"{name} is a {kind}; pass {dense.format(name)}, and a mask of its tokens"
        )
    if not hasattr(value, "dtype"):
        try:
            value = np.asarray(value)
        except ValueError as error:
            raise ConfigError(
                f"{name} has rows of different lengths; pad them to one length, and pass a mask"
            ) from error
    dtype = getattr(value.dtype, "name", str(value.dtype))
    boolean = name == "input_mask" and dtype == "bool"
    if "int" not in dtype and not boolean and not is_only_built():
        raise ConfigError(
            f"{name} is {dtype}; allowed: integers, as from "
            f"keras.Input((S,), dtype='int32', name='{name}')"
            + ("; 1 or True for tokens, 0 for padding" if name == "input_mask" else "")
        )
    if len(_shape(value)) != 2 or _shape(value)[1] == 0:
        raise ConfigError(f"{name} has shape {_shape(value)}; allowed: [B, S], S at least 1")
    return value


def _shape(value: Any) -> tuple[int | None, ...]:
    shape = value.shape
    return (None, None) if getattr(shape, "rank", 2) is None else tuple(shape)


def _check_values(name: str, value: Any, length: int, config: BertConfig) -> None:
    """Refuses numbers that name no row of a table, and masks with others than 0 and 1."""
    types = config.type_vocab_size
    ranges = {
        "input_word_ids": (0, config.vocab_size - 1, "the ids of the vocabulary"),
        "input_mask": (0, 1, "1 for tokens and 0 for padding"),
        "input_type_ids": (0, types - 1, f"this {config.model_type} has {types}"),
        **dict.fromkeys(SPAN_BOUNDS, (-1, length, "places in the row, or -1")),
    }
    if name not in ranges or (name == "input_type_ids" and types < 1):
        return
    try:
        values = np.asarray(value)  # a tensor of a graph and a tracer of JAX have none
    except Exception:
        return
    low, high, meaning = ranges[name]
    least, most = int(values.min(initial=low)), int(values.max(initial=low))
    if least < low or most > high:
        received = least if least < low else most
        raise ConfigError(f"{name} has {received}; allowed: {low} to {high} ({meaning})")

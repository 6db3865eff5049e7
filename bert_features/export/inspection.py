"""The signature of a SavedModel, read from its metadata: the model is not loaded."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from bert_features.errors import OutputError
from bert_features.export.checks import SAVED_MODEL

_SERVED = "serving_default"


@dataclass(frozen=True)
class TensorDescription:
    """An input or an output.

    Attributes:
      dtype: its data type, as `float32`; `string` for texts.
      shape: its dimensions, None for one of any size; None for any shape.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True)
class SignatureDescription:
    """The signature `serving_default` of a SavedModel: its inputs and outputs, by name."""

    inputs: tuple[TensorDescription, ...]
    outputs: tuple[TensorDescription, ...]


def read_signature(path: str | Path) -> SignatureDescription | None:
    """Reads the signature of a SavedModel; None if it has no `serving_default`.

    Raises:
      OutputError: its metadata cannot be read.
    """
    file = Path(path) / SAVED_MODEL
    model = saved_model_pb2.SavedModel()
    try:
        model.ParseFromString(file.read_bytes())
    except OSError as error:
        raise OutputError(f"cannot read {file}: {error.strerror}") from error
    except DecodeError as error:
        raise OutputError(f"{file} is damaged: {error}") from error
    for graph in model.meta_graphs:
        if _SERVED in graph.signature_def:
            served = graph.signature_def[_SERVED]
            return SignatureDescription(_describe(served.inputs), _describe(served.outputs))
    return None


def _describe(tensors: Any) -> tuple[TensorDescription, ...]:
    """The tensors of one side of a signature: a map from name to `TensorInfo`."""
    return tuple(
        TensorDescription(name, tf.dtypes.as_dtype(info.dtype).name, _shape(info.tensor_shape))
        for name, info in sorted(tensors.items())
    )


def _shape(shape: Any) -> tuple[int | None, ...] | None:
    if shape.unknown_rank:
        return None
    return tuple(dimension.size if dimension.size >= 0 else None for dimension in shape.dim)

"""The last step of every vector, on the device and, for vectors of windows, on the host."""

from typing import Any

from bert_features.config.features import OutputSpec

MIN_NORM = 1e-12  # scaling to length 1 divides by at least this


def finish(vectors: Any, output: OutputSpec, library: Any) -> Any:
    """Cuts vectors to the width of an output, and scales them if it is normalized; parts are cut.

    Args:
      vectors: floats [..., D or more].
      output: the output.
      library: what has `sum`, `square`, `maximum` and `sqrt` of arrays: NumPy or `keras.ops`.

    Returns:
      [..., D].
    """
    vectors = vectors[..., : output.width]
    if output.is_part:
        return vectors
    return unit_length(vectors, library) if output.normalize else vectors


def unit_length(vectors: Any, library: Any) -> Any:
    """Vectors [..., D] of length 1, or zeros."""
    squares = library.sum(library.square(vectors), axis=-1, keepdims=True)
    # Before the root, whose gradient at 0 is not a number under XLA.
    return vectors / library.sqrt(library.maximum(squares, MIN_NORM**2))

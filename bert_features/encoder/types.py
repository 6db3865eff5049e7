"""Names for types that no framework shares."""

from typing import Any, TypeAlias

# Whatever Keras' backend calls a tensor, symbolic ones included; docstrings give shape and dtype.
Tensor: TypeAlias = Any

"""What extraction hands to the writers and what readers give back.

Dimensions: `N` examples, `T` real tokens of all of them together ([CLS] and [SEP] included, padding
not), `D` width of a feature.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class FeatureRecord:
    """The features of one example.

    Attributes:
      unique_id: the example's number in the input, from 0.
      tokens: its pieces, [CLS] and [SEP] included.
      token_ids: int32 [tokens], or None where the format (the official JSON lines) has no place
        for them.
      features: name -> float16 or float32 [tokens, D].
    """

    unique_id: int
    tokens: tuple[str, ...]
    token_ids: np.ndarray | None
    features: dict[str, np.ndarray]


@dataclass(frozen=True)
class FeatureBatch:
    """The features of several examples in input order, as flat columns.

    Attributes:
      unique_ids: int64 [N].
      row_splits: int64 [N + 1]; the tokens of example i lie at row_splits[i]:row_splits[i + 1].
      token_ids: int32 [T].
      tokens: T pieces.
      features: name -> float16 or float32 [T, D].
    """

    unique_ids: np.ndarray
    row_splits: np.ndarray
    token_ids: np.ndarray
    tokens: list[str]
    features: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.unique_ids)

    def records(self) -> Iterator[FeatureRecord]:
        """The same examples one by one; the arrays are views of the batch's."""
        for i, unique_id in enumerate(self.unique_ids):
            row = slice(int(self.row_splits[i]), int(self.row_splits[i + 1]))
            yield FeatureRecord(
                unique_id=int(unique_id),
                tokens=tuple(self.tokens[row]),
                token_ids=self.token_ids[row],
                features={name: values[row] for name, values in self.features.items()},
            )


@dataclass(frozen=True)
class Feature:
    """One named feature of an output file: the layers in it and how they were combined.

    Attributes:
      name: `layer_output_0`, … as the official script has them, or a name of the user's.
      layers: the LAYERS entries in it: block numbers, or the word `embeddings`.
      combine: `none` for a single layer, else how `layers` became one vector.
      width: D, values per token.
      dtype: `float16` or `float32`.
    """

    name: str
    layers: tuple[int | str, ...]
    combine: str
    width: int
    dtype: str

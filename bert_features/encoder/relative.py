"""Relative position biases as MPNet has them (Song et al. 2020, arXiv:2004.09297).

Shape legend: `B` batch, `S` sequence, `A` heads, `R` rows of the table, `G` rows side by side.
"""

from typing import Any

import numpy as np
from keras import ops

from bert_features.config.bert_config import BertConfig
from bert_features.encoder import kernels
from bert_features.encoder.attention import lanes
from bert_features.encoder.forms import chosen_forms
from bert_features.encoder.parts import Part, Table
from bert_features.encoder.types import Tensor

# The smallest distance of each row of the table. Keys after the query have rows of their own.
_FIRST = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91])


class RelativeBias(Part):
    """What attention adds to a score by the distance of key and query: the same in all layers.

    Its rows are those of T5 (Raffel et al. 2020, arXiv:1910.10683): 16 for each direction, the
    smallest distances with one each, and the last for all from 91 tokens on.
    """

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        rows = config.relative_attention_num_buckets or 2 * len(_FIRST)
        self.rows = self.kernel("relative_attention_bias", rows, config.num_attention_heads)

    def call(self, mask: Tensor, text_numbers: Tensor | None = None) -> Tensor:
        """int32 [B, S] each -> [A, S, S], from queries to keys; on a TPU [A, G * S, G * S].

        As a distance is that of tokens of one text, packed rows and rows side by side have the
        same: attention leaves other texts out.
        """
        length = ops.shape(mask)[1]
        if chosen_forms().on_tpu and text_numbers is None:
            length = length * lanes.rows_side_by_side(mask)
        distance = ops.arange(2 * length, dtype="int32") - (length - 1)  # of key from query
        beyond = ops.expand_dims(ops.abs(distance), 1) >= _FIRST
        row = ops.sum(ops.cast(beyond, "int32"), axis=1) - 1
        row = ops.where(distance > 0, row + len(_FIRST), row)
        chosen = ops.one_hot(row, self.rows.shape[0], axis=0, dtype=self.compute_dtype)
        distance_biases = kernels.matmul(ops.transpose(self.rows), chosen)  # [A, 2 * S]
        # Rows that begin one later each: cut a row of 2 S numbers, repeated, into rows of 2 S - 1.
        repeated = ops.tile(distance_biases, (1, length))[:, : length * (2 * length - 1)]
        shifted = ops.reshape(repeated, (self.rows.shape[1], length, 2 * length - 1))
        return shifted[:, :, length - 1 :]

    def table(self) -> Table:
        """Its variable with the canonical name of its weight."""
        return [(self.rows, ["encoder/relative_attention_bias"])]

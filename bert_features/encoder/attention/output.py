"""Attention as an output: the wanted heads, the row of [CLS], words.

Words as in Clark et al. 2019, "What Does BERT Look At?" (arXiv:1906.04341): attention to a word is
the sum over its pieces, and attention from a word the mean over its pieces.

Shape legend: `B` batch, `S` sequence, `A` heads, `D` wanted heads, `W` words of a row, W = S.
"""

from collections.abc import Mapping

from keras import ops

from bert_features.config.features import OutputSpec
from bert_features.encoder.pooling import tokens_of_words
from bert_features.encoder.types import Tensor


def show_attention(weights: Tensor, batch: Mapping[str, Tensor], output: OutputSpec) -> Tensor:
    """An output of kind `attention`, computed in float32 and cast at the end.

    The weights are those of its layer, [B, A, S, S], from each token to each token; the batch is
    that of `pooling.compute_outputs`. The result is for pairs [B, D, S, S] or [B, D, W, W]; of
    [CLS] alone [B, S, D] or [B, W, D]. Rows and columns of padding, and behind the words of a row,
    are of no use.
    """
    weights = ops.cast(weights, "float32")
    if not output.is_paired:
        weights = weights[:, :, :1]
    if isinstance(output.heads[0], int) and output.heads != tuple(range(weights.shape[1])):
        weights = ops.stack([weights[:, head] for head in output.heads], axis=1)
    if output.heads == ("mean",):
        weights = ops.mean(weights, axis=1, keepdims=True)
    if output.unit == "word":
        pieces = ops.expand_dims(tokens_of_words(batch), 1)
        weights = ops.matmul(weights, ops.transpose(pieces, (0, 1, 3, 2)))
        if output.is_paired:
            counts = ops.sum(pieces, axis=-1, keepdims=True)
            weights = ops.matmul(pieces / ops.maximum(counts, 1.0), weights)
    if output.heads == ("max",):
        weights = ops.max(weights, axis=1, keepdims=True)
    if not output.is_paired:
        weights = ops.transpose(weights[:, :, 0], (0, 2, 1))
    return ops.cast(weights, output.dtype)

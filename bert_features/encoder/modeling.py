"""The BERT encoder (Devlin et al. 2018, arXiv:1810.04805) as a Keras 3 layer on `keras.ops`.

Post-layer-norm Transformer blocks, as in google-research/bert's `modeling.py`, on any backend of
Keras.

Shape legend: `B` batch, `S` sequence, `H` hidden_size, `A` heads, `D` head size, `I`
intermediate_size, `L` blocks, `N` = B * S. Dense layers see [N, …]: every backend fuses bias and
activation best with plain matrix products.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import keras
import numpy as np
from keras import ops

from bert_features.config.bert_config import BertConfig
from bert_features.config.packing import MAX_SEGMENTS, POSITION_IDS, SEGMENT_IDS
from bert_features.encoder import kernels, lanes
from bert_features.encoder.forms import chosen_forms
from bert_features.encoder.outputs import EncoderOutputs
from bert_features.encoder.parts import Dense, LayerNorm, Part, make_dropout
from bert_features.encoder.segments import tokens_of_segments, within_segments
from bert_features.encoder.types import Tensor
from bert_features.errors import CheckpointError, ConfigError

QKV = ("query", "key", "value")


class Embeddings(Part):
    """The normalised sum of word, position and token-type embeddings."""

    def __init__(self, config: BertConfig, *, use_one_hot: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        size = config.hidden_size
        self.use_one_hot = use_one_hot
        self.words = self.kernel("word_embeddings", config.vocab_size, size)
        self.positions = self.kernel("position_embeddings", config.max_position_embeddings, size)
        self.types = self.kernel("token_type_embeddings", config.type_vocab_size, size)
        self.norm = LayerNorm(
            size,
            config.layer_norm_eps,
            initializer=self.initializer,
            dtype=self.dtype_policy,
            name="LayerNorm",
        )

    def call(
        self, word_ids: Tensor, type_ids: Tensor, position_ids: Tensor | None = None
    ) -> Tensor:
        """int32 [B, S] each -> [B, S, H]; without positions they count from 0 in each row."""
        words = self._rows(self.words, word_ids, one_hot=self.use_one_hot)
        positions = ops.convert_to_tensor(self.positions)[: ops.shape(word_ids)[1]]
        if position_ids is not None:
            positions = self._rows(positions, position_ids, one_hot=chosen_forms().on_tpu)
        # About two rows: a small matrix product is faster than a gather on every device.
        types = self._rows(self.types, type_ids, one_hot=True)
        return self.norm(words + positions + types)

    def _rows(self, table: Any, ids: Tensor, *, one_hot: bool) -> Tensor:
        if not one_hot:
            return ops.take(table, ids, axis=0)
        return kernels.matmul(ops.one_hot(ids, table.shape[0], dtype=self.compute_dtype), table)


class SelfAttention(Part):
    """Multi-head attention with one matrix product, or three, for query, key and value."""

    def __init__(
        self, config: BertConfig, *, dropout: float, fuse_qkv: bool, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.heads, self.head_size = config.num_attention_heads, config.head_size
        size = config.hidden_size
        part = {"initializer": self.initializer, "dtype": self.dtype_policy}
        if fuse_qkv:
            self.projections = [Dense(size, 3 * size, name="qkv", **part)]
        else:
            self.projections = [Dense(size, size, name=name, **part) for name in QKV]
        self.output_dense = Dense(size, size, name="output_dense", **part)
        self.dropout = make_dropout(dropout, self.dtype_policy)

    def call(
        self,
        x: Tensor,
        mask: Tensor,
        segments: Tensor | None = None,
        residual: Tensor | None = None,
        training: bool = False,
    ) -> Tensor:
        """[N, H], int32 [B, S] each -> [N, H]; on a TPU [B', S', H] instead of [N, H].

        With a residual of that shape, it is part of the result.
        """
        if self.dropout is None and chosen_forms().on_tpu:
            attended = self._in_lanes(x, mask, segments)
            return attended if residual is None else residual + attended
        if segments is not None:
            mask = within_segments(segments)
        by_head = self.dropout is None and chosen_forms().long_rows
        # query, key, value: [B, A, S, D], or [A, B, S, D] head by head
        query, key, value = self._heads(x, mask, (2, 3, 0, 1, 4) if by_head else (2, 0, 3, 1, 4))
        scale = self.head_size**-0.5
        if by_head:
            context = kernels.attend_by_head(query, key, value, mask, scale)
            return self.output_dense(kernels.reshape_like(context, x), residual)
        if self.dropout is None:
            context = kernels.attend(query, key, value, mask, scale)
        else:
            weights = kernels.attention_weights(query, key, mask, scale)
            context = kernels.matmul(self.dropout(weights, training=training), value)
        context = kernels.transpose(context, (0, 2, 1, 3))  # [B, S, A, D]
        return self.output_dense(kernels.reshape_like(context, x), residual)

    def _heads(self, x: Tensor, mask: Tensor, order: tuple[int, ...]) -> list[Tensor]:
        """Query, key and value of [N, H], each of four dimensions.

        Args:
          x: [N, H].
          mask: int32 [B, S] or [B, S, S].
          order: what becomes of [B, S, 3, A, D]; the 3 comes first.
        """
        batch, length = ops.shape(mask)[:2]
        parts = []
        for projection in self.projections:
            joined = ops.reshape(projection(x), (batch, length, -1, self.heads, self.head_size))
            parts += ops.unstack(kernels.transpose(joined, order), 3 // len(self.projections))
        return parts

    def _in_lanes(self, x: Tensor, mask: Tensor, segments: Tensor | None) -> Tensor:
        """[B', S', H], int32 [B, S] -> [B', S', H] with the same tokens, whatever B' and S' are.

        By `lanes.attend`.
        """
        shape, (batch, length) = ops.shape(x), ops.shape(mask)
        beside = 1 if segments is not None else lanes.rows_side_by_side(mask)
        batch, length = batch // beside, length * beside
        x = ops.reshape(x, (batch, length, shape[-1]))
        query, key, value = (
            ops.reshape(
                lanes.project_in(x, weight, bias),
                (batch, self.heads, self.head_size, length),
            )
            for weight, bias in self._query_key_value()
        )
        context = lanes.attend(query, key, value, mask, self.head_size**-0.5, segments)
        context = ops.reshape(context, (batch, -1, length))
        output = self.output_dense
        weight, bias = (ops.convert_to_tensor(v) for v in (output.weight, output.bias))
        return ops.reshape(lanes.project_out(context, weight, bias), shape)

    def _query_key_value(self) -> list[tuple[Tensor, Tensor]]:
        """Weight [H, H] and bias [H] of query, key and value, from one variable or three."""
        weights, biases = (
            [part for v in variables for part in ops.split(v, 3 // len(self.projections), axis=-1)]
            for variables in zip(*((p.weight, p.bias) for p in self.projections), strict=True)
        )
        return list(zip(weights, biases, strict=True))


class Block(Part):
    """One Transformer block: attention and feed-forward, each with residual and layer norm."""

    def __init__(
        self, config: BertConfig, *, use_dropout: bool, fuse_qkv: bool, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        size, inner = config.hidden_size, config.intermediate_size
        part = {"initializer": self.initializer, "dtype": self.dtype_policy}
        attention_rate = config.attention_probs_dropout_prob if use_dropout else 0.0
        hidden_rate = config.hidden_dropout_prob if use_dropout else 0.0
        self.attention = SelfAttention(
            config, dropout=attention_rate, fuse_qkv=fuse_qkv, name="attention", **part
        )
        self.attention_norm = LayerNorm(size, config.layer_norm_eps, name="attention_norm", **part)
        self.intermediate = Dense(size, inner, config.hidden_act, name="intermediate", **part)
        self.output_dense = Dense(inner, size, name="output_dense", **part)
        self.output_norm = LayerNorm(size, config.layer_norm_eps, name="output_norm", **part)
        self.dropout = make_dropout(hidden_rate, self.dtype_policy)

    def call(
        self, x: Tensor, mask: Tensor, segments: Tensor | None = None, training: bool = False
    ) -> Tensor:
        """[N, H], int32 [B, S] each -> [N, H]."""
        attended = self.attention(x, mask, segments, self._residual(x), training=training)
        x = self.attention_norm(self._sum(x, attended, training))
        transformed = self.output_dense(self.intermediate(x), self._residual(x))
        return self.output_norm(self._sum(x, transformed, training))

    def _residual(self, x: Tensor) -> Tensor | None:
        """What a dense layer adds to its result: the residual, if no dropout comes before it."""
        return x if self.dropout is None else None

    def _sum(self, x: Tensor, transformed: Tensor, training: bool) -> Tensor:
        """The residual and the result of a dense layer that was given `_residual`."""
        if self.dropout is None:
            return transformed
        return x + self.dropout(transformed, training=training)


class BertEncoder(keras.layers.Layer):
    """The encoder of a BERT checkpoint, with the output of every block.

    Args:
      config: the architecture.
      num_blocks: number of blocks to build and compute, from the first; by default all.
      with_pooler: whether to compute `pooled_output`; needs all blocks.
      use_one_hot_embeddings: look words up by a matrix product instead of a gather.
      use_dropout: apply the config's dropout rates when called with `training=True`.
      fuse_qkv: keep the weights of query, key and value of a block in one variable, for one matrix
        product instead of three.
      initializer: for kernels and embeddings; by default the truncated normal of the BERT paper.
      dtype: a Keras dtype policy: `float32`, `mixed_bfloat16` (float32 weights, bfloat16
        arithmetic, layer norm and softmax in float32) or `bfloat16`.
      name: the layer's name.
      **kwargs: further arguments of a Keras layer.

    Raises:
      ConfigError: `num_blocks` is not one of 0 … num_hidden_layers, or leaves the pooler without
        its input.
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        num_blocks: int | None = None,
        with_pooler: bool = False,
        use_one_hot_embeddings: bool = False,
        use_dropout: bool = False,
        fuse_qkv: bool = True,
        initializer: str | keras.initializers.Initializer | None = None,
        dtype: Any = None,
        name: str = "bert",
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype=dtype, name=name, **kwargs)
        self.num_blocks = _checked_num_blocks(config, num_blocks, with_pooler=with_pooler)
        self.config = config
        self.use_dropout = use_dropout
        part = {
            "initializer": keras.initializers.get(initializer)
            or keras.initializers.TruncatedNormal(stddev=config.initializer_range),
            "dtype": self.dtype_policy,
        }
        self.embeddings = Embeddings(
            config, use_one_hot=use_one_hot_embeddings, name="embeddings", **part
        )
        rate = config.hidden_dropout_prob if use_dropout else 0.0
        self.embeddings_dropout = make_dropout(rate, self.dtype_policy)
        self.blocks = [
            Block(config, use_dropout=use_dropout, fuse_qkv=fuse_qkv, name=f"layer_{i}", **part)
            for i in range(self.num_blocks)
        ]
        size = config.hidden_size
        self.pooler = Dense(size, size, "tanh", name="pooler", **part) if with_pooler else None
        self.built = True

    def call(self, inputs: Mapping[str, Tensor], training: bool = False) -> dict[str, Any]:
        """Encodes a batch.

        Args:
          inputs: `input_word_ids`, `input_mask` (1 = real) and `input_type_ids`, int32 [B, S]
            each; S at most max_position_embeddings. Packed rows also have `segment_ids` and
            `position_ids`, see `config.packing`; then S may be larger.
          training: whether dropout applies (only with `use_dropout`).

        Returns:
          A dict, which `EncoderOutputs.from_dict` reads: `embedding_output` [B, S, H], the sum
          below the first block; `encoder_outputs`, a list of L [B, S, H], the output of each block;
          `sequence_output` [B, S, H], the last of them; and, with the pooler, `pooled_output`
          [B, H], or [B, MAX_SEGMENTS, H] of packed rows. All have the compute dtype.
        """
        word_ids, mask = inputs["input_word_ids"], inputs["input_mask"]
        segments, positions = inputs.get(SEGMENT_IDS), inputs.get(POSITION_IDS)
        shape = ops.shape(word_ids)
        embedded = self.embeddings(word_ids, inputs["input_type_ids"], positions)
        if self.embeddings_dropout is not None:
            embedded = self.embeddings_dropout(embedded, training=training)
        size = self.config.hidden_size
        # A TPU keeps [B, S, H]: after products of [N, H] its compiler would move attention's input.
        if chosen_forms().on_tpu:
            x = lanes.joined_rows(embedded)
        else:
            x = ops.reshape(embedded, (-1, size))
        outputs = []
        for block in self.blocks:
            x = block(x, mask, segments, training=training)
            outputs.append(ops.reshape(x, (*shape, size)))
        result = EncoderOutputs(embedded, outputs)
        if self.pooler is not None:
            if segments is None:
                pooled = self.pooler(result.sequence_output[:, 0])
            else:
                first = _first_tokens(result.sequence_output, segments, positions)
                pooled = self.pooler(ops.reshape(first, (-1, size)))  # dense layers see [N, H]
                pooled = ops.reshape(pooled, ops.shape(first))
            result = replace(result, pooled_output=pooled)
        return result.as_dict()

    def compute_output_spec(
        self, inputs: Mapping[str, keras.KerasTensor], training: bool = False
    ) -> dict[str, Any]:
        """The shapes and dtypes of `call`'s outputs."""
        del training
        batch, length = inputs["input_word_ids"].shape
        size = self.config.hidden_size
        of_row = (MAX_SEGMENTS,) if SEGMENT_IDS in inputs else ()

        def spec(*shape: int | None) -> keras.KerasTensor:
            return keras.KerasTensor(shape, self.compute_dtype)

        return EncoderOutputs(
            spec(batch, length, size),
            [spec(batch, length, size) for _ in self.blocks],
            None if self.pooler is None else spec(batch, *of_row, size),
        ).as_dict()

    def load_weights_dict(self, weights: Mapping[str, np.ndarray]) -> None:
        """Assigns weights.

        Weights of blocks and of a pooler that this encoder does not compute are ignored.

        Args:
          weights: by canonical name, as `read_weights` returns them.

        Raises:
          CheckpointError: a weight is missing or has another shape.
        """
        for variable, names in self._variables():
            missing = [name for name in names if name not in weights]
            if missing:
                raise CheckpointError(f"weights lack {', '.join(missing)}")
            parts = [weights[name] for name in names]
            value = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
            if value.shape != tuple(variable.shape):
                raise CheckpointError(
                    f"{' + '.join(names)} is {value.shape}; this config needs {variable.shape}"
                )
            variable.assign(value)

    def weights_dict(self) -> dict[str, np.ndarray]:
        """The weights as float32 arrays by canonical name, as `load_weights_dict` takes them."""
        weights: dict[str, np.ndarray] = {}
        for variable, names in self._variables():
            value = ops.convert_to_numpy(ops.cast(variable, "float32"))
            weights |= zip(names, np.split(value, len(names), axis=-1), strict=True)
        return weights

    def weight_names(self) -> list[list[str]]:
        """For each of `trainable_variables` the canonical names of the weights that it holds."""
        names = {id(variable): canonical for variable, canonical in self._variables()}
        return [names[id(variable)] for variable in self.trainable_variables]

    def _variables(self) -> list[tuple[keras.Variable, list[str]]]:
        """Each variable with the canonical names of the weights joined along its last axis."""
        embeddings = self.embeddings
        table = [
            (embeddings.words, ["embeddings/word_embeddings"]),
            (embeddings.positions, ["embeddings/position_embeddings"]),
            (embeddings.types, ["embeddings/token_type_embeddings"]),
            *embeddings.norm.table("embeddings/LayerNorm"),
        ]
        for i, block in enumerate(self.blocks):
            scope = f"encoder/layer_{i}"
            qkv = [f"{scope}/attention/self/{part}" for part in QKV]
            attention = block.attention
            scopes = [qkv] if len(attention.projections) == 1 else [[part] for part in qkv]
            for projection, joined in zip(attention.projections, scopes, strict=True):
                table += projection.table(*joined)
            table += [
                *attention.output_dense.table(f"{scope}/attention/output/dense"),
                *block.attention_norm.table(f"{scope}/attention/output/LayerNorm"),
                *block.intermediate.table(f"{scope}/intermediate/dense"),
                *block.output_dense.table(f"{scope}/output/dense"),
                *block.output_norm.table(f"{scope}/output/LayerNorm"),
            ]
        if self.pooler is not None:
            table += self.pooler.table("pooler/dense")
        return table


def _first_tokens(x: Tensor, segments: Tensor, positions: Tensor) -> Tensor:
    """The first token of each text of packed rows: [B, S, H] -> [B, MAX_SEGMENTS, H]."""
    first = ops.logical_and(tokens_of_segments(segments), ops.expand_dims(positions, 1) == 0)
    return kernels.matmul(ops.cast(first, x.dtype), x)


def _checked_num_blocks(config: BertConfig, num_blocks: int | None, *, with_pooler: bool) -> int:
    depth = config.num_hidden_layers
    if num_blocks is None:
        return depth
    if not 0 <= num_blocks <= depth:
        raise ConfigError(
            f"num_blocks is {num_blocks}; this config has {depth} blocks, allowed: 0 to {depth}"
        )
    if with_pooler and num_blocks != depth:
        raise ConfigError(f"the pooler needs all {depth} blocks; num_blocks is {num_blocks}")
    return num_blocks

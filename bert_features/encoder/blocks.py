"""A Transformer block: attention and the feed-forward part, each with residual and layer norm.

Shape legend: `B` batch, `S` sequence, `H` hidden_size, `A` heads, `D` head size, `I`
intermediate_size, `N` = B * S. Dense layers see [N, …]: every backend fuses bias and activation
best with plain matrix products.
"""

from typing import Any

from keras import ops

from bert_features.config.bert_config import BertConfig
from bert_features.encoder import kernels, lanes
from bert_features.encoder.forms import chosen_forms
from bert_features.encoder.parts import Dense, LayerNorm, Part, Table, make_dropout
from bert_features.encoder.rotary import Rotation
from bert_features.encoder.segments import blocks_of_band, is_banded, within_segments, within_window
from bert_features.encoder.types import Tensor

QKV = ("query", "key", "value")


class SelfAttention(Part):
    """Multi-head attention with one matrix product, or three, for query, key and value."""

    def __init__(
        self,
        config: BertConfig,
        *,
        dropout: float,
        fuse_qkv: bool,
        window: int | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.heads, self.head_size = config.num_attention_heads, config.head_size
        self.window, self.joined = window, config.joins_matrices
        size = config.hidden_size
        part = {"initializer": self.initializer, "dtype": self.dtype_policy}
        part["has_bias"] = config.has_dense_biases
        if fuse_qkv or config.joins_matrices:
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
        rotation: Rotation | None = None,
        nearness: Tensor | None = None,
        training: bool = False,
        shown: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """[N, H], int32 [B, S] each -> [N, H]; on a TPU [B', S', H] instead of [N, H].

        With a residual of that shape, it is part of the result. The second result is None, or if
        `shown` the weights of attention, [B, A, S, S]; that takes the plain form on any device.
        The nearness comes from `RelativeBias`.
        """
        fused = self.dropout is None and not shown
        if fused and chosen_forms().on_tpu:
            attended = self._in_lanes(x, mask, segments, rotation, nearness)
            return attended if residual is None else residual + attended, None
        shape, size = ops.shape(x), self.heads * self.head_size
        if shown and chosen_forms().on_tpu:
            x = ops.reshape(x, (-1, size))
            residual = None if residual is None else ops.reshape(residual, (-1, size))
            if nearness is not None:  # of rows side by side
                length = ops.shape(mask)[1]
                nearness = nearness[:, :length, :length]
        by_head = fused and chosen_forms().long_rows
        banded = not shown and is_banded(mask, self.window, long_rows=by_head)
        real = mask
        if segments is not None and not banded:
            mask = within_segments(segments)
        if self.window is not None and not banded:
            mask = within_window(mask, self.window)
        # query, key, value: [B, A, S, D], or [A, B, S, D] head by head and in blocks of a band
        first = by_head or banded
        query, key, value = self._heads(x, mask, (2, 3, 0, 1, 4) if first else (2, 0, 3, 1, 4))
        if rotation is not None:
            query, key = (rotation.turned(x, heads_first=first) for x in (query, key))
        if self.window is not None and banded:
            query, key, value, mask = blocks_of_band(
                query, key, value, mask, segments, self.window, heads_first=by_head
            )
        scale, weights = self.head_size**-0.5, None
        if by_head:
            context = kernels.attend_by_head(query, key, value, mask, scale, nearness)
        elif fused:
            context = kernels.attend(query, key, value, mask, scale, nearness)
        else:
            weights = kernels.attention_weights(query, key, mask, scale, nearness)
            kept = weights if self.dropout is None else self.dropout(weights, training=training)
            context = kernels.matmul(kept, value)
        if not by_head:
            context = kernels.transpose(context, (0, 2, 1, 3))  # [B, S, A, D]
        if banded:
            batch, length = ops.shape(real)[:2]
            context = ops.reshape(context, (batch, -1, x.shape[-1]))[:, :length]
        attended = self.output_dense(kernels.reshape_like(context, x), residual)
        return (ops.reshape(attended, shape) if chosen_forms().on_tpu else attended), weights

    def scopes(self, scope: str) -> list[list[str]]:
        """For each projection the canonical scopes of the weights that it holds."""
        if self.joined:
            return [[f"{scope}/qkv"]]
        names = [f"{scope}/{part}" for part in QKV]
        return [names] if len(self.projections) == 1 else [[name] for name in names]

    def _heads(self, x: Tensor, mask: Tensor, order: tuple[int, ...]) -> list[Tensor]:
        """Query, key and value of [N, H]: [B, S, 3, A, D] by `order`, which has the 3 first."""
        batch, length = ops.shape(mask)[:2]
        parts = []
        for projection in self.projections:
            joined = ops.reshape(projection(x), (batch, length, -1, self.heads, self.head_size))
            parts += ops.unstack(kernels.transpose(joined, order), 3 // len(self.projections))
        return parts

    def _in_lanes(
        self,
        x: Tensor,
        mask: Tensor,
        segments: Tensor | None,
        rotation: Rotation | None,
        nearness: Tensor | None,
    ) -> Tensor:
        """By `lanes.attend`: [B', S', H], int32 [B, S] -> [B', S', H], of the same tokens."""
        shape, (batch, length) = ops.shape(x), ops.shape(mask)
        banded = is_banded(mask, self.window) and not chosen_forms().pallas
        beside = 1 if segments is not None or banded else lanes.rows_side_by_side(mask)
        batch, length = batch // beside, length * beside
        x = ops.reshape(x, (batch, length, shape[-1]))
        query, key, value = (
            ops.reshape(projected, (batch, self.heads, self.head_size, length))
            for projected in self._in_last_dimension(x)
        )
        if rotation is not None:
            query, key = (rotation.turned_in_lanes(x) for x in (query, key))
        scale = self.head_size**-0.5
        if self.window is not None and banded:
            query, key, value = (ops.transpose(x, (1, 0, 3, 2)) for x in (query, key, value))
            query, key, value, mask = blocks_of_band(query, key, value, mask, segments, self.window)
            context = kernels.attend(query, key, value, mask, scale)  # [B * N, A, T, D]
            context = ops.reshape(context, (batch, -1, *context.shape[1:]))
            context = ops.transpose(context, (0, 2, 4, 1, 3))
            context = ops.reshape(context, (batch, shape[-1], -1))[:, :, :length]
        else:
            context = lanes.attend(query, key, value, mask, scale, segments, self.window, nearness)
            context = ops.reshape(context, (batch, -1, length))
        output = self.output_dense
        projected = ops.einsum("bms,mh->bsh", context, ops.convert_to_tensor(output.weight))
        return ops.reshape(projected + ops.convert_to_tensor(output.bias_for(x)), shape)

    def _in_last_dimension(self, x: Tensor) -> list[Tensor]:
        """Query, key and value with the tokens last, from one variable or three: [B, H, S] each."""
        parts, projected = 3 // len(self.projections), []
        for projection in self.projections:
            weights = ops.split(projection.weight, parts, axis=-1)
            biases = ops.split(projection.bias_for(x), parts, axis=-1)
            for weight, bias in zip(weights, biases, strict=True):
                projected.append(ops.einsum("bsh,hm->bms", x, weight) + bias[:, None])
        return projected


class Block(Part):
    """One Transformer block: attention and feed-forward, each with residual and layer norm.

    Args:
      config: the architecture.
      number: the place of the block among the blocks.
      use_dropout: see `BertEncoder`.
      fuse_qkv: see `BertEncoder`.
      **kwargs: arguments of a `Part`.
    """

    def __init__(
        self, config: BertConfig, number: int, *, use_dropout: bool, fuse_qkv: bool, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        size, inner = config.hidden_size, config.intermediate_size
        part = {"initializer": self.initializer, "dtype": self.dtype_policy}
        self.theta, window = config.attention_of(number)
        rate = config.attention_probs_dropout_prob if use_dropout else 0.0
        self.attention = SelfAttention.named(
            config, dropout=rate, fuse_qkv=fuse_qkv, window=window, name="attention", **part
        )
        self.norm_first = config.norm_first
        self.attention_norm = None
        if number > 0 or not config.norm_first:
            self.attention_norm = LayerNorm(config, size, name="attention_norm", **part)
        self.halves = ("gate", "up") if config.gated and not config.joins_matrices else ("dense",)
        part["has_bias"] = config.biases == "all"
        self.up = None
        if self.halves == ("gate", "up") and not fuse_qkv:
            self.up = Dense(size, inner, name="up", **part)
        self.gate = config.hidden_act if config.gated and self.up is None else None
        self.intermediate = (
            Dense(size, 2 * inner, name="intermediate", **part)
            if self.gate is not None
            else Dense(size, inner, config.hidden_act, name="intermediate", **part)
        )
        part["has_bias"] = config.has_dense_biases
        self.output_dense = Dense(inner, size, name="output_dense", **part)
        del part["has_bias"]
        self.output_norm = LayerNorm(config, size, name="output_norm", **part)
        rate = config.hidden_dropout_prob if use_dropout else 0.0
        self.dropout = make_dropout(rate, self.dtype_policy)

    def call(
        self,
        x: Tensor,
        mask: Tensor,
        segments: Tensor | None = None,
        rotation: Rotation | None = None,
        nearness: Tensor | None = None,
        training: bool = False,
        shown: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """[N, H], int32 [B, S] each -> [N, H], and what `SelfAttention.call` shows."""
        attended, weights = self.attention(
            self._normal(x, self.attention_norm, first=True),
            mask,
            segments,
            self._residual(x),
            rotation=rotation,
            nearness=nearness,
            training=training,
            shown=shown,
        )
        x = self._normal(self._sum(x, attended, training), self.attention_norm, first=False)
        normal = self._normal(x, self.output_norm, first=True)
        inner = self.intermediate(normal)
        if self.gate is not None:
            inner = kernels.gated(inner, self.gate)
        if self.up is not None:
            inner = inner * self.up(normal)
        transformed = self.output_dense(inner, self._residual(x))
        x = self._sum(x, transformed, training)
        return self._normal(x, self.output_norm, first=False), weights

    def _normal(self, x: Tensor, norm: LayerNorm | None, *, first: bool) -> Tensor:
        """The result of a norm whose place is here: `first`, or after the residual; else x."""
        return x if norm is None or first != self.norm_first else norm(x)

    def _residual(self, x: Tensor) -> Tensor | None:
        """What a dense layer adds to its result: the residual, if no dropout comes before it."""
        return x if self.dropout is None else None

    def _sum(self, x: Tensor, transformed: Tensor, training: bool) -> Tensor:
        """The residual and the result of a dense layer that was given `_residual`."""
        if self.dropout is None:
            return transformed
        return x + self.dropout(transformed, training=training)

    def table(self, scope: str) -> Table:
        """Its variables with the canonical names of their weights."""
        attention, norm = self.attention, self.attention_norm
        scopes = attention.scopes(f"{scope}/attention/self")
        halves = [f"{scope}/intermediate/{half}" for half in self.halves]
        projections = zip(attention.projections, scopes, strict=True)
        return [
            *(row for projection, joined in projections for row in projection.table(*joined)),
            *attention.output_dense.table(f"{scope}/attention/output/dense"),
            *(norm.table(f"{scope}/attention/output/LayerNorm") if norm is not None else []),
            *self.intermediate.table(*(halves if self.up is None else halves[:1])),
            *(self.up.table(halves[1]) if self.up is not None else []),
            *self.output_dense.table(f"{scope}/output/dense"),
            *self.output_norm.table(f"{scope}/output/LayerNorm"),
        ]

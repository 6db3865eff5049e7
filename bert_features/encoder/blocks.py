"""A Transformer block: attention and the feed-forward part, each with residual and layer norm.

Shape legend: `B` batch, `S` sequence, `H` hidden_size, `A` heads, `D` head size, `I`
intermediate_size, `N` = B * S. Dense layers see [N, …]: every backend fuses bias and activation
best with plain matrix products.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import keras
from keras import ops

from bert_features.config.bert_config import BertConfig
from bert_features.encoder import kernels
from bert_features.encoder.attention.choice import choose_form
from bert_features.encoder.attention.plain import Attended, Texts
from bert_features.encoder.parts import Dense, LayerNorm, Part, Table, make_dropout
from bert_features.encoder.rotary import Rotation
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
        reach: int | None,
        dense: type[Dense],
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        heads = config.num_attention_heads
        self.form = partial(choose_form, heads, config.head_size, reach)
        self.joined = config.joins_matrices
        size = config.hidden_size
        part = {"initializer": self.initializer, "dtype": self.dtype_policy}
        part["has_bias"] = config.has_dense_biases
        if fuse_qkv or config.joins_matrices:
            projections = [dense(size, 3 * size, name="qkv", **part)]
        else:
            projections = [dense(size, size, name=name, **part) for name in QKV]
        self.projections = self.tracked(projections)
        self.output_dense = dense(size, size, name="output_dense", **part)
        self.dropout = make_dropout(dropout, self.dtype_policy)

    def call(
        self,
        x: Tensor,
        residual: Tensor | None = None,
        *,
        texts: Texts,
        rotation: Rotation | None = None,
        training: bool = False,
        shown: bool = False,
    ) -> Attended:
        """[N, H] -> [N, H]; on a TPU [B', S', H] both.

        With a residual of that shape, it is part of the result. The second result is None, or if
        `shown` the weights of attention, [B, A, S, S].
        """
        drop = None if self.dropout is None else partial(self.dropout, training=training)
        form = self.form(texts.mask.shape[1], drop=drop, shown=shown)
        heads = form.project(x, texts, self.projections)
        if rotation is not None:
            heads = *(form.turned(part, rotation) for part in heads[:2]), heads[2]
        context, weights = form.attend(heads, texts)
        finished = form.finish(context, x, self.output_dense, residual)
        if texts.unseen and form.reach is not None:  # of no token the mean is 0, as in torch
            places = ops.arange(ops.shape(texts.mask)[1], dtype="int32")
            seeing = places < ops.sum(texts.mask, axis=1, keepdims=True) + form.reach
            seeing = ops.reshape(seeing, (*ops.shape(finished)[:-1], 1))
            finished = ops.where(seeing, finished, 0.0 if residual is None else residual)
        return finished, weights

    def scopes(self, scope: str) -> list[list[str]]:
        """For each projection the canonical scopes of the weights that it holds."""
        if self.joined:
            return [[f"{scope}/qkv"]]
        names = [f"{scope}/{part}" for part in QKV]
        return [names] if len(self.projections) == 1 else [[name] for name in names]


class Block(Part):
    """One Transformer block: attention and feed-forward, each with residual and layer norm.

    Args:
      config: the architecture.
      number: the place of the block among the blocks.
      use_dropout: see `BertEncoder`.
      fuse_qkv: see `BertEncoder`.
      dense: see `BertEncoder`.
      **kwargs: arguments of a `Part`.
    """

    def __init__(
        self,
        config: BertConfig,
        number: int,
        *,
        use_dropout: bool,
        fuse_qkv: bool,
        dense: tuple[type[Dense], type[Dense]],
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        size, inner = config.hidden_size, config.intermediate_size
        part = {"initializer": self.initializer, "dtype": self.dtype_policy}
        self.theta, reach = self.kind = config.attention_of(number)
        rate = config.attention_probs_dropout_prob if use_dropout else 0.0
        self.attention = SelfAttention.named(
            config,
            dropout=rate,
            fuse_qkv=fuse_qkv,
            reach=reach,
            dense=dense[0],
            name="attention",
            **part,
        )
        self.norm_first = config.norm_first
        self.attention_norm = None
        if number > 0 or config.first_block_norm:
            self.attention_norm = LayerNorm(config, size, name="attention_layer_norm", **part)
        self.halves = ("gate", "up") if config.gated and not config.joins_matrices else ("dense",)
        part["has_bias"] = config.biases == "all"
        self.up = None
        if self.halves == ("gate", "up") and not fuse_qkv:
            self.up = dense[0](size, inner, name="up", **part)
        self.gate = config.hidden_act if config.gated and self.up is None else None
        self.intermediate = (
            dense[0](size, 2 * inner, name="intermediate", **part)
            if self.gate is not None
            else dense[0](size, inner, config.hidden_act, name="intermediate", **part)
        )
        part["has_bias"] = config.has_dense_biases
        self.output_dense = dense[1](inner, size, name="output_dense", **part)
        del part["has_bias"]
        self.output_norm = LayerNorm(config, size, name="output_layer_norm", **part)
        rate = config.hidden_dropout_prob if use_dropout else 0.0
        self.dropout = make_dropout(rate, self.dtype_policy)

    def call(
        self,
        x: Tensor,
        *,
        texts: Texts,
        rotation: Rotation | None = None,
        training: bool = False,
        shown: bool = False,
    ) -> Attended:
        """[N, H] -> [N, H], and what `SelfAttention.call` shows."""
        attended, weights = self.attention(
            self._normal(x, self.attention_norm, first=True),
            self._residual(x),
            texts=texts,
            rotation=rotation,
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

    @property
    def dense_layers(self) -> list[Dense]:
        """Its dense layers."""
        up = [] if self.up is None else [self.up]
        attention = [*self.attention.projections, self.attention.output_dense]
        return [*attention, self.intermediate, *up, self.output_dense]

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


class BlocksTracedOnce:
    """Blocks of one encoder in a graph of TensorFlow, of which equal ones are traced once.

    A block is a function of its weights and x. TensorFlow puts its operations in the place of each
    call before it rewrites the graph, so the graph that runs is the same.
    """

    def __init__(self, texts: Texts, rotations: Mapping[float | None, Rotation | None]) -> None:
        self._texts, self._rotations = texts, rotations
        self._traced: dict[tuple[Any, bool], Callable[[list[Tensor], Tensor], Tensor]] = {}

    def __call__(self, block: Block, x: Tensor) -> Tensor:
        """As `Block.call`, without dropout."""
        import tensorflow as tf

        def call(values: list[Tensor], x: Tensor) -> Tensor:
            pairs = list(zip(block.variables, values, strict=True))
            with keras.StatelessScope(state_mapping=pairs):
                return block(x, texts=self._texts, rotation=self._rotations[block.theta])[0]

        kind = block.kind, block.attention_norm is None
        if kind not in self._traced:
            self._traced[kind] = tf.function(call, autograph=False)
        return self._traced[kind]([tf.convert_to_tensor(each) for each in block.variables], x)

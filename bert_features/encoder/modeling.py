"""The BERT encoder (Devlin et al. 2018, arXiv:1810.04805) as a Keras 3 layer on `keras.ops`.

As in google-research/bert's `modeling.py`, on any backend of Keras; the config says what differs in
BERT's relatives.

Shape legend: `B` batch, `S` sequence, `E` width of the embeddings, `H` hidden_size, `L` layers,
`A` heads, `N` = B * S.
"""

import functools
import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import keras
import numpy as np
from keras import ops

from bert_features.config.bert_config import BertConfig
from bert_features.config.packing import MAX_PACKED_TEXTS, POSITION_IDS, TEXT_NUMBERS
from bert_features.encoder import kernels
from bert_features.encoder.attention import lanes
from bert_features.encoder.attention.plain import Texts
from bert_features.encoder.blocks import Block, BlocksTracedOnce
from bert_features.encoder.forms import chosen_forms
from bert_features.encoder.inputs import checked_inputs
from bert_features.encoder.outputs import EncoderOutputs
from bert_features.encoder.packed_texts import tokens_of_texts
from bert_features.encoder.parts import (
    DENSE,
    Dense,
    LayerNorm,
    Part,
    Table,
    load_weights,
    make_dropout,
)
from bert_features.encoder.pooling import units_of_rows
from bert_features.encoder.relative import RelativeBias
from bert_features.encoder.rotary import Rotation
from bert_features.encoder.trained import Trainable, TrainedLayer
from bert_features.encoder.types import Tensor
from bert_features.errors import ConfigError

logger = logging.getLogger("bert_features")


class Embeddings(Part):
    """The normalised sum of word, position and token-type embeddings."""

    def __init__(self, config: BertConfig, *, use_one_hot: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        size, types = config.embedding_width, config.type_vocab_size
        self.use_one_hot, self.offset = use_one_hot, config.position_offset
        self.words = self.kernel("word_embeddings", config.vocab_size, size)
        self.positions = None
        if config.global_rope_theta is None:
            positions = config.max_position_embeddings
            self.positions = self.kernel("position_embeddings", positions, size)
        self.types = self.kernel("token_type_embeddings", types, size) if types else None
        part = {"initializer": self.initializer, "dtype": self.dtype_policy}
        with keras.name_scope(self.name):
            self.norm = LayerNorm(config, size, name="layer_norm", **part)

    def call(
        self, word_ids: Tensor, type_ids: Tensor, position_ids: Tensor | None = None
    ) -> Tensor:
        """int32 [B, S] each -> [B, S, E]; without positions they count from 0 in each row."""
        parts = [self._rows(self.words, word_ids, one_hot=self.use_one_hot)]
        if self.positions is not None:
            positions = ops.convert_to_tensor(self.positions)
            if self.offset:
                positions = positions[self.offset :]
            positions = positions[: ops.shape(word_ids)[1]]
            if position_ids is not None:
                positions = self._rows(positions, position_ids, one_hot=chosen_forms().on_tpu)
            parts.append(positions)
        if self.types is not None and self.types.shape[0] == 1:
            parts.append(ops.convert_to_tensor(self.types))  # of every token, whatever its id
        elif self.types is not None:
            # About two rows: a small matrix product is faster than a gather on every device.
            parts.append(self._rows(self.types, type_ids, one_hot=True))
        return self.norm(functools.reduce(operator.add, parts))

    def table(self) -> Table:
        """Its variables with the canonical names of their weights."""
        tables = {"word": self.words, "position": self.positions, "token_type": self.types}
        table: Table = [
            (variable, [f"embeddings/{name}_embeddings"])
            for name, variable in tables.items()
            if variable is not None
        ]
        return table + self.norm.table("embeddings/LayerNorm")

    def _rows(self, table: Any, ids: Tensor, *, one_hot: bool) -> Tensor:
        if not one_hot:
            return kernels.rows(table, ids)
        return kernels.matmul(ops.one_hot(ids, table.shape[0], dtype=self.compute_dtype), table)


class BertEncoder(TrainedLayer):
    """The encoder of a BERT checkpoint, with the output of every block.

    Args:
      config: the architecture.
      num_blocks: number of layers to compute, from the first; by default all. Blocks that none of
        them needs are not built.
      with_pooler: whether to compute `pooled_output`; needs all blocks.
      use_one_hot_embeddings: look words up by a matrix product instead of a gather.
      use_dropout: apply the config's dropout rates when called with `training=True`.
      fuse_qkv: keep the weights of query, key and value of a block in one variable, for one matrix
        product instead of three; as well those of a gate's halves.
      dense: the classes of the dense layers, see `parts.DENSE`.
      initializer: for kernels and embeddings; by default the truncated normal of the BERT paper.
      trainable: which weights are trained: all, none, those of a number of top blocks and of what
        is above them, or those whose names are or begin with these, such as `layer_0/attention`.
      dtype: a Keras dtype policy: `float32`, `mixed_bfloat16` (float32 weights, bfloat16
        arithmetic, layer norm and softmax in float32) or `bfloat16`.
      name: the layer's name; by default `bert_encoder`, then `bert_encoder_1` and so on.
      **kwargs: further arguments of a Keras layer.

    Raises:
      ConfigError: `num_blocks` is not one of 0 … num_hidden_layers, or leaves the pooler without
        its input, or the architecture has no pooler; or `trainable` names no weight.
    """

    unseen = False  # see `Texts`; in ModernBERT, whose layers have no biases
    # (layer, output) -> what the rest computes with; -1 are the embeddings. A program may name it.
    passed_on: Callable[[int, Tensor], Tensor] = staticmethod(lambda _, output: output)

    def __init__(
        self,
        config: BertConfig,
        *,
        num_blocks: int | None = None,
        with_pooler: bool = False,
        use_one_hot_embeddings: bool = False,
        use_dropout: bool = False,
        fuse_qkv: bool = True,
        dense: tuple[type[Dense], type[Dense]] = DENSE,
        initializer: str | keras.initializers.Initializer | None = None,
        trainable: Trainable = True,
        dtype: Any = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype=dtype, name=name, **kwargs)
        self.num_blocks = _checked_num_blocks(config, num_blocks, with_pooler=with_pooler)
        self.config = config
        self.use_dropout = use_dropout
        self._has_warned, self._num_shown = False, 0
        part = {
            "initializer": keras.initializers.get(initializer)
            or keras.initializers.TruncatedNormal(stddev=config.initializer_range),
            "dtype": self.dtype_policy,
        }
        with keras.name_scope(self.name):
            self._make_parts(part, fuse_qkv, dense, use_one_hot_embeddings, with_pooler)
        self.trainable = trainable
        self.built = True

    def _make_parts(
        self,
        part: dict[str, Any],
        fuse_qkv: bool,
        dense: tuple[type[Dense], type[Dense]],
        use_one_hot: bool,
        with_pooler: bool,
    ) -> None:
        config, size, width = self.config, self.config.hidden_size, self.config.embedding_width
        self.embeddings = Embeddings(config, use_one_hot=use_one_hot, name="embeddings", **part)
        self.relative = None
        if config.relative_attention_num_buckets is not None:
            self.relative = RelativeBias(config, name="relative_bias", **part)
        rate = config.hidden_dropout_prob if self.use_dropout else 0.0
        self.embeddings_dropout = make_dropout(rate, self.dtype_policy)
        self.projection = None
        if config.projects_embeddings:
            self.projection = Dense(width, size, name="embeddings_project", **part)
        numbers = sorted({config.block_of(layer) for layer in range(self.num_blocks)})
        part_of_block = {"use_dropout": self.use_dropout, "fuse_qkv": fuse_qkv, "dense": dense}
        self.blocks = self.tracked(
            [Block.named(config, i, name=f"layer_{i}", **part_of_block, **part) for i in numbers]
        )
        self.final_norm = None
        if config.final_norm and self.num_blocks == config.num_hidden_layers:
            self.final_norm = LayerNorm(config, size, name="final_layer_norm", **part)
        self.pooler = Dense(size, size, "tanh", name="pooler", **part) if with_pooler else None

    def named_weights(self) -> dict[str, keras.Variable]:
        """The weights by the part of their paths behind the encoder's, from the inputs up."""
        path = self.embeddings.words.path.removesuffix("embeddings/word_embeddings")
        return {weight.path.removeprefix(path): weight for weight in self.weights}

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Checks the inputs, then calls the layer, see `call`."""
        # Rotary positions have no end; packed rows have positions of their own.
        ends = self.config.global_rope_theta is None and TEXT_NUMBERS not in inputs
        names = ("input_word_ids", "input_mask", "input_type_ids")
        inputs = checked_inputs(inputs, names, self.config, has_end=ends)
        return super().__call__(inputs, *args, **kwargs)

    def call(
        self, inputs: Mapping[str, Tensor], training: bool = False, attention_of: Sequence[int] = ()
    ) -> dict[str, Any]:
        """Encodes a batch.

        Args:
          inputs: `input_word_ids`, `input_mask` (1 = real) and `input_type_ids`, int32 [B, S]
            each; S at most max_position_embeddings. Packed rows also have `text_numbers` and
            `position_ids`, see `config.packing`; then S may be larger. On TensorFlow `mask_bias`,
            float32 [B, S], may take the place of the mask: what attention adds to its scores.
          training: whether dropout applies (only with `use_dropout`) in the parts that are trained.
          attention_of: numbers of layers from 1 whose attention is wanted.

        Returns:
          A dict, which `EncoderOutputs.from_dict` reads: `embedding_output` [B, S, H], the input of
          the first block; `encoder_outputs`, a list of L [B, S, H], the output of each layer;
          `sequence_output` [B, S, H], the last of them; and, with the pooler, `pooled_output`
          [B, H], or [B, MAX_PACKED_TEXTS, H] of packed rows. `attention` is a list of [B, A, S, S],
          of the layers of `attention_of`. All have the compute dtype.
        """
        self._num_shown = len(attention_of)
        if training and self.trainable:
            self._warn_of_16_bits()
        word_ids, mask = inputs["input_word_ids"], inputs.get("mask_bias")
        if mask is None:
            mask = inputs["input_mask"]
            if "int" not in keras.backend.standardize_dtype(mask.dtype):
                mask = ops.cast(ops.cast(mask, "float32") > 0, "int32")
        text_numbers, positions = inputs.get(TEXT_NUMBERS), inputs.get(POSITION_IDS)
        shape = ops.shape(word_ids)
        embedded = self.embeddings(word_ids, inputs["input_type_ids"], positions)
        if self.embeddings_dropout is not None:
            drops = training and self.embeddings.trainable
            embedded = self.embeddings_dropout(embedded, training=drops)
        size = self.config.hidden_size
        if self.projection is not None:
            narrow = ops.reshape(embedded, (-1, self.config.embedding_width))
            embedded = ops.reshape(self.projection(narrow), (*shape, size))
        embedded = self.passed_on(-1, embedded)
        # A TPU keeps [B, S, H]: after products of [N, H] its compiler would move attention's input.
        if chosen_forms().on_tpu:
            x = lanes.joined_rows(embedded)
        else:
            x = ops.reshape(embedded, (-1, size))
        rotations = self._rotations(shape[1], positions)
        nearness = None if self.relative is None else self.relative(mask, text_numbers)
        texts = Texts(mask, text_numbers, nearness, unseen=self.unseen)
        outputs, attention = [], {}
        forms, traced_once = chosen_forms(), BlocksTracedOnce(texts, rotations)
        for layer in range(self.num_blocks):
            block = self.blocks[self.config.block_of(layer)]
            if (forms.fixed_weights or forms.few_tokens) and not attention_of:
                x = traced_once(block, x)
            else:
                x, attention[layer + 1] = block(
                    x,
                    texts=texts,
                    rotation=rotations[block.theta],
                    training=training and block.trainable,
                    shown=layer + 1 in attention_of,
                )
            if layer == self.num_blocks - 1 and self.final_norm is not None:
                x = self.final_norm(x)
            outputs.append(self.passed_on(layer, ops.reshape(x, (*shape, size))))
        result = EncoderOutputs(embedded, outputs, attention=[attention[n] for n in attention_of])
        if self.pooler is not None:
            if text_numbers is None:
                pooled = self.pooler(result.sequence_output[:, 0])
            else:
                first = _first_tokens(result.sequence_output, text_numbers, positions)
                pooled = self.pooler(ops.reshape(first, (-1, size)))  # dense layers see [N, H]
                pooled = ops.reshape(pooled, ops.shape(first))
            result = replace(result, pooled_output=pooled)
        return result.as_dict()

    def compute_mask(self, inputs: Mapping[str, Tensor], mask: Any = None) -> dict[str, Any]:
        """Which tokens are real, bool [B, S], for Keras' layers behind the outputs of tokens."""
        del mask
        mask = units_of_rows(inputs, "token")
        masks = EncoderOutputs(mask, [mask] * self.num_blocks).as_dict()
        none = {"pooled_output": None} if self.pooler is not None else {}
        return masks | none | ({"attention": [None] * self._num_shown} if self._num_shown else {})

    def _warn_of_16_bits(self) -> None:
        dtype = self.variable_dtype
        if dtype in ("bfloat16", "float16") and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "%s trains weights in %s, which rounds most steps to nothing or overflows; pass "
                "dtype='mixed_%s'",
                *(self.name, dtype, dtype),
            )

    def _rotations(
        self, length: int | Tensor, positions: Tensor | None
    ) -> dict[float | None, Rotation | None]:
        """For each base of angles the rotation of queries and keys; none where it is None."""
        rotations: dict[float | None, Rotation | None] = {b.theta: None for b in self.blocks}
        for theta in rotations:
            if theta is not None:
                places = ops.arange(length, dtype="int32") if positions is None else positions
                divisor = self.config.rope_divisor
                rotations[theta] = Rotation.by(places, theta, self.config.head_size, divisor)
        return rotations

    def compute_output_spec(
        self, inputs: Mapping[str, keras.KerasTensor], training: bool = False
    ) -> dict[str, Any]:
        """The shapes and dtypes of `call`'s outputs."""
        del training
        batch, length = inputs["input_word_ids"].shape
        size = self.config.hidden_size
        texts_of_row = (MAX_PACKED_TEXTS,) if TEXT_NUMBERS in inputs else ()

        def spec(*shape: int | None) -> keras.KerasTensor:
            return keras.KerasTensor(shape, self.compute_dtype)

        return EncoderOutputs(
            spec(batch, length, size),
            [spec(batch, length, size) for _ in range(self.num_blocks)],
            None if self.pooler is None else spec(batch, *texts_of_row, size),
        ).as_dict()

    def load_weights_dict(self, weights: Mapping[str, np.ndarray]) -> None:
        """Assigns weights by canonical name, as `read_weights` returns them.

        Those of blocks and of a pooler that this encoder does not compute are ignored. Raises
        CheckpointError if a weight is missing or has another shape.
        """
        load_weights(self.table(), weights)

    def weights_dict(self) -> dict[str, np.ndarray]:
        """The weights as float32 arrays by canonical name, as `load_weights_dict` takes them."""
        weights: dict[str, np.ndarray] = {}
        for variable, names in self.table():
            value = ops.convert_to_numpy(ops.cast(variable, "float32"))
            weights |= zip(names, np.split(value, len(names), axis=-1), strict=True)
        return weights

    def weight_names(self) -> list[list[str]]:
        """For each of `trainable_variables` the canonical names of the weights that it holds."""
        names = {id(variable): canonical for variable, canonical in self.table()}
        return [names[id(variable)] for variable in self.trainable_variables]

    def table(self) -> Table:
        """Each variable with the canonical names of the weights joined along its last axis."""
        table = self.embeddings.table()
        if self.relative is not None:
            table += self.relative.table()
        if self.final_norm is not None:
            table += self.final_norm.table("encoder/LayerNorm")
        if self.projection is not None:
            table += self.projection.table("embeddings_project")
        for i, block in enumerate(self.blocks):
            table += block.table(f"encoder/layer_{i}")
        if self.pooler is not None:
            table += self.pooler.table("pooler/dense")
        return table


def _first_tokens(x: Tensor, text_numbers: Tensor, positions: Tensor) -> Tensor:
    """The first token of each text of packed rows: [B, S, H] -> [B, MAX_PACKED_TEXTS, H]."""
    first = ops.logical_and(tokens_of_texts(text_numbers), ops.expand_dims(positions, 1) == 0)
    return kernels.matmul(ops.cast(first, x.dtype), x)


def _checked_num_blocks(config: BertConfig, num_blocks: int | None, *, with_pooler: bool) -> int:
    depth = config.num_hidden_layers
    num_blocks = depth if num_blocks is None else num_blocks
    if not 0 <= num_blocks <= depth:
        raise ConfigError(
            f"num_blocks is {num_blocks}; this config has {depth} blocks, allowed: 0 to {depth}"
        )
    if with_pooler and not config.has_pooler:
        raise ConfigError(f"{config.model_type} has no pooler; leave with_pooler out")
    if with_pooler and num_blocks != depth:
        raise ConfigError(f"the pooler needs all {depth} blocks; num_blocks is {num_blocks}")
    return num_blocks

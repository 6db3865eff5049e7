"""The device step: the encoder and its outputs, as one pure function of weights and batch.

Shape legend: `B` batch, `S` sequence, `D` width of an output.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self

import keras
import numpy as np

from bert_features.config.bert_config import BertConfig
from bert_features.config.features import OutputSpec
from bert_features.config.kinds import KINDS, masks_rows, needs
from bert_features.config.output_specs import (
    blocks_needed,
    dense_modules,
    has_spans,
    has_words,
    needs_pooler,
)
from bert_features.config.packing import POSITION_IDS, SPAN_BOUNDS, TARGET_IDS, TEXT_NUMBERS
from bert_features.encoder.computations import COMPUTE, Encoded, Head, Predictions
from bert_features.encoder.forms import products_traced_in
from bert_features.encoder.int8 import INT8_DENSE, quantize
from bert_features.encoder.masked_lm import MaskedLMHead
from bert_features.encoder.modeling import BertEncoder
from bert_features.encoder.parts import DENSE, load_weights
from bert_features.encoder.types import Tensor

Inputs = Mapping[str, Tensor]
# Names of Keras dtype policies; int8 is float32 but for the dense layers of blocks.
FloatPrecision = Literal["float32", "bfloat16"]
Precision = FloatPrecision | Literal["int8"]

MODEL_INPUTS = ("input_word_ids", "input_mask", "input_type_ids")
WORD_INDICES = "word_indices"  # a further input, for outputs of level `word`

_NOT_OF_ENCODER = (WORD_INDICES, *SPAN_BOUNDS, TARGET_IDS)


def input_names(outputs: Sequence[OutputSpec], *, packed: bool = False) -> tuple[str, ...]:
    """The parts of a batch that outputs are computed from."""
    names = (*MODEL_INPUTS, TEXT_NUMBERS, POSITION_IDS) if packed else MODEL_INPUTS
    if masks_rows(outputs):
        return (*names, TARGET_IDS)
    words = (WORD_INDICES,) if has_words(outputs) else ()
    return (*names, *words, *(SPAN_BOUNDS if has_spans(outputs) else ()))


class DeviceStep:
    """The encoder with its weights, and the outputs to compute.

    Args:
      config: the architecture.
      weights: by canonical name, as `read_weights` and `read_dense` return them, with those of the
        pooler, the masked-LM head or Dense modules if an output needs them; None for random ones.
      outputs: what to compute; blocks above their highest layer are left out.
      special_ids: the ids of [CLS] and [SEP], for outputs that leave them out.
      unknown_id: the id of [UNK], for outputs that leave it out; -1 without one.
      pieces: number of pieces of the vocabulary; None if each row of the table is one.
      precision: `float32` or `bfloat16`, for weights and arithmetic; or `int8`, see `encoder.int8`.
      use_one_hot_embeddings: look words up by a matrix product instead of a gather.
      fuse_qkv: see `BertEncoder`; on a TPU joined weights would be split again.
      packed: whether several texts share a row, see `config.packing`.
      calibration: for int8 the batches of MODEL_INPUTS that ranges come from.

    Attributes:
      inputs: the parts of a batch that the step takes.
      head: the masked-LM head, if an output needs it.
    """

    def __init__(
        self,
        config: BertConfig,
        weights: Mapping[str, np.ndarray] | None,
        outputs: Sequence[OutputSpec],
        *,
        special_ids: Sequence[int] = (),
        unknown_id: int = -1,
        pieces: int | None = None,
        precision: Precision = "float32",
        use_one_hot_embeddings: bool = False,
        fuse_qkv: bool = True,
        packed: bool = False,
        calibration: Iterable[Inputs] = (),
    ) -> None:
        self.outputs = tuple(outputs)
        self._packed = packed
        self.inputs = input_names(self.outputs, packed=packed)
        self._ids = tuple(special_ids), unknown_id
        self._precision = precision
        dtype = "float32" if precision == "int8" else precision
        self.encoder = BertEncoder(
            config,
            num_blocks=blocks_needed(self.outputs),
            with_pooler=needs_pooler(self.outputs),
            use_one_hot_embeddings=use_one_hot_embeddings,
            fuse_qkv=fuse_qkv,
            dense=INT8_DENSE if precision == "int8" else DENSE,
            initializer=None if weights is None else _unset,
            dtype=dtype,
        )
        self.encoder.unseen = needs(self.outputs, "projection")
        self.head = None
        if needs(self.outputs, "head"):
            initializer = self.encoder.embeddings.initializer
            self.head = MaskedLMHead(config, pieces, initializer=initializer, dtype=dtype)
        shapes = {n: s for m in dense_modules(self.outputs) for n, s in m.shapes.items()}
        self._dense = {
            name: keras.Variable("zeros", shape, "float32")  # a shape alone, where `tpu` compiles
            if weights is None
            else keras.Variable(weights[name])
            for name, shape in shapes.items()
        }
        if weights is not None:
            self.encoder.load_weights_dict(weights)
            if precision == "int8":
                quantize(self.encoder, weights, calibration)
            if self.head is not None:
                load_weights(self.head.table(), weights)

    def computing(self, outputs: Sequence[OutputSpec]) -> Self:
        """A step of other outputs with the same encoder, which has the layers that they need.

        Compilers leave out what no output needs.
        """
        other = copy.copy(self)
        other.outputs = tuple(outputs)
        other.inputs = input_names(other.outputs, packed=self._packed)
        return other

    @property
    def weights(self) -> list[keras.Variable]:
        """All variables, in the order in which `step` takes their values."""
        head_weights = [] if self.head is None else self.head.trainable_variables
        return [*self._dense.values(), *_variables(self.encoder), *head_weights]

    def step(self, weights: Sequence[Tensor], batch: Inputs) -> Predictions:
        """Computes the outputs of a batch: a pure function, which a runtime compiles and shards.

        Args:
          weights: values in the order of `self.weights`.
          batch: `inputs`, int32 [B, S] each, see `BertEncoder.call` and `pooling.compute_outputs`.

        Returns:
          Output name -> [B, S, D] for tokens, words and spans, [B, D] for the sequence; of packed
          rows [B, MAX_PACKED_TEXTS, D], where a row has its texts in order. For pairs [B, D, S, S];
          for terms what `encoder.terms.heaviest` gives, or [B, S, 1], the weights of the tokens.
        """
        inputs = {name: batch[name] for name in self.inputs if name not in _NOT_OF_ENCODER}
        dense = dict(zip(self._dense, weights, strict=False))
        weights = weights[len(dense) :]
        trained = len(self.encoder.trainable_variables)
        variables = list(weights[: len(_variables(self.encoder))])
        shown = [output for output in self.outputs if KINDS[output.kind].needs == "attention"]
        layers = sorted({output.states[0] for output in shown})
        with products_traced_in(self._precision):
            states, _ = self.encoder.stateless_call(
                variables[:trained], variables[trained:], inputs, attention_of=tuple(layers)
            )
        attention = dict(zip(layers, states.get("attention", ()), strict=True))
        encoded = Encoded(states, batch, attention, *self._ids, dense, self._head(weights))
        results: Predictions = {}
        for kind in dict.fromkeys(output.kind for output in self.outputs):
            results |= COMPUTE[kind](encoded, [o for o in self.outputs if o.kind == kind])
        return results

    def _head(self, weights: Sequence[Tensor]) -> Head | None:
        """The masked-LM head; `weights` are those of encoder and head."""
        head = self.head
        if head is None:
            return None
        variables = _variables(self.encoder)
        values, words = list(weights[len(variables) :]), self.encoder.embeddings.words
        table = next(w for w, v in zip(weights, variables, strict=False) if v is words)

        def call(state: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
            with products_traced_in(self._precision):
                results, _ = head.stateless_call(values, [], state, table, *arguments)
            return tuple(results)

        return call


def _variables(encoder: BertEncoder) -> list[keras.Variable]:
    return [*encoder.trainable_variables, *encoder.non_trainable_variables]


def _unset(shape: Sequence[int], dtype: str) -> Any:
    """Memory for a weight that gets its values next: zeros before them take as long as these."""
    if keras.backend.backend() != "tensorflow":
        return keras.ops.zeros(shape, dtype)
    import tensorflow as tf

    return tf.raw_ops.Empty(shape=shape, dtype=dtype, init=False)

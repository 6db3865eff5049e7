"""model_fn: the encoder and the outputs asked of it, as one pure function of weights and batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from bert_features.checkpoints.find import find_checkpoint, read_weights
from bert_features.config.bert_config import BertConfig
from bert_features.config.outputs import (
    Combine,
    OutputConfig,
    OutputDtype,
    OutputSpec,
    blocks_needed,
    needs_pooler,
    plan_outputs,
)
from bert_features.encoder.modeling import BertEncoder
from bert_features.encoder.pooling import compute_outputs

Batch = Mapping[str, Any]
Predictions = dict[str, Any]
Precision = Literal["float32", "bfloat16"]

MODEL_INPUTS = ("input_word_ids", "input_mask", "input_type_ids")
WORD_INDICES = "word_indices"  # a further input, of outputs of words
_POLICIES: dict[Precision, str] = {"float32": "float32", "bfloat16": "bfloat16"}


class ModeKeys:
    """What an Estimator can be asked for; features are predictions, so only PREDICT is."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


@dataclass(frozen=True)
class EstimatorSpec:
    """What a model_fn returns.

    Attributes:
      mode: `ModeKeys.PREDICT`.
      predictions: `unique_id` and the outputs by name, for the features it was called with.
    """

    mode: str
    predictions: Predictions


class ModelFn:
    """The encoder with its weights, and the outputs wanted of it.

    Args:
      config: the architecture.
      weights: by canonical name, as `checkpoints.read_weights` gives them, the pooler's among them
        if an output needs it; None for random ones.
      outputs: what to compute; blocks above the highest layer in them are left out.
      special_ids: the ids of [CLS] and [SEP], for outputs that leave them out.
      precision: of the arithmetic: `float32`, or `bfloat16`, of the weights too.
      use_one_hot_embeddings: look words up by a matrix product instead of a gather.
      fuse_qkv: see `BertEncoder`; on a TPU what is joined is taken apart again (docs/tpu.md).

    Attributes:
      outputs: the outputs.
      inputs: which parts of a batch the step takes.
      encoder: the encoder.
    """

    def __init__(
        self,
        config: BertConfig,
        weights: Mapping[str, np.ndarray] | None,
        outputs: Sequence[OutputSpec],
        *,
        special_ids: Sequence[int] = (),
        precision: Precision = "float32",
        use_one_hot_embeddings: bool = False,
        fuse_qkv: bool = True,
    ) -> None:
        self.outputs = tuple(outputs)
        of_words = any(output.level == "word" for output in self.outputs)
        self.inputs = (*MODEL_INPUTS, WORD_INDICES) if of_words else MODEL_INPUTS
        self._special_ids = tuple(special_ids)
        self.encoder = BertEncoder(
            config,
            num_blocks=blocks_needed(self.outputs),
            with_pooler=needs_pooler(self.outputs),
            use_one_hot_embeddings=use_one_hot_embeddings,
            fuse_qkv=fuse_qkv,
            # Random values that the checkpoint's would replace at once cost seconds.
            initializer=None if weights is None else "zeros",
            dtype=_POLICIES[precision],
        )
        if weights is not None:
            self.encoder.load_weights_dict(weights)

    @property
    def weights(self) -> list[Any]:
        """The encoder's variables, in the order `step` takes their values."""
        return list(self.encoder.trainable_variables)

    def step(self, weights: Sequence[Any], batch: Batch) -> Predictions:
        """The device step: pure, so that a runtime can compile and shard it.

        Args:
          weights: values in the order of `self.weights`.
          batch: `input_word_ids`, `input_mask`, `input_type_ids`, int32 [B, S]; and
            `word_indices` if an output is of words, see `pooling.compute_outputs`.

        Returns:
          Output name -> [B, S, D] for tokens and words, [B, D] for the sequence.
        """
        inputs = {name: batch[name] for name in MODEL_INPUTS}
        encoded, _ = self.encoder.stateless_call(list(weights), [], inputs)
        return compute_outputs(encoded, batch, self.outputs, self._special_ids)

    def __call__(
        self,
        features: Batch,
        labels: Any = None,
        mode: str = ModeKeys.PREDICT,
        params: Mapping[str, Any] | None = None,
    ) -> EstimatorSpec:
        """The official signature: the predictions for one batch of features.

        Raises:
          ValueError: a mode other than PREDICT.
        """
        del labels, params  # the official signature has them; prediction needs neither
        check_mode(mode)
        outputs = self.step([variable.value for variable in self.weights], features)
        return EstimatorSpec(mode, {"unique_id": features["unique_ids"], **outputs})


def check_mode(mode: str) -> None:
    """Refuses every mode but PREDICT.

    Raises:
      ValueError: any other mode.
    """
    if mode != ModeKeys.PREDICT:
        raise ValueError(f"Only PREDICT modes are supported: {mode}")


def model_fn_builder(
    bert_config: BertConfig,
    init_checkpoint: str | None,
    layer_indexes: Sequence[int | str],
    use_tpu: bool = False,
    use_one_hot_embeddings: bool = False,
    *,
    combine: Combine = "none",
    precision: Precision | None = None,
    dtype: OutputDtype = "float32",
) -> ModelFn:
    """Builds the model_fn of a checkpoint, with the official script's signature.

    Args:
      bert_config: the architecture, which the checkpoint must have.
      init_checkpoint: anything `checkpoints.find_checkpoint` finds; None for random weights.
      layer_indexes: LAYERS: block numbers, or the word `embeddings`.
      use_tpu: bfloat16 arithmetic by default, the TPU's own; the Estimator chooses the device.
      use_one_hot_embeddings: look words up by a matrix product instead of a gather.
      combine: with `none`, predictions hold `layer_output_0`, …; else one output, `features`.
      precision: of the arithmetic, if not what `use_tpu` says.
      dtype: of the predictions.

    Raises:
      CheckpointError: the checkpoint cannot be read, or is not of this architecture.
      ConfigError: a layer this architecture does not have.
    """
    wanted = OutputConfig.of({"layers": [*layer_indexes], "combine": combine, "dtype": dtype})
    outputs = plan_outputs([wanted], bert_config)
    weights = None
    if init_checkpoint is not None:
        weights = read_weights(replace(find_checkpoint(init_checkpoint), config=bert_config))
    return ModelFn(
        bert_config,
        weights,
        outputs,
        precision=precision or ("bfloat16" if use_tpu else "float32"),
        use_one_hot_embeddings=use_one_hot_embeddings,
    )

"""model_fn and its builder, with the official script's names and signatures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, get_args

from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import read_weights
from bert_features.config.bert_config import BertConfig
from bert_features.config.features import OutputDtype
from bert_features.config.output_specs import plan_outputs
from bert_features.config.outputs import Combine, OutputConfig
from bert_features.encoder.computations import Predictions
from bert_features.encoder.step import DeviceStep, FloatPrecision, Inputs
from bert_features.errors import ConfigError
from bert_features.official import modeling
from bert_features.official.user_inputs import eagerly


class ModeKeys:
    """The modes of an Estimator; features are predictions, so only PREDICT is supported."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


@dataclass(frozen=True)
class EstimatorSpec:
    """What a model_fn returns, with the fields of EstimatorSpec and TPUEstimatorSpec.

    Attributes:
      mode: `ModeKeys.PREDICT`.
      predictions: `unique_id` and the outputs by name, for the features it was called with.
      scaffold_fn: a function without arguments that calls `tf.train.init_from_checkpoint`, as
        programs for TPUs have it.
      scaffold: the same, called already.

    The other fields belong to training and to sessions, and are not used.
    """

    mode: str
    predictions: Predictions | None = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: Any = None
    export_outputs: Any = None
    _: KW_ONLY
    eval_metrics: Any = None
    scaffold_fn: Callable[[], Any] | None = None
    scaffold: Any = None
    host_call: Any = None
    training_hooks: Any = None
    training_chief_hooks: Any = None
    evaluation_hooks: Any = None
    prediction_hooks: Any = None


class ModelFn(DeviceStep):
    """A device step that can be called with the official signature; see `DeviceStep`."""

    def __call__(
        self,
        features: Inputs,
        labels: Any = None,
        mode: str = ModeKeys.PREDICT,
        params: Mapping[str, Any] | None = None,
    ) -> EstimatorSpec:
        """The predictions for one batch of features.

        Args:
          features: `unique_ids` int [B] and the inputs of the step, see `both_spellings`.
          labels: ignored.
          mode: `ModeKeys.PREDICT`.
          params: ignored.

        Raises:
          ValueError: a mode other than PREDICT.
        """
        del labels, params  # the official signature has them; prediction needs neither
        if mode != ModeKeys.PREDICT:
            raise ValueError(f"Only PREDICT modes are supported: {mode}")
        values = [variable.value for variable in self.weights]
        outputs = self.step(values, both_spellings(features))
        return EstimatorSpec(mode, {"unique_id": features["unique_ids"], **outputs})


def both_spellings(features: Mapping[str, Any]) -> dict[str, Any]:
    """Features whose ids have both names: `input_ids` of the script, `input_word_ids` of Keras."""
    spelled = dict(features)
    for name, other in (("input_ids", "input_word_ids"), ("input_word_ids", "input_ids")):
        if name in features:
            spelled.setdefault(other, features[name])
    return spelled


@eagerly
def model_fn_builder(
    bert_config: "BertConfig | modeling.BertConfig",
    init_checkpoint: str | None,
    layer_indexes: Sequence[int | str],
    use_tpu: bool = False,
    use_one_hot_embeddings: bool = False,
    *,
    combine: Combine = "none",
    precision: FloatPrecision | None = None,
    dtype: OutputDtype = "float32",
) -> ModelFn:
    """Builds the model_fn of a checkpoint, with the official script's signature.

    Args:
      bert_config: the architecture, which the checkpoint must have.
      init_checkpoint: anything `find_checkpoint` accepts; None for random weights.
      layer_indexes: LAYERS: block numbers, or the word `embeddings`.
      use_tpu: compute in bfloat16 by default, as TPUs do; the Estimator chooses the device.
      use_one_hot_embeddings: look words up by a matrix product instead of a gather.
      combine: with `none`, predictions hold `layer_output_0`, …; else one output, `features`.
      precision: `float32` or `bfloat16`; overrides the choice of `use_tpu`.
      dtype: data type of the predictions.

    Raises:
      CheckpointError: the checkpoint cannot be read, or has another architecture.
      ConfigError: a layer that this architecture does not have, or another precision.
    """
    if precision not in (None, *get_args(FloatPrecision)):
        raise ConfigError(f"precision is {precision!r}; allowed: float32, bfloat16, None")
    if isinstance(bert_config, modeling.BertConfig):
        bert_config = bert_config.checked()
    output = OutputConfig.of({"layers": [*layer_indexes], "combine": combine, "dtype": dtype})
    outputs = plan_outputs([output], bert_config)
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

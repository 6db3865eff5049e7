"""google-research/bert's `modeling`, for code written for it.

    from bert_features.official import modeling

The model is `encoder.BertEncoder` over variables with the official names, so checkpoints load by
TensorFlow's own `init_from_checkpoint`. Training is left out: docs/migrating.md says what to use.

Shape legend: `B` batch, `S` sequence, `H` hidden_size, `L` blocks.
"""

import contextlib
import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from bert_features.checkpoints.weights import weight_names
from bert_features.checkpoints.weights.weight_readers import some
from bert_features.config import bert_config
from bert_features.encoder.attention.plain import MASK_BIAS
from bert_features.encoder.forms import check_backend
from bert_features.encoder.modeling import BertEncoder
from bert_features.encoder.types import Tensor
from bert_features.errors import CheckpointError, ConfigError
from bert_features.official import refusing


@dataclass
class BertConfig:
    """The official config: plain values, which are checked when a model is built of them.

    `hidden_act` is the word of the config file. `gelu` is the tanh form, unless further keys show
    that Hugging Face wrote the file; see `config.bert_config`.
    """

    vocab_size: int | None
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str | None = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02

    @classmethod
    def from_dict(cls, json_object: Mapping[str, Any]) -> "BertConfig":
        """A config with these values; further keys are kept as attributes."""
        config = cls(vocab_size=None)
        vars(config).update(json_object)
        return config

    @classmethod
    def from_json_file(cls, json_file: str | Path) -> "BertConfig":
        """Reads a config file, by its path or its address (`gs://…`).

        Raises:
          CheckpointError: it cannot be read, or holds no JSON object.
        """
        with _reading(json_file), tf.io.gfile.GFile(str(json_file)) as file:
            return cls.from_dict(json.loads(file.read()))

    def to_dict(self) -> dict[str, Any]:
        """All values by name."""
        return copy.deepcopy(vars(self))

    def to_json_string(self) -> str:
        """All values as JSON, sorted by name."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

    def checked(self) -> bert_config.BertConfig:
        """The same config as the rest of the package takes it.

        Raises:
          CheckpointError: a value is missing or not allowed.
        """
        values = self.to_dict()
        if not callable(self.hidden_act):  # None and "" are the identity, as in the original
            values["hidden_act"] = (self.hidden_act or "linear").lower()
        family = bert_config.config_family(values)
        return bert_config.BertConfig.from_dict(values, family=family, source="BertConfig")


class BertModel:
    """The official model of one batch, built of the variables of the current graph.

    The variables have the official names and, until a checkpoint is loaded, random values. In a
    `model_fn` the `Estimator` provides the graph. Outside of it call this within
    `tf.Graph().as_default()` and run the outputs in a `tf.Session`.

    Args:
      config: the architecture.
      is_training: False; training is left out.
      input_ids: int [B, S].
      input_mask: [B, S], 1 for real tokens; by default all are. Attention adds (1 - mask) * -10000.
      token_type_ids: int [B, S]; by default 0.
      use_one_hot_embeddings: look words up by a matrix product instead of a gather.
      scope: the scope of the variables; by default `bert`.

    Raises:
      CheckpointError: the config does not describe a BERT encoder.
      ConfigError: `is_training` is true; it is called outside of a graph; the config is that of
        another architecture; or Keras runs on another backend than TensorFlow.
      ValueError: an input is not [B, S], or its rows are longer than the position embeddings.
    """

    def __init__(
        self,
        config: "BertConfig | bert_config.BertConfig",
        is_training: bool,
        input_ids: Tensor,
        input_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        use_one_hot_embeddings: bool = False,
        scope: str | None = None,
    ) -> None:
        if is_training:
            raise ConfigError(
                "is_training is True; BertModel computes features only. To train, use the Keras "
                "layer bert_features.BertFeatures (docs/python.md)"
            )
        if tf.executing_eagerly():  # no checkpoint could be read before the outputs are computed
            raise ConfigError(
                "BertModel is called outside of a graph; call it in a model_fn, or within "
                "tf.Graph().as_default()"
            )
        checked = config.checked() if isinstance(config, BertConfig) else config
        if checked.model_type != "bert":
            raise ConfigError(
                f"BertModel has the variables of BERT alone; the config has model_type "
                f"{checked.model_type}: use model_fn_builder or the Keras layer BertFeatures"
            )
        input_ids = tf.cast(input_ids, tf.int32)
        length = get_shape_list(input_ids, 2, "input_ids")[1]
        longest = checked.max_position_embeddings
        if isinstance(length, int) and length > longest:
            raise ValueError(
                f"input_ids has rows of {length} tokens; max_position_embeddings allows {longest}"
            )
        encoder = _make_encoder(checked, use_one_hot_embeddings)
        with tf.compat.v1.variable_scope(scope, default_name="bert") as variables:
            weights = [
                tf.compat.v1.get_variable(
                    name, variable.shape, initializer=_initializer(name, checked.initializer_range)
                )
                for variable, (name,) in zip(
                    encoder.trainable_variables, encoder.weight_names(), strict=True
                )
            ]
        mask = tf.ones_like(input_ids) if input_mask is None else input_mask
        types = tf.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        inputs = {
            "input_word_ids": input_ids,
            "input_mask": tf.cast(mask, tf.float32),
            "input_type_ids": tf.cast(types, tf.int32),
        }
        for name, tensor in inputs.items():
            if not tensor.shape.is_compatible_with(input_ids.shape):
                raise ValueError(f"{name} is {tensor.shape}, but input_ids is {input_ids.shape}")
        # Below 0 Keras counts from the end; TensorFlow refuses what lies beyond it, on a CPU.
        inputs["input_word_ids"] = tf.where(input_ids < 0, checked.vocab_size, input_ids)
        inputs["mask_bias"] = (1.0 - inputs.pop("input_mask")) * MASK_BIAS
        norm = "LayerNorm/batchnorm/add_1"

        def named(layer: int, output: Tensor) -> Tensor:  # programs feed it, or differentiate by it
            name = f"embeddings/{norm}" if layer < 0 else f"encoder/Reshape_{layer + 2}"
            with tf.compat.v1.name_scope(variables.original_name_scope):
                return tf.identity(output, name)

        encoder.passed_on = named
        outputs, _ = encoder.stateless_call(weights, [], inputs)
        self.embedding_table = weights[0]
        rows = [-1, checked.hidden_size]
        # The names by which programs find tensors, and freeze and cut graphs.
        with tf.compat.v1.name_scope(variables.original_name_scope):
            self.embedding_output = outputs["embedding_output"]
            tf.reshape(self.embedding_output, rows, "encoder/Reshape_1")
            self.all_encoder_layers = outputs["encoder_outputs"]
            for number, layer in enumerate(self.all_encoder_layers):
                tf.reshape(layer, rows, f"encoder/layer_{number}/output/{norm}")
            self.sequence_output = self.all_encoder_layers[-1]
            tf.identity(self.sequence_output[:, 0], "pooler/Squeeze")
            self.pooled_output = tf.identity(outputs["pooled_output"], "pooler/dense/Tanh")

    def get_pooled_output(self) -> Tensor:
        """float32 [B, H]: [CLS] of the last block through the pooler's tanh dense."""
        return self.pooled_output

    def get_sequence_output(self) -> Tensor:
        """float32 [B, S, H]: the output of the last block."""
        return self.sequence_output

    def get_all_encoder_layers(self) -> list[Tensor]:
        """L of float32 [B, S, H]: the output of every block."""
        return list(self.all_encoder_layers)

    def get_embedding_output(self) -> Tensor:
        """float32 [B, S, H]: the sum of the embeddings below the first block, normalised."""
        return self.embedding_output

    def get_embedding_table(self) -> Tensor:
        """float32 [vocab_size, H]: the word embeddings."""
        return self.embedding_table


def _make_encoder(config: bert_config.BertConfig, use_one_hot_embeddings: bool) -> Any:
    """An encoder without weights of its own; the caller passes them."""
    check_backend("tensorflow", "BertModel")
    with tf.Graph().as_default():  # a graph that never runs: its variables take no memory
        return BertEncoder(
            config,
            with_pooler=True,
            use_one_hot_embeddings=use_one_hot_embeddings,
            fuse_qkv=False,  # one variable for each official name
            initializer="zeros",
            dtype="float32",
            name="encoder",
        )


def _initializer(name: str, initializer_range: float) -> Any:
    """The initialiser that google-research/bert gives a variable."""
    if name.endswith("gamma"):
        return tf.compat.v1.ones_initializer()
    if name.endswith(("beta", "bias")):
        return tf.compat.v1.zeros_initializer()
    return tf.compat.v1.truncated_normal_initializer(stddev=initializer_range)


def get_shape_list(
    tensor: Tensor, expected_rank: int | Sequence[int] | None = None, name: str | None = None
) -> list[Any]:
    """The size of each dimension, an int, or a tensor where it is unknown; ValueError by rank."""
    ranks = [expected_rank] if isinstance(expected_rank, int) else expected_rank
    if ranks and tensor.shape.rank not in ranks:
        raise ValueError(f"{name or tensor.name} is {tensor.shape}; allowed ranks: {ranks}")
    sizes = tf.shape(tensor)
    return [sizes[i] if size is None else size for i, size in enumerate(tensor.shape)]


def create_attention_mask_from_input_mask(from_tensor: Tensor, to_mask: Tensor) -> Tensor:
    """float32 [B, F, T]: the mask [B, T] of a row, for each of the F rows of [B, F, …]."""
    batch, count = get_shape_list(from_tensor, [2, 3], "from_tensor")[:2]
    get_shape_list(to_mask, 2, "to_mask")
    return tf.ones([batch, count, 1]) * tf.cast(to_mask, tf.float32)[:, None]


def get_assignment_map_from_checkpoint(
    tvars: Sequence[Any], init_checkpoint: str
) -> tuple[dict[str, str], dict[str, int]]:
    """The variables that a checkpoint holds, as `tf.train.init_from_checkpoint` takes them.

    Args:
      tvars: variables, as `tf.trainable_variables()` lists them.
      init_checkpoint: a TF1 checkpoint.

    Returns:
      name -> the same name; and name -> 1 for the name with and without `:0`.

    Raises:
      CheckpointError: the checkpoint cannot be read, or lacks a weight of the BERT encoder. The
        original leaves such a weight random. The pooler's may be missing.
    """
    names = [variable.name.partition(":")[0] for variable in tvars]
    with _reading(init_checkpoint):
        stored = {name for name, _ in tf.train.list_variables(init_checkpoint)}
    lost = [name for name in names if name not in stored and _is_needed(name)]
    if lost:
        raise CheckpointError(
            f"{init_checkpoint} lacks {len(lost)} weights of the BERT encoder, which would stay "
            f"random: {some(lost)}; pass the TF1 checkpoint of this config (bert-features convert "
            "CHECKPOINT OUT --to tf1 makes one)"
        )
    assignment_map = {name: name for name in names if name in stored}
    initialized = {spelled: 1 for name in assignment_map for spelled in (name, f"{name}:0")}
    return assignment_map, initialized


@contextlib.contextmanager
def _reading(path: str | Path) -> Iterator[None]:
    try:
        yield
    except (tf.errors.OpError, OSError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"cannot read {path}: {reason[:200]}") from error


def _is_needed(name: str) -> bool:
    scope, canonical = weight_names.split_name(name, "tf1") or ("other/", "")
    return scope in ("", "bert/") and not canonical.startswith("pooler/")


__getattr__ = refusing("modeling")

"""BertFeatures: a Keras layer from ids to named outputs, on any backend of Keras.

Shape legend: `B` batch, `S` sequence, `D` width of an output.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

import keras
from keras import ops

from bert_features.checkpoints.convert import write_checkpoint
from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.modules.sentence_transformers import read_dense
from bert_features.checkpoints.pooling import auto_pooling, auto_text_changes
from bert_features.checkpoints.read import read_weights
from bert_features.config.bert_config import BertConfig, config_family
from bert_features.config.kinds import check_kinds
from bert_features.config.output_specs import (
    blocks_needed,
    check_special_ids,
    dense_modules,
    needs_pooler,
    needs_static_length,
    plan_outputs,
)
from bert_features.config.outputs import (
    OUTPUT_SETTINGS,
    OutputConfig,
    Outputs,
    check_floats,
    gather_outputs,
    uses_auto_pooling,
)
from bert_features.config.poolings import AutoPooling
from bert_features.encoder.inputs import checked_inputs
from bert_features.encoder.modeling import BertEncoder
from bert_features.encoder.pooling import compute_outputs, units_of_rows
from bert_features.encoder.step import MODEL_INPUTS, input_names
from bert_features.encoder.trained import Trainable, TrainedLayer
from bert_features.encoder.types import Tensor
from bert_features.errors import ConfigError, check_process
from bert_features.text.tokenizer_files import read_tokenizer

logger = logging.getLogger("bert_features")

# Settings of an output that a layer takes itself; `dtype` is the layer's own.
_OF_OUTPUTS = {*OUTPUT_SETTINGS} - {"dtype"}


@keras.saving.register_keras_serializable(package="bert_features")
class BertFeatures(TrainedLayer):
    """BERT features as a layer: ids in, named outputs out.

    Args:
      config: the architecture: a `BertConfig`, or the contents of its JSON file.
      outputs: what to compute, each an `OutputConfig` or its settings; by default each of the
        last four layers by itself, as `layer_output_0`, ….
      special_ids: the ids of [CLS] and [SEP], for outputs with `special_tokens` false.
      auto: what pooling `auto` means; by default the mean.
      use_dropout: apply the config's dropout rates in training, in the blocks that are trained.
      initializer: for kernels and embeddings; by default the truncated normal of the BERT paper.
      trainable: which weights are trained, see `BertEncoder`; none by default. The layer's config
        has what is trained when it is saved, also where single blocks were frozen later.
      dtype: a Keras dtype policy, such as `mixed_bfloat16`. It does not change the dtype of the
        outputs, which each output sets; float32 by default.
      name: the layer's name; by default `bert_features`, then `bert_features_1` and so on.
      **kwargs: instead of `outputs`, settings of a single one, such as `layers`, `level` and
        `pooling`; `layers` may also be set beside outputs, for those that name none. Also further
        arguments of a Keras layer.

    Attributes:
      bert_config: the architecture.
      output_specs: the outputs, resolved.
      input_names: the keys of the inputs.
      encoder: the `BertEncoder`; blocks above the highest layer of the outputs are not built.

    Raises:
      CheckpointError: `config` is not a BERT config.
      ConfigError: an output is wrong, or this architecture cannot compute it.
    """

    def __init__(
        self,
        config: BertConfig | Mapping[str, Any],
        outputs: Outputs | None = None,
        *,
        special_ids: Sequence[int] = (),
        auto: AutoPooling | Mapping[str, Any] | None = None,
        use_dropout: bool = True,
        initializer: Any = None,
        trainable: Trainable = False,
        dtype: Any = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        check_process()
        configs = _outputs_of(outputs, kwargs)
        super().__init__(dtype=dtype, name=name, **kwargs)
        if not isinstance(config, BertConfig):
            values = dict(config)
            config = BertConfig.from_dict(values, family=config_family(values))
        self.bert_config = config
        self._outputs = configs
        check_kinds(self._outputs, "a Keras layer")
        self._auto = AutoPooling(**auto) if isinstance(auto, Mapping) else auto
        self.output_specs = plan_outputs(self._outputs, config, auto=self._auto)
        check_floats((output.dtype for output in self._outputs), "a layer")
        check_special_ids(self.output_specs, special_ids)
        self.special_ids = tuple(special_ids)
        self.use_dropout = use_dropout
        self._initializer = initializer
        self.input_names = input_names(self.output_specs)
        with keras.name_scope(self.name):
            self.encoder = BertEncoder(
                config,
                num_blocks=blocks_needed(self.output_specs),
                with_pooler=needs_pooler(self.output_specs),
                use_dropout=use_dropout,
                initializer=initializer,
                dtype=self.dtype_policy,
                name="bert",
            )
        self._dense = {}
        for module in dense_modules(self.output_specs):
            for path, shape in module.shapes.items():
                field = path.replace("/", "_")
                weight = self.add_weight(shape, initializer, "float32", autocast=False, name=field)
                self._dense[path] = weight
                setattr(self, field, weight)  # a dict hides it from tf.train.Checkpoint
        self.trainable = trainable
        self.built = True

    def named_weights(self) -> dict[str, keras.Variable]:
        """The weights by the part of their paths behind the layer's or the encoder's."""
        dense = {weight.name: weight for weight in self._dense.values()}
        return self.encoder.named_weights() | dense

    def __repr__(self) -> str:
        outputs = ", ".join(
            f"{o.name} {o.dtype} [B, {'' if o.is_sequence else 'S, '}{o.width}]"
            for o in self.output_specs
        )
        trained = self.trained()
        if isinstance(trained, bool):
            state = "trainable" if trained else "frozen"
        else:
            state = f"training {', '.join(trained)}"
        return f"<BertFeatures {self.name}, {state}: {outputs}>"

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint: str | Path = "minilm",
        outputs: Outputs | None = None,
        *,
        config_file: str | Path | None = None,
        vocab_file: str | Path | None = None,
        hidden_act: Any = None,
        **settings: Any,
    ) -> Self:
        """Makes the layer of a checkpoint, with its weights.

        A warning is logged if pooling `auto` also changes texts, which this layer does not see.

        Args:
          checkpoint: anything `find_checkpoint` accepts.
          outputs: see the class.
          config_file: the config, if it is not beside the weights.
          vocab_file: the vocabulary, if it is not beside the weights.
          hidden_act: the form of GELU; by default the form of the checkpoint's family.
          **settings: further arguments of the class: layers, level, trainable, use_dropout, dtype,
            name, ….

        Raises:
          CheckpointError: the checkpoint is not usable, or lacks the pooler that an output needs.
          ConfigError: an output is wrong, or this architecture cannot compute it.
        """
        source = find_checkpoint(
            checkpoint, config_file=config_file, vocab_file=vocab_file, hidden_act=hidden_act
        )
        if source.vocab_file is not None:
            vocabulary = read_tokenizer(source.vocab_file, source.config.model_type)
            settings.setdefault("special_ids", vocabulary.frame.special_ids)
        # Making random values that the checkpoint's replace at once would take seconds.
        initializer = settings.pop("initializer", None)
        configs = _outputs_of(outputs, settings)
        lower_cases = source.do_lower_case is True
        changes = auto_text_changes(source, configs, tokenizer_lower_cases=lower_cases)
        if described := changes.describe():
            message = "%s: pooling 'auto' %s; this layer takes ids, so do that before you tokenise"
            logger.warning(message, source.name, described)
        # A saved model needs no checkpoint to know it.
        if uses_auto_pooling(configs):
            settings["auto"] = auto_pooling(source, configs)
        layer = cls(source.config, configs, initializer="zeros", **settings)
        weights = read_weights(source, pooler=needs_pooler(layer.output_specs))
        layer.encoder.load_weights_dict(weights)
        dense = read_dense(source.sentence_transformers, dense_modules(layer.output_specs))
        for name, value in dense.items():
            layer._dense[name].assign(value)
        # A copy from the layer's config has no weights yet and needs the usual random values.
        layer._initializer = initializer
        return layer

    def save_checkpoint(
        self, folder: str | Path, source: str | Path = "minilm", *, overwrite: bool = False
    ) -> Path:
        """Writes the encoder with its present weights as a checkpoint (safetensors).

        The command line and `FeatureExtractor` take it, and so do other programs. It has the blocks
        and the pooler that the outputs of this layer need, and no heads, which a warning says.

        Args:
          folder: the directory to write.
          source: the checkpoint that the layer was made from: its vocabulary, its casing and the
            settings of sentence-transformers beside it are copied.
          overwrite: whether an earlier checkpoint at `folder` may be replaced.

        Returns:
          `folder`.

        Raises:
          CheckpointError: `source` cannot be found.
          ConfigError: the outputs need no block, or not all of an architecture that is only whole
            a checkpoint: ModernBERT, and ALBERT with several groups.
          OutputError: `folder` exists, or cannot be written.
        """
        config, blocks = self.bert_config, self.encoder.num_blocks
        if not blocks:
            raise ConfigError("this layer has 0 blocks, which is no checkpoint; add layer -1")
        apart = config.final_norm or config.distinct_blocks not in (1, config.num_hidden_layers)
        if apart and blocks < config.num_hidden_layers:
            raise ConfigError(
                f"this layer has {blocks} of {config.num_hidden_layers} layers, and a "
                f"{config.model_type} is only a checkpoint with all of them; add an output of "
                "layer -1"
            )
        config = config.model_copy(update={"num_hidden_layers": blocks})
        target = replace(find_checkpoint(source), config=config)
        weights = self.encoder.weights_dict()
        weights |= {n: ops.convert_to_numpy(ops.cast(w, w.dtype)) for n, w in self._dense.items()}
        return write_checkpoint(target, weights, folder, to="safetensors", overwrite=overwrite)

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Checks the inputs, then calls the layer, see `call`."""
        inputs = checked_inputs(inputs, self.input_names, self.bert_config)
        static = needs_static_length(self.output_specs)
        if static and inputs["input_word_ids"].shape[1] is None:
            raise ConfigError(
                f"the inputs have no fixed length; these outputs need one: {', '.join(static)}; "
                "give the length, as in keras.Input((128,), dtype='int32')"
            )
        return super().__call__(inputs, *args, **kwargs)

    def call(self, inputs: Mapping[str, Tensor], training: bool | None = None) -> dict[str, Tensor]:
        """Computes the outputs of a batch.

        Args:
          inputs: `input_word_ids`, `input_mask` (1 or True = real) and `input_type_ids`, integers
            [B, S] each; and, for outputs of level `word`, `word_indices`: the number of each
            token's word in its row, from 0, or -1 for tokens that belong to no word; for `span`
            `span_begins` and `span_ends`, see `config.packing`. Other keys are ignored.
          training: whether dropout applies in what is trained.

        Returns:
          Output name -> [B, S, D] for tokens, words and spans, [B, D] for the sequence.

        Raises:
          ConfigError: an input is missing, not of integers, too long, of another shape than the
            others, or has values out of range, as far as they are known before the device has them.
          DeviceError: see `check_process`.
        """
        check_process()
        if inputs["input_word_ids"].shape[0] == 0:
            specs = self.compute_output_spec(inputs)
            return {name: ops.zeros(spec.shape, spec.dtype) for name, spec in specs.items()}
        batch = {name: ops.cast(inputs[name], "int32") for name in self.input_names}
        if None in inputs["input_word_ids"].shape:
            # Shapes that only the device knows must not differ: attention reshapes by the mask's.
            shape = ops.shape(inputs["input_word_ids"])
            batch = {name: ops.broadcast_to(each, shape) for name, each in batch.items()}
        encoded = self.encoder(
            {name: batch[name] for name in MODEL_INPUTS}, training=bool(training)
        )
        return compute_outputs(encoded, batch, self.output_specs, self.special_ids, self._dense)

    def compute_output_spec(
        self, inputs: Mapping[str, Tensor], training: Any = None
    ) -> dict[str, keras.KerasTensor]:
        """The shapes and dtypes of `call`'s outputs."""
        del training
        batch, length = inputs["input_word_ids"].shape
        return {
            output.name: keras.KerasTensor(
                (batch, output.width) if output.is_sequence else (batch, length, output.width),
                output.dtype,
            )
            for output in self.output_specs
        }

    def compute_mask(self, inputs: Mapping[str, Tensor], mask: Any = None) -> dict[str, Any]:
        """For each output which tokens, words or spans a row has, bool [B, S]; None for sequences.

        Layers of Keras behind an output, such as GlobalAveragePooling1D, count no others.
        """
        del mask
        return {output.name: units_of_rows(inputs, output.level) for output in self.output_specs}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The layer that `get_config` describes."""
        layer: Self = super().from_config(config | {"config": BertConfig(**config["config"])})
        return layer

    def get_config(self) -> dict[str, Any]:
        """Everything that `from_config` needs; it does not contain the weights."""
        return {
            **super().get_config(),
            "trainable": self.trained(),
            "config": self.bert_config.model_dump(mode="json"),
            "outputs": [o.model_dump(mode="json", exclude_defaults=True) for o in self._outputs],
            "special_ids": list(self.special_ids),
            "auto": None if self._auto is None else asdict(self._auto),
            "use_dropout": self.use_dropout,
            "initializer": keras.initializers.serialize(keras.initializers.get(self._initializer))
            if self._initializer is not None
            else None,
        }


def _outputs_of(outputs: Outputs | None, settings: dict[str, Any]) -> tuple[OutputConfig, ...]:
    """The outputs, or the single one whose settings are among these, from which they are taken."""
    flat = {name: settings.pop(name) for name in [*settings] if name in _OF_OUTPUTS}
    return gather_outputs(flat, outputs)

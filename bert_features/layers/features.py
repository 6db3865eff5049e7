"""Keras layers: BERT features inside a model of one's own, and text made ready for them.

`BertFeatures` runs on whatever backend Keras runs on; `BertTextInput` on TensorFlow alone.

Shape legend: `B` batch, `S` sequence, `D` width of an output.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import keras
from keras import ops

from bert_features.batches.truncation import MIN_SEQ_LENGTH
from bert_features.checkpoints.find import find_checkpoint, read_weights
from bert_features.config.bert_config import BertConfig, config_family
from bert_features.config.outputs import (
    DEFAULT_LAYERS,
    OutputConfig,
    OutputSpec,
    blocks_needed,
    needs_pooler,
    plan_outputs,
)
from bert_features.encoder.modeling import BertEncoder
from bert_features.encoder.pooling import compute_outputs
from bert_features.encoder.step import MODEL_INPUTS, WORD_INDICES
from bert_features.errors import ConfigError
from bert_features.text.vocabulary import CLS, SEP, read_vocab

if TYPE_CHECKING:
    import tensorflow as tf

PACKAGE = "bert_features"  # of the names under which Keras finds the layers again

Outputs = Sequence[OutputConfig | Mapping[str, Any]]


def check_outputs(outputs: Outputs | None) -> tuple[OutputConfig, ...]:
    """Outputs as settings; without any the one of a run that says nothing: each layer by itself.

    Raises:
      ConfigError: a setting is unknown, or has a value that is not allowed.
    """
    if outputs is None:
        return (OutputConfig(),)
    if isinstance(outputs, str | Mapping) or not outputs:
        raise ConfigError(f"outputs is {outputs!r}; allowed: a list of dicts, one for each output")
    return tuple(
        output
        if isinstance(output, OutputConfig)
        else OutputConfig.of(output, source=f"outputs[{i}]")
        for i, output in enumerate(outputs)
    )


def check_special_ids(outputs: Sequence[OutputSpec], special_ids: Sequence[int]) -> None:
    """Refuses outputs that leave [CLS] and [SEP] out where their ids are not known.

    Raises:
      ConfigError: so it is.
    """
    for output in outputs:
        if not output.special_tokens and not special_ids:
            raise ConfigError(
                f"output '{output.name}' leaves out [CLS] and [SEP], and their ids are not known; "
                "pass special_ids, or a checkpoint with a vocabulary"
            )


def needs_static_length(outputs: Sequence[OutputSpec]) -> list[str]:
    """The names of outputs that can only be computed where S is known when the graph is made."""
    return [o.name for o in outputs if o.level == "word" or o.pooling == "last"]


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertFeatures(keras.layers.Layer):
    """BERT features as a layer: ids in, named outputs out.

    Args:
      config: the architecture: a `BertConfig`, or the contents of its JSON file.
      outputs: what is wanted, each the settings of an `OutputConfig`; by default each of `layers`
        by itself, as `layer_output_0`, ….
      layers: LAYERS of outputs that name none.
      special_ids: the ids of [CLS] and [SEP], for outputs with `special_tokens` false.
      use_dropout: apply the config's dropout rates in training; not while the layer is frozen.
      initializer: of kernels and embeddings; by default the truncated normal of the BERT paper.
      trainable: whether the weights are trained; frozen by default.
      dtype: a Keras dtype policy, such as `mixed_bfloat16`. Outputs have the dtype that they ask
        for, float32 by default, whatever the policy.
      name: of the layer.
      **kwargs: further arguments of a Keras layer.

    Attributes:
      bert_config: the architecture.
      output_specs: the outputs, resolved.
      input_names: the keys of the inputs.
      encoder: the `BertEncoder`; blocks above the highest layer of the outputs are not built.

    Raises:
      CheckpointError: `config` is not a BERT config.
      ConfigError: an output is not to be had of it.
    """

    def __init__(
        self,
        config: BertConfig | Mapping[str, Any],
        outputs: Outputs | None = None,
        *,
        layers: Sequence[int | str] = DEFAULT_LAYERS,
        special_ids: Sequence[int] = (),
        use_dropout: bool = True,
        initializer: Any = None,
        trainable: bool = False,
        dtype: Any = None,
        name: str = "bert_features",
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype=dtype, name=name, **kwargs)
        if not isinstance(config, BertConfig):
            values = dict(config)
            config = BertConfig.from_dict(values, family=config_family(values))
        self.bert_config = config
        self._outputs = check_outputs(outputs)
        self._layers_setting = tuple(layers)
        self.output_specs = plan_outputs(self._outputs, config, layers=self._layers_setting)
        check_special_ids(self.output_specs, special_ids)
        self.special_ids = tuple(special_ids)
        self.use_dropout = use_dropout
        self._initializer = initializer
        of_words = any(output.level == "word" for output in self.output_specs)
        self.input_names = (*MODEL_INPUTS, WORD_INDICES) if of_words else MODEL_INPUTS
        self.encoder = BertEncoder(
            config,
            num_blocks=blocks_needed(self.output_specs),
            with_pooler=needs_pooler(self.output_specs),
            use_dropout=use_dropout,
            initializer=initializer,
            dtype=self.dtype_policy,
        )
        self.trainable = trainable  # only now: it passes the word on to the encoder
        self.built = True

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

        Args:
          checkpoint: whatever `find_checkpoint` takes.
          outputs: as of the class.
          config_file: the config, if not beside the weights.
          vocab_file: the vocabulary, if not beside the weights.
          hidden_act: the form of GELU, if not the one of the checkpoint's family.
          **settings: further arguments of the class: layers, trainable, use_dropout, dtype, name.

        Raises:
          CheckpointError: the checkpoint is not usable, or lacks the pooler that an output needs.
          ConfigError: an output is not to be had of it.
        """
        found = find_checkpoint(
            checkpoint, config_file=config_file, vocab_file=vocab_file, hidden_act=hidden_act
        )
        if found.vocab_file is not None:
            tokens = read_vocab(found.vocab_file)
            special = [tokens.index(piece) for piece in (CLS, SEP) if piece in tokens]
            settings.setdefault("special_ids", special)
        # Random values that the checkpoint's replace at once would cost seconds.
        initializer = settings.pop("initializer", None)
        layer = cls(found.config, outputs, initializer="zeros", **settings)
        weights = read_weights(found, pooler=needs_pooler(layer.output_specs))
        layer.encoder.load_weights_dict(weights)
        # A copy made from the layer's config alone starts as one made by the constructor does.
        layer._initializer = initializer
        return layer

    def call(self, inputs: Mapping[str, Any], training: bool | None = None) -> dict[str, Any]:
        """The outputs of a batch.

        Args:
          inputs: `input_word_ids`, `input_mask` (1 = real) and `input_type_ids`, integers [B, S]
            each; and `word_indices`, if an output is of words: the number of each token's word in
            its row, from 0, and -1 for tokens of none. Other keys are passed over.
          training: whether dropout applies, if the layer is trainable.

        Returns:
          Output name -> [B, S, D] for tokens and words, [B, D] for the sequence.

        Raises:
          ConfigError: an input is missing, not of integers, or too long.
        """
        self._check_inputs(inputs)
        batch = {name: ops.cast(inputs[name], "int32") for name in self.input_names}
        encoded = self.encoder(
            {name: batch[name] for name in MODEL_INPUTS},
            training=bool(training) and self.trainable,
        )
        return compute_outputs(encoded, batch, self.output_specs, self.special_ids)

    def compute_output_spec(self, inputs: Mapping[str, Any], training: Any = None) -> Any:
        """Shapes and dtypes of `call`'s outputs."""
        del training
        self._check_inputs(inputs)
        batch, length = inputs["input_word_ids"].shape
        return {
            output.name: keras.KerasTensor(
                (batch, output.width)
                if output.level == "sequence"
                else (batch, length, output.width),
                output.dtype,
            )
            for output in self.output_specs
        }

    def _check_inputs(self, inputs: Mapping[str, Any]) -> None:
        if not isinstance(inputs, Mapping):
            raise ConfigError(
                f"the inputs are {type(inputs).__name__}; allowed: a dict of "
                f"{', '.join(self.input_names)}"
            )
        missing = [name for name in self.input_names if name not in inputs]
        if missing:
            raise ConfigError(
                f"the inputs lack {', '.join(missing)}; they hold {', '.join(inputs) or 'nothing'}"
            )
        for name in self.input_names:
            dtype = keras.backend.standardize_dtype(inputs[name].dtype)
            if "int" not in dtype:
                raise ConfigError(
                    f"{name} is {dtype}; allowed: integers, as of "
                    f"keras.Input((S,), dtype='int32', name='{name}')"
                )
            if len(inputs[name].shape) != 2:
                raise ConfigError(f"{name} has the shape {inputs[name].shape}; allowed: [B, S]")
        self._check_length(inputs["input_word_ids"].shape[1])

    def _check_length(self, length: int | None) -> None:
        positions = self.bert_config.max_position_embeddings
        if length is not None and length > positions:
            raise ConfigError(f"the inputs have {length} tokens; this model has {positions}")
        static = needs_static_length(self.output_specs)
        if length is None and static:
            raise ConfigError(
                f"the inputs are of no fixed length, which {', '.join(static)} must have; give the "
                "length, as in keras.Input((128,), dtype='int32')"
            )

    def get_config(self) -> dict[str, Any]:
        """Everything that `from_config` needs; the weights are not in it."""
        return {
            **super().get_config(),
            "config": self.bert_config.model_dump(mode="json"),
            "outputs": [o.model_dump(mode="json", exclude_defaults=True) for o in self._outputs],
            "layers": list(self._layers_setting),
            "special_ids": list(self.special_ids),
            "use_dropout": self.use_dropout,
            "initializer": keras.initializers.serialize(keras.initializers.get(self._initializer))
            if self._initializer is not None
            else None,
        }


@keras.saving.register_keras_serializable(package=PACKAGE)
class BertTextInput(keras.layers.Layer):
    """Texts to the inputs of `BertFeatures`: tokenised, cut as the official script does, padded.

    A part of a model, or of a tf.data pipeline by `.map`; TensorFlow only. The vocabulary is in the
    layer's config, so a saved model needs no other file.

    Args:
      vocabulary: the pieces in the order of their ids, or the path of a `vocab.txt`.
      do_lower_case: whether to lower-case and strip accents, as uncased checkpoints need.
      max_seq_length: S, the length of every row; what does not fit is cut off.
      tokens_lost: whether to tell, as `tokens_lost` int32 [B], how many pieces were cut off.
      name: of the layer.
      **kwargs: further arguments of a Keras layer.

    Attributes:
      tokenizer: the `FullTokenizer`.

    Raises:
      CheckpointError: the vocabulary cannot be read, or lacks [UNK], [CLS] or [SEP].
      ConfigError: `max_seq_length` leaves no room for a token, or Keras is not on TensorFlow.
    """

    def __init__(
        self,
        vocabulary: Sequence[str] | str | Path,
        *,
        do_lower_case: bool = True,
        max_seq_length: int = 128,
        tokens_lost: bool = False,
        name: str = "bert_text_input",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **{"trainable": False} | kwargs)
        if keras.backend.backend() != "tensorflow":
            raise ConfigError(
                f"Keras runs on {keras.backend.backend()}; BertTextInput needs "
                "KERAS_BACKEND=tensorflow"
            )
        from bert_features.text.tokenization import FullTokenizer

        if max_seq_length < MIN_SEQ_LENGTH:
            raise ConfigError(
                f"max_seq_length is {max_seq_length}; allowed: an integer of at least "
                f"{MIN_SEQ_LENGTH}: [CLS], a token, [SEP]"
            )
        self.tokenizer = FullTokenizer(vocabulary, do_lower_case=do_lower_case)
        lacking = [piece for piece in (CLS, SEP) if piece not in self.tokenizer.vocab]
        if lacking:
            raise ConfigError(f"the vocabulary lacks {', '.join(lacking)}; pass one of BERT's")
        self.max_seq_length = max_seq_length
        self.tokens_lost = tokens_lost
        self.supports_jit = False  # XLA has no strings
        # As Keras's own TextVectorization: a list of str is one argument, not many.
        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True
        self.built = True

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint: str | Path = "minilm",
        *,
        vocab_file: str | Path | None = None,
        do_lower_case: bool | None = None,
        **settings: Any,
    ) -> Self:
        """Makes the layer of a checkpoint: its vocabulary, its casing.

        Args:
          checkpoint: whatever `find_checkpoint` takes.
          vocab_file: the vocabulary, if not beside the weights.
          do_lower_case: the casing; by default what the checkpoint tells.
          **settings: further arguments of the class: max_seq_length, tokens_lost, name.

        Raises:
          CheckpointError: the checkpoint, its vocabulary or its casing is not usable.
          ConfigError: nothing tells the casing, or rows are longer than the checkpoint's positions.
        """
        from bert_features.extraction.preparation import make_tokenizer

        found = find_checkpoint(checkpoint, vocab_file=vocab_file)
        tokenizer = make_tokenizer(found, do_lower_case)
        layer = cls(tokenizer.tokens, do_lower_case=tokenizer.do_lower_case, **settings)
        positions = found.config.max_position_embeddings
        if layer.max_seq_length > positions:
            raise ConfigError(
                f"max_seq_length is {layer.max_seq_length}; {found.name} has {positions} "
                "positions, take at most that"
            )
        return layer

    def call(self, inputs: Any) -> dict[str, "tf.Tensor"]:
        """Rows of [CLS] a [SEP] b [SEP].

        Args:
          inputs: texts, string [B]; or pairs, as a tuple (a, b) or a dict of `text_a` and `text_b`;
            an empty text_b is none. A single text, string [], gives a single row.

        Returns:
          `input_word_ids`, `input_mask`, `input_type_ids` int32 [B, S]; and `tokens_lost` int32
          [B], if asked for.

        Raises:
          ConfigError: the inputs are something else.
        """
        import tensorflow as tf

        first, second = (tf.convert_to_tensor(t, tf.string) for t in _texts(inputs))
        if first.shape.rank not in (0, 1) or second.shape.rank != first.shape.rank:
            raise ConfigError(
                f"the texts have the shapes {first.shape} and {second.shape}; allowed: string [B]"
            )
        single = first.shape.rank == 0
        if single:
            first, second = first[None], second[None]
        rows = encode_texts(self.tokenizer, first, second, seq_length=self.max_seq_length)
        if not self.tokens_lost:
            del rows["tokens_lost"]
        return {name: column[0] for name, column in rows.items()} if single else rows

    def compute_output_spec(self, inputs: Any) -> dict[str, keras.KerasTensor]:
        """Shapes and dtypes of `call`'s outputs."""
        batch = tuple(_texts(inputs)[0].shape)
        spec = dict.fromkeys(MODEL_INPUTS, (*batch, self.max_seq_length))
        if self.tokens_lost:
            spec["tokens_lost"] = batch
        return {name: keras.KerasTensor(shape, "int32") for name, shape in spec.items()}

    def get_config(self) -> dict[str, Any]:
        """Everything that `from_config` needs, the vocabulary with it."""
        return {
            **super().get_config(),
            "vocabulary": list(self.tokenizer.tokens),
            "do_lower_case": self.tokenizer.do_lower_case,
            "max_seq_length": self.max_seq_length,
            "tokens_lost": self.tokens_lost,
        }


def _texts(inputs: Any) -> tuple[Any, Any]:
    """text_a and text_b, of which the latter is empty where there is none."""
    if isinstance(inputs, Mapping):
        if "text_a" not in inputs or inputs.keys() - {"text_a", "text_b"}:
            raise ConfigError(
                f"the inputs hold {', '.join(inputs) or 'nothing'}; allowed: text_a, text_b"
            )
        inputs = tuple(inputs[name] for name in ("text_a", "text_b") if name in inputs)
    if not isinstance(inputs, tuple):
        inputs = (inputs,)
    if len(inputs) not in (1, 2):
        raise ConfigError(f"the inputs are {len(inputs)} texts; allowed: one, or a pair (a, b)")
    return (inputs[0], inputs[1]) if len(inputs) == 2 else (inputs[0], _empty_like(inputs[0]))


def _empty_like(texts: Any) -> Any:
    if isinstance(texts, keras.KerasTensor):
        return texts
    import tensorflow as tf

    return tf.fill(tf.shape(texts), "")


def encode_texts(
    tokenizer: Any, first: "tf.Tensor", second: "tf.Tensor", *, seq_length: int, pad: bool = True
) -> dict[str, "tf.Tensor"]:
    """Texts as rows of ids, in a TensorFlow graph.

    Args:
      tokenizer: a `FullTokenizer`.
      first: string [B], text_a.
      second: string [B], text_b; empty for none.
      seq_length: the tokens of the longest row.
      pad: to `seq_length`; else to the longest row that there is.

    Returns:
      `input_word_ids`, `input_mask`, `input_type_ids` int32 [B, S]; `tokens_lost` int32 [B].
    """
    import tensorflow as tf

    from bert_features.batches.packing import pack

    # AutoGraph's reading of the source takes two seconds, and nothing here needs it.
    encode = tf.autograph.experimental.do_not_convert(pack)
    rows, type_starts, lost = encode(tokenizer, first, second, seq_length=seq_length)
    ids = rows.to_tensor(shape=[None, seq_length if pad else None])
    position = tf.range(tf.shape(ids, rows.row_splits.dtype)[1], dtype=rows.row_splits.dtype)
    mask = position < rows.row_lengths()[:, None]
    of_b = mask & (position >= tf.cast(type_starts, position.dtype)[:, None])
    shape = ids.shape
    return {
        "input_word_ids": ids,
        "input_mask": tf.ensure_shape(tf.cast(mask, tf.int32), shape),
        "input_type_ids": tf.ensure_shape(tf.cast(of_b, tf.int32), shape),
        "tokens_lost": lost,
    }

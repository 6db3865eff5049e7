"""BertTextInput: a Keras layer from texts to the inputs of `BertFeatures`; TensorFlow only.

Shape legend: `B` batch, `S` sequence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import keras

from bert_features.batches.long_text import MIN_SEQ_LENGTH
from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.tokenizer import resolve_vocabulary
from bert_features.encoder.forms import check_backend
from bert_features.encoder.inputs import is_only_built, refuse_legacy
from bert_features.encoder.step import MODEL_INPUTS
from bert_features.encoder.types import Tensor
from bert_features.errors import CheckpointError, ConfigError, check_process
from bert_features.text.tokenizer_files import WordPieceFile, rules_of

if TYPE_CHECKING:
    import tensorflow as tf


@keras.saving.register_keras_serializable(package="bert_features")
class BertTextInput(keras.layers.Layer):
    """Tokenises texts, truncates them as the official script does, and pads them.

    It is a part of a model or, by `.map`, of a tf.data pipeline; TensorFlow only. The vocabulary is
    in the layer's config, so a saved model needs no other file.

    Args:
      vocabulary: the pieces in the order of their ids, or the path of a `vocab.txt`.
      do_lower_case: whether to lower-case and strip accents, as uncased checkpoints need.
      switches: further arguments of `FullTokenizer`, by name.
      max_seq_length: S, the length of every row; longer texts are truncated.
      tokens_lost: also return `tokens_lost` int32 [B], the number of pieces cut off.
      has_types: whether tokens of text_b have type 1; not for a model with one type.
      name: the layer's name; by default `bert_text_input`, then `bert_text_input_1` and so on.
      **kwargs: further arguments of a Keras layer.

    Attributes:
      tokenizer: the `FullTokenizer`.

    Raises:
      CheckpointError: the vocabulary cannot be read, or lacks [UNK].
      ConfigError: the vocabulary lacks [CLS] or [SEP], `max_seq_length` leaves no room for a token,
        or Keras does not run on TensorFlow.
    """

    def __init__(
        self,
        vocabulary: Sequence[str] | str | Path,
        *,
        do_lower_case: bool = True,
        switches: Mapping[str, Any] = MappingProxyType({}),
        max_seq_length: int = 128,
        tokens_lost: bool = False,
        has_types: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **{"trainable": False} | kwargs)
        check_backend("tensorflow", "BertTextInput")
        from bert_features.text.tokenization import FullTokenizer

        if max_seq_length < MIN_SEQ_LENGTH:
            raise ConfigError(
                f"max_seq_length is {max_seq_length}; allowed: an integer of at least "
                f"{MIN_SEQ_LENGTH}: [CLS], a token, [SEP]"
            )
        self.tokenizer = FullTokenizer(vocabulary, do_lower_case=do_lower_case, **switches)
        try:
            frame = self.tokenizer.frame
        except CheckpointError as error:
            raise ConfigError(f"{error}; pass one of BERT's") from error
        self.tokenizer.frame = replace(frame, has_types=frame.has_types and has_types)
        self.max_seq_length = max_seq_length
        self.tokens_lost = tokens_lost
        self.supports_jit = False  # XLA has no strings
        # As in Keras' TextVectorization: a list of str is one argument, not many.
        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True
        self.built = True

    def __repr__(self) -> str:
        rows = f"int32 [B, {self.max_seq_length}]"
        return f"<BertTextInput {self.name}: {rows}, {self.tokenizer!r}>"

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
          checkpoint: anything `find_checkpoint` accepts.
          vocab_file: the vocabulary, if it is not beside the weights.
          do_lower_case: whether to lower-case; by default what the checkpoint records.
          **settings: further arguments of the class: max_seq_length, tokens_lost, name. If
            sentence-transformers wrote the checkpoint, max_seq_length is by default its own.

        Raises:
          CheckpointError: the checkpoint, its vocabulary or its casing is not usable.
          ConfigError: the casing is unknown, or rows are longer than the checkpoint allows.
        """
        source = find_checkpoint(checkpoint, vocab_file=vocab_file)
        file, lower_cases = resolve_vocabulary(source, do_lower_case)
        if not isinstance(file, WordPieceFile):
            rules = "".join(f", {rule}" for rule in rules_of(file, lower_cases))
            raise ConfigError(
                f"{source.name} has no WordPiece vocabulary ({source.vocab_file}{rules}), which "
                "BertTextInput needs; pass ids to BertFeatures, or export_savedmodel(signature="
                "'text') if the vocabulary is a SentencePiece model"
            )
        positions = source.config.positions
        trained = source.sentence_transformers
        if trained is not None and trained.unsupported is None:
            settings.setdefault("max_seq_length", trained.row_length(positions))
        settings.setdefault("has_types", file.has_types and source.config.type_vocab_size > 1)
        switches = {"model_type": file.model_type, **file.rules}
        layer = cls(file.tokens, do_lower_case=lower_cases, switches=switches, **settings)
        if layer.max_seq_length > positions:
            raise ConfigError(
                f"max_seq_length is {layer.max_seq_length}; {source.name} has {positions} "
                f"positions, allowed: at most {positions}"
            )
        return layer

    @property
    def compute_dtype(self) -> str:
        """That of the texts: a Sequential model takes inputs of the dtype of its first layer."""
        return "string"

    variable_dtype = compute_dtype

    def call(self, inputs: Any) -> dict[str, "tf.Tensor"]:
        """Rows of [CLS] a [SEP] b [SEP].

        Args:
          inputs: texts, string [B]; or pairs, as a tuple (a, b) or a dict of `text_a` and `text_b`,
            where an empty text_b means none. A single text, string [], gives a single row.

        Returns:
          `input_word_ids`, `input_mask`, `input_type_ids` int32 [B, S]; and `tokens_lost` int32
          [B], if the layer has the option of this name.

        Raises:
          ConfigError: the inputs are something else.
          DeviceError: see `check_process`.
        """
        check_process()
        import tensorflow as tf

        from bert_features.batches.packing import encode_texts

        texts = _texts(inputs)
        refuse_legacy(texts)
        if is_only_built():
            texts = tf.strings.as_string(texts[0]), tf.strings.as_string(texts[1])
        first, second = (tf.convert_to_tensor(t, tf.string) for t in texts)
        if first.shape.rank not in (0, 1) or second.shape.rank != first.shape.rank:
            raise ConfigError(
                f"the texts have shapes {first.shape} and {second.shape}; allowed: string [B]"
            )
        single = first.shape.rank == 0
        if single:
            first, second = first[None], second[None]
        rows = encode_texts(self.tokenizer, first, second, seq_length=self.max_seq_length)
        if not self.tokens_lost:
            del rows["tokens_lost"]
        return {name: column[0] for name, column in rows.items()} if single else rows

    def compute_output_spec(self, inputs: Any) -> dict[str, keras.KerasTensor]:
        """The shapes and dtypes of `call`'s outputs."""
        batch = tuple(_texts(inputs)[0].shape)
        spec = dict.fromkeys(MODEL_INPUTS, (*batch, self.max_seq_length))
        if self.tokens_lost:
            spec["tokens_lost"] = batch
        return {name: keras.KerasTensor(shape, "int32") for name, shape in spec.items()}

    def get_config(self) -> dict[str, Any]:
        """Everything that `from_config` needs, including the vocabulary."""
        return {
            **super().get_config(),
            "vocabulary": list(self.tokenizer.tokens),
            "do_lower_case": self.tokenizer.do_lower_case,
            "switches": self.tokenizer.switches,
            "max_seq_length": self.max_seq_length,
            "tokens_lost": self.tokens_lost,
            "has_types": self.tokenizer.frame.has_types,
        }


def _texts(inputs: Any) -> tuple[Tensor, Tensor]:
    """text_a and text_b, which is empty where there is none."""
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


def _empty_like(texts: Tensor) -> Tensor:
    if isinstance(texts, keras.KerasTensor):
        return texts
    import tensorflow as tf

    return tf.fill(tf.shape(texts), "")

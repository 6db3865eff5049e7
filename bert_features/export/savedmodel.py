"""Export of features as a TensorFlow SavedModel that needs nothing of this package; and its reader.

An export of `text` takes strings, its tokenizer inside. One of `ids` is an encoder in the form of
TF-Hub's BERTs (https://www.tensorflow.org/hub/common_saved_model_apis/text, transformer encoders).
Both hold all weights of the checkpoint under the Model Garden's names, and its config and
vocabulary as assets: so an export is a checkpoint too.

Shape legend: `B` batch, `S` sequence, `H` hidden, `L` blocks, `D` width of an output.
"""

import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import keras
import numpy as np
import tensorflow as tf

from bert_features.checkpoints import weight_names
from bert_features.checkpoints.convert import config_values
from bert_features.checkpoints.find import (
    Checkpoint,
    check_vocab,
    find_checkpoint,
    has_pooler,
    read_weights,
)
from bert_features.checkpoints.weight_readers import weight_files
from bert_features.config.outputs import (
    DEFAULT_LAYERS,
    OutputSpec,
    blocks_needed,
    needs_pooler,
    plan_outputs,
)
from bert_features.encoder.modeling import BertEncoder
from bert_features.encoder.pooling import compute_outputs
from bert_features.encoder.step import MODEL_INPUTS
from bert_features.errors import (
    CheckpointError,
    ConfigError,
    InputError,
    OutputError,
)
from bert_features.extraction.preparation import make_tokenizer
from bert_features.files import check_target, replacing, storage_errors
from bert_features.layers.features import (
    Outputs,
    check_outputs,
    check_special_ids,
    encode_texts,
    needs_static_length,
)
from bert_features.official.features import MIN_SEQ_LENGTH
from bert_features.text.tokenization import FullTokenizer, utf8
from bert_features.text.vocabulary import CLS, SEP, read_vocab

logger = logging.getLogger("bert_features")

Signature = Literal["text", "ids"]
SAVED_MODEL = "saved_model.pb"
_DEFAULT_LENGTH = 128

# What an export of each signature gives besides the outputs asked for.
_RESERVED: dict[str, tuple[str, ...]] = {
    "text": ("input_word_ids", "input_mask"),
    "ids": ("default", "pooled_output", "sequence_output", "encoder_outputs"),
}


@dataclass(frozen=True)
class _Source:
    """What an export is made of.

    Attributes:
      checkpoint: where the weights are.
      outputs: what is asked for.
      tokenizer: the checkpoint's; None where an export of ids knows none.
      max_seq_length: the tokens of the longest row made of a text.
      pooler: whether the checkpoint has one.
    """

    checkpoint: Checkpoint
    outputs: tuple[OutputSpec, ...]
    tokenizer: FullTokenizer | None
    max_seq_length: int
    pooler: bool

    @property
    def special_ids(self) -> list[int]:
        """The ids of [CLS] and [SEP], where they are known."""
        if self.tokenizer is None:
            return []
        return self.tokenizer.convert_tokens_to_ids([CLS, SEP])


def export_savedmodel(
    to: str | Path,
    *,
    signature: Signature = "text",
    checkpoint: str | Path | Checkpoint = "minilm",
    outputs: Outputs | None = None,
    layers: Sequence[int | str] | None = None,
    max_seq_length: int | None = None,
    config_file: str | Path | None = None,
    vocab_file: str | Path | None = None,
    do_lower_case: bool | None = None,
    hidden_act: Any = None,
    overwrite: bool = False,
) -> Path:
    """Writes a SavedModel, whole or not at all; its arithmetic is float32.

    `text`: called with strings [B] (`serving_default`: `text`), it gives the outputs by name, and
    `input_word_ids` and `input_mask` int32 [B, S], S the longest row of the batch.

    `ids`: called with a dict of `input_word_ids`, `input_mask` and `input_type_ids`, int32 [B, S],
    it gives `sequence_output` [B, S, H], `encoder_outputs`, a list of L of them, `pooled_output`
    [B, H] and the same as `default`; and the outputs asked for. It can be trained, with dropout.

    Args:
      to: the directory to write.
      signature: `text` or `ids`.
      checkpoint: whatever `find_checkpoint` takes, or what it found.
      outputs: what is wanted, each the settings of an `OutputConfig`. By default of `text` each of
        `layers` by itself, as `layer_output_0`, …; of `ids` nothing further.
      layers: LAYERS of outputs that name none.
      max_seq_length: of `text`, the tokens of the longest row; longer texts are cut as the official
        script does. By default 128, or the checkpoint's positions where it has fewer.
      config_file: the config, if not beside the weights.
      vocab_file: the vocabulary, if not beside the weights.
      do_lower_case: the casing; by default what the checkpoint tells.
      hidden_act: the form of GELU, if not the one of the checkpoint's family.
      overwrite: whether a SavedModel that is there may be replaced.

    Returns:
      `to`.

    Raises:
      CheckpointError: the checkpoint is not usable; or it has no pooler, and an export of `ids`
        asks for no outputs of its own to have in place of the pooled one.
      ConfigError: there is no such signature, or an output is not to be had.
      OutputError: the directory exists, or cannot be written.
    """
    if signature not in get_args(Signature):
        raise ConfigError(
            f"signature is {signature!r}; allowed: {', '.join(map(repr, get_args(Signature)))}"
        )
    if keras.backend.backend() != "tensorflow":
        raise ConfigError(
            f"Keras runs on {keras.backend.backend()}; a SavedModel needs KERAS_BACKEND=tensorflow"
        )
    if not isinstance(checkpoint, Checkpoint):
        checkpoint = find_checkpoint(
            checkpoint, config_file=config_file, vocab_file=vocab_file, hidden_act=hidden_act
        )
    to = Path(to)
    _check_target(to, checkpoint, overwrite=overwrite)
    wanted: tuple[OutputSpec, ...] = ()
    if signature == "text" or outputs is not None or layers is not None:
        wanted = plan_outputs(
            check_outputs(outputs), checkpoint.config, layers=layers or DEFAULT_LAYERS
        )
    _check_outputs(wanted, signature)
    source = _Source(
        checkpoint,
        wanted,
        _tokenizer(checkpoint, do_lower_case, needed=signature == "text"),
        _length(max_seq_length, checkpoint, signature),
        has_pooler(checkpoint),
    )
    check_special_ids(wanted, source.special_ids)
    _check_pooler(source, signature)
    _save(source, signature, to, overwrite=overwrite)
    return to


def _check_outputs(outputs: Sequence[OutputSpec], signature: Signature) -> None:
    for output in outputs:
        if output.level == "word":
            raise ConfigError(
                f"output '{output.name}' is of words, which a SavedModel does not find; "
                "allowed levels: 'token', 'sequence'"
            )
        if output.name in _RESERVED[signature]:
            raise ConfigError(
                f"an output is named '{output.name}', which the export of {signature} gives "
                "already; name it differently"
            )
    if signature == "ids" and (static := needs_static_length(outputs)):
        raise ConfigError(
            f"output '{static[0]}' has pooling 'last', which rows of any length do not allow; "
            "allowed in an export of ids: every other"
        )


def _length(max_seq_length: int | None, checkpoint: Checkpoint, signature: Signature) -> int:
    positions = checkpoint.config.max_position_embeddings
    if max_seq_length is None:
        return min(_DEFAULT_LENGTH, positions)
    if signature != "text":
        raise ConfigError(
            f"max_seq_length is {max_seq_length}; it is for signature 'text', an export of "
            f"{signature} takes rows of any length"
        )
    if not MIN_SEQ_LENGTH <= max_seq_length <= positions:
        raise ConfigError(
            f"max_seq_length is {max_seq_length}; allowed: {MIN_SEQ_LENGTH} to {positions}, the "
            f"positions of {checkpoint.name}"
        )
    return max_seq_length


def _check_pooler(source: _Source, signature: Signature) -> None:
    name = source.checkpoint.name
    if source.pooler:
        return
    if needs_pooler(source.outputs):
        raise CheckpointError(f"{name} has no pooler, so pooled output is not to be had of it")
    if signature == "ids":
        if not source.outputs:
            raise CheckpointError(
                f"{name} has no pooler, so there is no pooled_output, nor a default; ask for "
                "outputs of your own (--output-spec or --layers) to export it without them"
            )
        logger.warning("%s has no pooler: no pooled_output and no default in the export", name)


def _tokenizer(
    checkpoint: Checkpoint, do_lower_case: bool | None, *, needed: bool
) -> FullTokenizer | None:
    told = do_lower_case is not None or checkpoint.do_lower_case is not None
    if needed or (checkpoint.vocab_file is not None and told):
        return make_tokenizer(checkpoint, do_lower_case)
    if checkpoint.vocab_file is not None:
        check_vocab(read_vocab(checkpoint.vocab_file), checkpoint.config, checkpoint.vocab_file)
    logger.warning(
        "%s: the export tells no %s",
        checkpoint.name,
        "casing" if checkpoint.vocab_file is not None else "vocabulary and casing",
    )
    return None


# What is saved. A plain trackable object whose attributes are what TF-Hub's interface names.


def _save(source: _Source, signature: Signature, to: Path, *, overwrite: bool) -> None:
    root = tf.train.Checkpoint()
    weights = read_weights(source.checkpoint, pooler=source.pooler)
    variables = {
        name: tf.Variable(value, name=name)
        for name, value in weight_names.garden_weights(weights, source.checkpoint.config).items()
    }
    root.variables = list(variables.values())
    root.trainable_variables = list(variables.values())
    root.regularization_losses = []
    signatures = _BUILDERS[signature](root, source, variables)
    with (
        storage_errors(f"write {to}"),
        replacing(to, overwrite=overwrite, folder=True) as folder,
        tempfile.TemporaryDirectory() as assets,
    ):
        _add_assets(root, source, Path(assets))
        tf.saved_model.save(root, str(folder), signatures=signatures)


def _add_assets(root: Any, source: _Source, folder: Path) -> None:
    config = folder / "bert_config.json"
    values = config_values(source.checkpoint.config, "google")
    config.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    root.config_file = tf.saved_model.Asset(str(config))
    if source.checkpoint.vocab_file is not None:
        vocab = folder / "vocab.txt"  # assets keep their files' names, and this one is looked for
        shutil.copyfile(source.checkpoint.vocab_file, vocab)
        root.vocab_file = tf.saved_model.Asset(str(vocab))
    if source.tokenizer is not None:
        root.do_lower_case = tf.Variable(
            source.tokenizer.do_lower_case, trainable=False, name="do_lower_case"
        )


def _encoder(
    source: _Source,
    variables: Mapping[str, tf.Variable],
    *,
    num_blocks: int,
    with_pooler: bool,
    use_dropout: bool = False,
) -> Callable[[Mapping[str, tf.Tensor], bool], dict[str, Any]]:
    """The encoder on the variables of the export: a function of inputs and `training`."""
    encoder = BertEncoder(
        source.checkpoint.config,
        num_blocks=num_blocks,
        with_pooler=with_pooler,
        use_dropout=use_dropout,
        fuse_qkv=False,  # so that no variable has to be put together in every call
        initializer="zeros",
        dtype="float32",
    )
    names = [weight_names.garden_name(name) for (name,) in encoder.weight_names()]
    shapes = [tuple(variable.shape) for variable in encoder.trainable_variables]
    seeds = len(encoder.non_trainable_variables)

    def encode(inputs: Mapping[str, tf.Tensor], training: bool) -> dict[str, Any]:
        weights = [
            tf.reshape(variables[name], shape) for name, shape in zip(names, shapes, strict=True)
        ]
        # Drawn anew in each call, not variables: what is no weight of BERT stays out of the export.
        states = [_seed() if training else tf.zeros([2], tf.uint32) for _ in range(seeds)]
        batch = {name: inputs[name] for name in MODEL_INPUTS}
        encoded, _ = encoder.stateless_call(weights, states, batch, training=training)
        return dict(encoded)

    return encode


def _seed() -> tf.Tensor:
    return tf.cast(tf.random.uniform([2], maxval=2**31 - 1, dtype=tf.int32), tf.uint32)


def _build_text(root: Any, source: _Source, variables: Mapping[str, tf.Variable]) -> dict[str, Any]:
    tokenizer, outputs = source.tokenizer, source.outputs
    encode = _encoder(
        source,
        variables,
        num_blocks=blocks_needed(outputs),
        with_pooler=needs_pooler(outputs),
    )
    pad = bool(needs_static_length(outputs))

    def call(text: tf.Tensor) -> dict[str, tf.Tensor]:
        none = tf.fill(tf.shape(text), "")
        batch = encode_texts(tokenizer, text, none, seq_length=source.max_seq_length, pad=pad)
        results = compute_outputs(encode(batch, False), batch, outputs, source.special_ids)
        return results | {name: batch[name] for name in _RESERVED["text"]}

    function = tf.function(
        call, input_signature=[tf.TensorSpec([None], tf.string, name="text")], autograph=False
    )
    root.__call__ = function
    return {"serving_default": function.get_concrete_function()}


def _build_ids(root: Any, source: _Source, variables: Mapping[str, tf.Variable]) -> dict[str, Any]:
    config = source.checkpoint.config
    encode = _encoder(
        source,
        variables,
        num_blocks=config.num_hidden_layers,
        with_pooler=source.pooler,
        use_dropout=True,
    )
    positions = config.max_position_embeddings

    def call(
        inputs: Mapping[str, tf.Tensor], training: bool = False, mask: Any = None
    ) -> dict[str, Any]:
        del mask  # of Keras, which hands it to every layer; the encoder's is an input
        length = tf.shape(inputs["input_word_ids"])[1]
        fits = tf.debugging.assert_less_equal(
            length,
            positions,
            message=f"the inputs are longer than the {positions} tokens of this model",
        )
        with tf.control_dependencies([fits]):
            batch = {name: tf.identity(inputs[name]) for name in MODEL_INPUTS}
        encoded = encode(batch, training)
        results = compute_outputs(encoded, batch, source.outputs, source.special_ids)
        for name in ("sequence_output", "encoder_outputs", "pooled_output"):
            if name in encoded:
                results[name] = encoded[name]
        if source.pooler:
            results["default"] = encoded["pooled_output"]
        return results

    specs = {name: tf.TensorSpec([None, None], tf.int32, name=name) for name in MODEL_INPUTS}
    function = tf.function(call, autograph=False)
    for training in (True, False):
        function.get_concrete_function(specs, training=training)
    root.__call__ = function

    def serve(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        results = function(inputs, training=False)
        del results["encoder_outputs"]  # a signature gives tensors, not lists of them
        return results

    served = tf.function(serve, autograph=False)
    return {"serving_default": served.get_concrete_function(**specs)}


_BUILDERS: dict[Signature, Callable[..., dict[str, Any]]] = {
    "text": _build_text,
    "ids": _build_ids,
}


# Where it is saved.


def _check_target(to: Path, checkpoint: Checkpoint, *, overwrite: bool) -> None:
    """Refuses to replace what is no SavedModel, and the checkpoint that is to be read."""
    check_target(to, overwrite=overwrite, folder=True)
    if not to.exists():
        return
    if any(to.iterdir()) and not (to / SAVED_MODEL).is_file():
        raise OutputError(f"{to} holds no SavedModel, and is not replaced; pass another path")
    sources = [*weight_files(checkpoint.weights_path, checkpoint.kind), checkpoint.vocab_file]
    if any(path is not None and path.resolve().is_relative_to(to.resolve()) for path in sources):
        raise OutputError(f"{to} holds the checkpoint that is to be exported; pass another path")


# Reading it again.


class Export:
    """A SavedModel that `export_savedmodel` wrote.

    Attributes:
      path: where it lies.
      signature: `text` or `ids`.
      outputs: the names of what it gives.
      model: what TensorFlow loaded.
      tokens: the pieces of its vocabulary in the order of their ids; empty where it has none.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not (self.path / SAVED_MODEL).is_file():
            raise OutputError(f"{path} is no export: it has no {SAVED_MODEL}")
        try:
            self.model = tf.saved_model.load(str(path))
            (served,) = self.model.signatures.values()
            _, arguments = served.structured_input_signature
            functions = self.model.__call__.concrete_functions
        except Exception as error:  # damage comes in many kinds
            reason = " ".join(str(error).split())[:200]
            raise OutputError(f"{path} cannot be read as an export: {reason}") from error
        self.signature: Signature = "text" if "text" in arguments else "ids"
        self.outputs = tuple(sorted(functions[0].structured_outputs))
        vocab = self.path / "assets" / "vocab.txt"
        self.tokens = tuple(read_vocab(vocab)) if vocab.is_file() else ()

    def __call__(self, inputs: Any, output: str | None = None) -> Any:
        """The outputs of a batch.

        Args:
          inputs: texts, for an export of `text`; the dict of ids, integers [B, S] each, for one of
            `ids`.
          output: which one; all of them by default.

        Returns:
          Output name -> array, or the array of the one that was asked for; of `encoder_outputs` a
          list.

        Raises:
          ConfigError: the export has no such output.
          InputError: the inputs are not what it takes.
        """
        if output is not None and output not in self.outputs:
            raise ConfigError(
                f"there is no output '{output}' in {self.path}; it has {', '.join(self.outputs)}"
            )
        results = self.model(_PREPARE[self.signature](inputs))
        wanted = self.outputs if output is None else (output,)
        arrays = {name: tf.nest.map_structure(np.asarray, results[name]) for name in wanted}
        return arrays if output is None else arrays[output]


def load_export(path: str | Path) -> Export:
    """Loads what `export_savedmodel` wrote.

    Raises:
      OutputError: it is not there, or damaged.
    """
    return Export(path)


def _text_batch(texts: Any) -> tf.Tensor:
    if isinstance(texts, str | bytes | Mapping):
        raise InputError(f"the texts are {type(texts).__name__}; allowed: a list of strings")
    strings = list(texts)
    return tf.constant([utf8(text) for text in strings], tf.string, shape=[len(strings)])


def _ids_batch(inputs: Any) -> dict[str, tf.Tensor]:
    if not isinstance(inputs, Mapping) or set(MODEL_INPUTS) - inputs.keys():
        raise InputError(
            f"the inputs are {type(inputs).__name__}; this export takes a dict of "
            f"{', '.join(MODEL_INPUTS)}"
        )
    return {name: tf.cast(inputs[name], tf.int32) for name in MODEL_INPUTS}


_PREPARE: dict[Signature, Callable[[Any], Any]] = {"text": _text_batch, "ids": _ids_batch}

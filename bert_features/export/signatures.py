"""The functions of an export: `text` with the tokenizer inside, and `ids` in the form of TF-Hub.

Both compute with the variables of the export, which have the Model Garden's names and shapes.

Shape legend: `B` batch, `S` sequence.
"""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from bert_features.batches.packing import encode_texts
from bert_features.checkpoints.modules.sentence_transformers import read_dense
from bert_features.checkpoints.weights import weight_names
from bert_features.config.output_specs import (
    blocks_needed,
    dense_modules,
    needs_pooler,
    needs_static_length,
)
from bert_features.encoder.modeling import BertEncoder
from bert_features.encoder.pooling import compute_outputs
from bert_features.encoder.step import MODEL_INPUTS
from bert_features.export.checks import RESERVED_NAMES, ExportSource, Signature

Variables = Mapping[str, tf.Variable]
Encode = Callable[[Mapping[str, tf.Tensor], bool], dict[str, Any]]


def build_signatures(
    root: Any, source: ExportSource, variables: Variables, signature: Signature
) -> dict[str, Any]:
    """Makes the functions of an export; the weights have the Model Garden's names.

    Returns `serving_default`, a concrete function. The object to save gets `__call__`.
    """
    return _BUILDERS[signature](root, source, variables)


def _build_text(root: Any, source: ExportSource, variables: Variables) -> dict[str, Any]:
    tokenizer, outputs = source.tokenizer, source.outputs
    assert tokenizer is not None  # `check_source` makes one for every export of text
    encode = _encoder(
        source,
        variables,
        num_blocks=blocks_needed(outputs),
        with_pooler=needs_pooler(outputs),
    )
    pad, dense = bool(needs_static_length(outputs)), _dense(source)

    def call(text: tf.Tensor) -> dict[str, tf.Tensor]:
        none = tf.fill(tf.shape(text), "")
        batch = encode_texts(tokenizer, text, none, seq_length=source.max_seq_length, pad=pad)
        encoded = encode(batch, False)
        results = compute_outputs(encoded, batch, outputs, source.special_ids, dense)
        return results | {name: batch[name] for name in RESERVED_NAMES["text"]}

    function = tf.function(
        call, input_signature=[tf.TensorSpec([None], tf.string, name="text")], autograph=False
    )
    root.__call__ = function
    return {"serving_default": function.get_concrete_function()}


def _build_ids(root: Any, source: ExportSource, variables: Variables) -> dict[str, Any]:
    specs = {name: tf.TensorSpec([None, None], tf.int32, name=name) for name in MODEL_INPUTS}
    function = tf.function(_ids_call(source, variables), autograph=False)
    for training in (True, False):
        function.get_concrete_function(specs, training=training)
    root.__call__ = function

    def serve(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        results: dict[str, tf.Tensor] = function(inputs, training=False)
        del results["encoder_outputs"]  # a signature returns tensors, not lists of them
        return results

    served = tf.function(serve, autograph=False)
    return {"serving_default": served.get_concrete_function(**specs)}


def _ids_call(source: ExportSource, variables: Variables) -> Callable[..., dict[str, Any]]:
    """The function of an export of ids, with the arguments of a Keras layer."""
    config = source.checkpoint.config
    encode = _encoder(
        source,
        variables,
        num_blocks=config.num_hidden_layers,
        with_pooler=source.pooler,
        use_dropout=True,
    )
    positions, dense = config.positions, _dense(source)

    def call(
        inputs: Mapping[str, tf.Tensor], training: bool = False, mask: Any = None
    ) -> dict[str, Any]:
        del mask  # Keras passes one to every layer; the encoder's mask is an input
        length = tf.shape(inputs["input_word_ids"])[1]
        fits = tf.debugging.assert_less_equal(
            length,
            positions,
            message=f"the inputs are longer than the {positions} tokens that this model allows",
        )
        with tf.control_dependencies([fits]):
            batch = {name: tf.identity(inputs[name]) for name in MODEL_INPUTS}
        encoded = encode(batch, training)
        results = compute_outputs(encoded, batch, source.outputs, source.special_ids, dense)
        for name in ("sequence_output", "encoder_outputs", "pooled_output"):
            if name in encoded:
                results[name] = encoded[name]
        if source.pooler:
            results["default"] = encoded["pooled_output"]
        return results

    return call


_BUILDERS: dict[Signature, Callable[[Any, ExportSource, Variables], dict[str, Any]]] = {
    "text": _build_text,
    "ids": _build_ids,
}


def _encoder(
    source: ExportSource,
    variables: Variables,
    *,
    num_blocks: int,
    with_pooler: bool,
    use_dropout: bool = False,
) -> Encode:
    """The encoder on the variables of the export: a function of inputs and `training`."""
    encoder = BertEncoder(
        source.checkpoint.config,
        num_blocks=num_blocks,
        with_pooler=with_pooler,
        use_dropout=use_dropout,
        fuse_qkv=False,  # joined variables would have to be joined again in every call
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
        # Drawn again in each call: as variables they would be saved among the weights of BERT.
        states = [_seed() if training else tf.zeros([2], tf.uint32) for _ in range(seeds)]
        batch = {name: inputs[name] for name in MODEL_INPUTS}
        encoded, _ = encoder.stateless_call(weights, states, batch, training=training)
        return dict(encoded)

    return encode


def _dense(source: ExportSource) -> dict[str, tf.Tensor]:
    """The weights of Dense modules: constants, as the variables are the weights of a BERT."""
    modules = source.checkpoint.sentence_transformers
    weights = read_dense(modules, dense_modules(source.outputs))
    return {name: tf.constant(value) for name, value in weights.items()}


def _seed() -> tf.Tensor:
    return tf.cast(tf.random.uniform([2], maxval=2**31 - 1, dtype=tf.int32), tf.uint32)

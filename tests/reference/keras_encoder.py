"""A toy encoder of tf_keras with the layers, names and attributes of the Model Garden's.

Its arithmetic is not BERT's: it is here for what Keras makes of the names when it saves.
"""

import tensorflow as tf
import tf_keras

L = tf_keras.layers


class Block(L.Layer):
    """The layers of official/nlp/modeling/layers/transformer_encoder_block.py."""

    def __init__(self, config, **settings):
        super().__init__(**settings)
        self._sizes = config

    def build(self, shape):
        c = self._sizes
        self._attention_layer = L.MultiHeadAttention(
            c.num_attention_heads, c.head_size, name="self_attention"
        )
        self._attention_layer_norm = L.LayerNormalization(name="self_attention_layer_norm")
        self._intermediate_dense = L.EinsumDense(
            "abc,cd->abd", (None, c.intermediate_size), bias_axes="d", name="intermediate"
        )
        self._output_dense = L.EinsumDense(
            "abc,cd->abd", (None, c.hidden_size), bias_axes="d", name="output"
        )
        self._output_layer_norm = L.LayerNormalization(name="output_layer_norm")
        super().build(shape)

    def call(self, x):
        x = self._attention_layer_norm(x + self._attention_layer(x, x))
        return self._output_layer_norm(x + self._output_dense(self._intermediate_dense(x)))


class Positions(L.Layer):
    def __init__(self, config, **settings):
        super().__init__(**settings)
        self._sizes = config

    def build(self, shape):
        c = self._sizes
        shape = (c.max_position_embeddings, c.hidden_size)
        self._position_embeddings = self.add_weight("embeddings", shape)
        super().build(shape)

    def call(self, x):
        return self._position_embeddings[: x.shape[1]][None]


def keras_encoder(config):
    """A functional model, built in the Model Garden's order."""
    ids, types = (L.Input((4,), dtype=tf.int32) for _ in range(2))
    words = L.Embedding(config.vocab_size, config.hidden_size, name="word_embeddings")(ids)
    positions = Positions(config, name="position_embedding")(words)
    kinds = L.Embedding(config.type_vocab_size, config.hidden_size, name="type_embeddings")(types)
    x = L.Add()([words, positions, kinds])
    x = L.LayerNormalization(name="embeddings/layer_norm")(x)
    blocks = []
    for i in range(config.num_hidden_layers):
        blocks.append(Block(config, name=f"transformer/layer_{i}"))
        x = blocks[-1](x)
    pooled = L.Dense(config.hidden_size, activation="tanh", name="pooler_transform")(x[:, 0])
    model = tf_keras.Model([ids, types], [x, pooled])
    model._transformer_layers = blocks
    return model

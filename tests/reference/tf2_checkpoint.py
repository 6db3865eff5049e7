"""Writes TF2 checkpoints and TF-Hub SavedModels for tests, by TensorFlow's own writers.

The names are written out here again, from the Model Garden's sources (bert_encoder.py,
transformer_encoder_block.py, tf1_bert_checkpoint_converter_lib.py), not taken from weight_names.
"""

import shutil

import numpy as np
import tensorflow as tf

# Names of variables, by the beginning of what is left of the canonical name.
V3 = {
    "embeddings/word_embeddings": "word_embeddings/embeddings",
    "embeddings/position_embeddings": "position_embedding/embeddings",
    "embeddings/token_type_embeddings": "type_embeddings/embeddings",
    "embeddings/LayerNorm": "embeddings/layer_norm",
    "encoder/layer_": "transformer/layer_",
    "attention/self/": "self_attention/",
    "attention/output/dense": "self_attention/attention_output",
    "attention/output/LayerNorm": "self_attention_layer_norm",
    "intermediate/dense": "intermediate",
    "output/dense": "output",
    "output/LayerNorm": "output_layer_norm",
    "pooler/dense": "pooler_transform",
}
# TF-Hub /1 and /2 of 2020, official/nlp/bert_modeling.py.
V2 = V3 | {
    "embeddings/position_embeddings": "embedding_postprocessor/position_embeddings",
    "embeddings/token_type_embeddings": "embedding_postprocessor/type_embeddings",
    "embeddings/LayerNorm": "embedding_postprocessor/layer_norm",
    "encoder/layer_": "encoder/layer_",
    "attention/output/dense": "self_attention_output",
}
# Paths of the encoder's objects, as `tf.train.list_variables` shows them.
PATHS = {
    "embeddings/word_embeddings": "layer_with_weights-0/embeddings",
    "embeddings/position_embeddings": "layer_with_weights-1/embeddings",
    "embeddings/token_type_embeddings": "layer_with_weights-2/embeddings",
    "embeddings/LayerNorm": "layer_with_weights-3",
    "attention/self/query": "_attention_layer/_query_dense",
    "attention/self/key": "_attention_layer/_key_dense",
    "attention/self/value": "_attention_layer/_value_dense",
    "attention/output/dense": "_attention_layer/_output_dense",
    "attention/output/LayerNorm": "_attention_layer_norm",
    "intermediate/dense": "_intermediate_dense",
    "output/dense": "_output_dense",
    "output/LayerNorm": "_output_layer_norm",
}


def renamed(canonical, table):
    """A canonical name by a table of its parts, of which the first that fits is taken, in turn."""
    head, slash, rest = "", "", canonical
    if canonical.startswith("encoder/layer_") and "encoder/layer_" in table:
        block, slash, rest = canonical.removeprefix("encoder/layer_").partition("/")
        head = f"{table['encoder/layer_']}{block}"
    part = next(part for part in table if rest.startswith(part))
    return f"{head}{slash}{table[part]}{rest.removeprefix(part)}"


def garden_shape(canonical, value, heads):
    """Attention's kernels and biases with an axis for the heads."""
    if "attention/self/" in canonical:
        return value.reshape(*value.shape[:-1], heads, -1)
    if canonical.endswith("attention/output/dense/kernel"):
        return value.reshape(heads, -1, value.shape[-1])
    return value


def garden_tensors(weights, heads, *, table=V3, scope=""):
    return {
        f"{scope}{renamed(name, table)}": garden_shape(name, value, heads)
        for name, value in weights.items()
    }


def path_of(canonical, num_layers):
    """Where the encoder keeps a variable, blocks after the four layers of the embeddings."""
    if canonical.startswith("pooler"):
        return f"layer_with_weights-{num_layers + 4}/{canonical.rpartition('/')[2]}"
    if not canonical.startswith("encoder/layer_"):
        return renamed(canonical, PATHS)
    block, _, rest = canonical.removeprefix("encoder/layer_").partition("/")
    return f"layer_with_weights-{int(block) + 4}/{renamed(rest, PATHS)}"


def module_of(variables):
    """A tf.Module whose attributes are these: path -> variable."""
    root = tf.Module()
    for path, variable in variables.items():
        *parents, last = path.split("/")
        node = root
        for parent in parents:
            if not hasattr(node, parent):
                setattr(node, parent, tf.Module())
            node = getattr(node, parent)
        setattr(node, last, variable)
    return root


def named(tensors):
    """Variables under these names, at paths that tell nothing."""
    return {
        f"v{i}": tf.Variable(value, name=name) for i, (name, value) in enumerate(tensors.items())
    }


def write_checkpoint(prefix, **objects):
    """An object-based checkpoint, as the Model Garden's `tf.train.Checkpoint(encoder=…)`."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    tf.train.Checkpoint(**objects).write(str(prefix))
    return prefix


def write_saved_model(folder, tensors, *, vocab=None, do_lower_case=None):
    """A SavedModel of TF-Hub: variables under these names, the vocabulary among the assets."""
    root = module_of(named(tensors))
    if do_lower_case is not None:
        root.do_lower_case = tf.Variable(do_lower_case, trainable=False)  # unnamed, as Google's
    if vocab is not None:
        path = folder.parent / "vocab.txt"
        path.write_text("\n".join(vocab) + "\n", encoding="utf-8")
        root.vocab_file = tf.saved_model.Asset(str(path))
    tf.saved_model.save(root, str(folder))
    return folder


def write_tf1_hub_module(folder, tensors, *, vocab=None):
    """A TF1 module of TF-Hub: variables by name, as its Saver keeps them."""
    write_saved_model(folder, {"x": np.zeros(1, np.float32)}, vocab=vocab)
    shutil.rmtree(folder / "variables")
    (folder / "variables").mkdir()
    tf.raw_ops.SaveV2(
        prefix=str(folder / "variables" / "variables"),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=[tf.constant(value) for value in tensors.values()],
    )
    return folder

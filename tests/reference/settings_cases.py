"""Small checkpoints whose config.json has settings that deviate, made from tests/data/families.

`scripts/make_reference_settings.py` computes by transformers what they mean.
"""

import json
import zlib
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

DATA = Path(__file__).resolve().parents[1] / "data"
GONE = object()
# A pair; its types. A model with one type has type 0 alone.
IDS = [2, 7, 9, 4, 11, 3, 12, 5, 8, 20, 6, 3]
TYPES = [0] * 6 + [1] * 6
_WORDS = "albert.embeddings"

# Name -> the family, the changes of its config.json, in this order behind the other keys, and the
# tensors that are made anew in these shapes.
CASES = {
    "one_type": (
        "bert",
        {"type_vocab_size": 1},
        {"bert.embeddings.token_type_embeddings.weight": (1, 16)},
    ),
    "no_model_type": (
        "bert",
        dict.fromkeys(("model_type", "architectures", "transformers_version"), GONE),
        {},
    ),
    "albert_of_equal_widths": (
        "albert",
        {"embedding_size": 16},
        {
            f"{_WORDS}.LayerNorm.bias": (16,),
            f"{_WORDS}.LayerNorm.weight": (16,),
            f"{_WORDS}.position_embeddings.weight": (24, 16),
            f"{_WORDS}.token_type_embeddings.weight": (2, 16),
            f"{_WORDS}.word_embeddings.weight": (30, 16),
            "albert.encoder.embedding_hidden_mapping_in.weight": (16, 16),
            "predictions.LayerNorm.bias": (16,),
            "predictions.LayerNorm.weight": (16,),
            "predictions.dense.bias": (16,),
            "predictions.dense.weight": (16, 16),
        },
    ),
    "distilbert_aliases": (
        "distilbert",
        {"dim": 99, "hidden_size": 16, "n_layers": 2, "num_hidden_layers": 3}
        | {"n_heads": GONE, "num_attention_heads": 4},
        {},
    ),
    "modernbert_head": (
        "modernbert",
        {"classifier_bias": True, "classifier_activation": "relu"},
        {"head.dense.bias": (16,)},
    ),
    "modernbert_without_decoder_bias": (
        "modernbert",
        {"decoder_bias": False},
        {"decoder.bias": ()},
    ),
    "modernbert_rope_scaling": (
        "modernbert",
        {"rope_parameters": GONE, "global_rope_theta": 90.0, "local_rope_theta": 30.0}
        | {"rope_scaling": {"rope_type": "default", "rope_theta": 7.0}},
        {},
    ),
    "modernbert_layer_types": (
        "modernbert",
        {"global_attn_every_n_layers": GONE}
        | {"layer_types": [f"{kind}_attention" for kind in ("sliding", "full", "full", "sliding")]},
        {},
    ),
    "modernbert_window_of_one": ("modernbert", {"local_attention": 1}, {}),
    "modernbert_unseen": ("modernbert", {"local_attention": 4}, {}),
}
# Case -> the tokens at the end that no token attends to, as in queries for late interaction. Those
# beyond the window of every other token attend to nothing.
UNSEEN = {"modernbert_unseen": 7}


def write(name, folder):
    """Writes the checkpoint of a case into a folder that exists."""
    family, changes, shapes = CASES[name]
    source = DATA / "families" / family
    values = json.loads((source / "config.json").read_text())
    for key, value in changes.items():
        values.pop(key, None)
        if value is not GONE:
            values[key] = value
    (folder / "config.json").write_text(json.dumps(values))
    tensors = load_file(source / "model.safetensors")
    for tensor, shape in shapes.items():
        rng = np.random.RandomState(zlib.crc32(tensor.encode()))
        tensors[tensor] = rng.normal(scale=0.25, size=shape).astype(np.float32)
        if not shape:
            del tensors[tensor]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

"""The hash of a checkpoint."""

import hashlib

from bert_features.checkpoints.find import find_checkpoint


def test_the_hash_is_of_the_weights_alone(tf1, safetensors):
    data = (safetensors / "model.safetensors").read_bytes()
    assert find_checkpoint(safetensors).sha256 == hashlib.sha256(data).hexdigest()
    parts = (tf1 / f"bert_model.ckpt.{part}" for part in ("index", "data-00000-of-00001"))
    index_and_data = b"".join(part.read_bytes() for part in parts)
    assert find_checkpoint(tf1).sha256 == hashlib.sha256(index_and_data).hexdigest()

"""The encoder against google-research/bert's own graph: ids, embeddings, every layer, the pooler.

tests/data/README.md says how the values were made.
"""

import numpy as np
import pytest

from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import read_weights
from bert_features.encoder.modeling import BertEncoder
from bert_features.text.tokenization import FullTokenizer

# Both are float32, so sums in another order differ: 4e-6 at most on one CPU, with room for others.
# The erf form of GELU instead of the tanh form is off by 1e-3.
TOLERANCE = 1e-5
NUM_LAYERS = 6


@pytest.fixture(
    scope="module", params=["official_minilm_layers_5.npz", "official_minilm_layers.npz"]
)
def official(request, data_file):
    with np.load(data_file(request.param)) as stored:
        return dict(stored)


def pieces_of(text):
    """`a ||| b` is a pair."""
    return text.split(" ||| ")


@pytest.fixture(scope="module")
def batch(official):
    """All texts as one padded batch."""
    splits, lengths = official["row_splits"], np.diff(official["row_splits"])
    position = np.arange(lengths.max())
    mask = (position < lengths[:, None]).astype(np.int32)
    ids = np.zeros_like(mask)
    ids[mask == 1] = official["token_ids"]
    types = np.zeros_like(mask)
    for row, text in enumerate(official["texts"]):
        if len(pieces_of(text)) == 2:
            sep = official["token_ids"][splits[row + 1] - 1]
            first = np.flatnonzero(ids[row] == sep)[0]
            types[row] = (position > first) & (mask[row] == 1)
    return {"input_word_ids": ids, "input_mask": mask, "input_type_ids": types}


@pytest.fixture(scope="module")
def outputs(minilm_dir, batch):
    checkpoint = find_checkpoint(minilm_dir, hidden_act="gelu_tanh")
    encoder = BertEncoder(checkpoint.config, with_pooler=True)
    encoder.load_weights_dict(read_weights(checkpoint, pooler=True))
    return encoder(batch)


def test_the_tokenizer_gives_the_official_ids(minilm_dir, official):
    tokenizer = FullTokenizer(minilm_dir / "vocab.txt", do_lower_case=True)
    cls, sep = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
    ids = []
    for text in official["texts"]:
        ids.append(cls)
        for encoding in tokenizer.encode(pieces_of(text)):
            ids += [*encoding.ids, sep]
    assert ids == official["token_ids"].tolist()


@pytest.mark.parametrize("layer", ["embedding_output", *range(NUM_LAYERS)])
def test_every_layer_is_the_official_one(outputs, official, batch, layer):
    if layer == "embedding_output":
        got, want = outputs[layer], official[layer]
    else:
        assert len(outputs["encoder_outputs"]) == NUM_LAYERS
        got, want = outputs["encoder_outputs"][layer], official[f"layer_{layer}"]
    real = np.asarray(got)[batch["input_mask"] == 1]
    np.testing.assert_allclose(real, want, rtol=0, atol=TOLERANCE)


def test_the_pooled_output_is_the_official_one(outputs, official):
    got = np.asarray(outputs["pooled_output"])
    np.testing.assert_allclose(got, official["pooled_output"], rtol=0, atol=TOLERANCE)

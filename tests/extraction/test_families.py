"""Each family through the whole package: runs, layers, exports; and what is refused."""

import keras
import numpy as np
import pytest

from bert_features import FeatureExtractor, export_savedmodel, load_export
from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import has_pooler, read_weights
from bert_features.errors import ConfigError
from bert_features.layers.features import BertFeatures
from tests import families
from tests.reference import numpy_outputs
from tests.reference.numpy_encoder import NumpyEncoder
from tests.weights import assert_same

TOKENS = {"name": "t", "layers": ["embeddings", -1], "combine": "concat"}
SEQUENCE = {"name": "s", "layers": [-2, -1], "combine": "mean", "level": "sequence"}
OUTPUTS = [
    TOKENS,
    {"name": "w", "layers": [-1], "level": "word"},
    SEQUENCE | {"pooling": "cls+mean_max+sqrt_len_mean"},
]
TEXT, LONG = "is this jacksonville ? no it is not .", "is this a b jack . " * 20


# Each takes seconds. These differ most from BERT here; tests/encoder has the layers of all.
@pytest.fixture(scope="module", params=["roberta", "modernbert", "mpnet"])
def folder(request, tmp_path_factory):
    return families.folder(request.param, tmp_path_factory.mktemp(request.param))


def states(folder, ids):
    """Every state of one row of type 0, [S, H] each, float64."""
    found = find_checkpoint(folder)
    row = np.array([ids])
    encoder = NumpyEncoder(found.config, read_weights(found))
    return [state[0] for state in encoder(row, np.ones_like(row), np.zeros_like(row))]


def test_a_run_with_words_and_windows(folder):
    extractor = FeatureExtractor.from_checkpoint(
        folder, outputs=OUTPUTS, long_text="window", word_split="whitespace", device="cpu"
    )
    positions = extractor.checkpoint.config.positions
    assert positions == 24  # of RoBERTa's 26 two are of no token
    short, long = extractor([TEXT, LONG])
    of_ids = states(folder, extractor.tokenizer.convert_tokens_to_ids(short.tokens))
    np.testing.assert_allclose(
        short.features["t"], np.concatenate([of_ids[0], of_ids[-1]], axis=-1), atol=2e-5
    )
    words = [of_ids[-1][1], of_ids[-1][2], of_ids[-1][3:6].mean(axis=0)]
    np.testing.assert_allclose(short.features["w"][:3], words, atol=2e-5)
    mean = (of_ids[-2] + of_ids[-1]) / 2
    want = [
        numpy_outputs.pool_sequence(mean, np.zeros(len(mean), bool), pooling, True)
        for pooling in ("cls", "mean_max", "sqrt_len_mean")
    ]
    np.testing.assert_allclose(short.features["s"], np.concatenate(want), atol=2e-5)
    assert len(long.tokens) == len(long.features["t"]) > positions  # nothing was cut


# Keras 3.15 asks NumPy 2.4 for its variables in an outdated way when it saves them.
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't:DeprecationWarning")
def test_a_keras_layer_is_saved_and_loaded(folder, tmp_path):
    layer = BertFeatures.from_checkpoint(folder, [TOKENS, OUTPUTS[2]])
    ids = np.array([[2, 5, 6, 7, 3]])
    batch = {"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids * 0}
    of_ids = states(folder, ids[0])
    got = layer(batch)["t"][0]
    np.testing.assert_allclose(got, np.concatenate([of_ids[0], of_ids[-1]], -1), atol=2e-5)
    inputs = {name: keras.Input((5,), dtype="int32", name=name) for name in batch}
    keras.Model(inputs, layer(inputs)).save(tmp_path / "x.keras")
    again = keras.models.load_model(tmp_path / "x.keras")(batch)
    for name, values in layer(batch).items():
        np.testing.assert_array_equal(again[name], values)
    with pytest.raises(ConfigError, match=r"25 tokens; .* most 24"):
        layer({name: np.ones((1, 25), int) * (name != "input_type_ids") for name in batch})
    typed = batch | {"input_type_ids": ids * 0 + 1}
    if layer.bert_config.type_vocab_size:
        with pytest.raises(ConfigError, match="input_type_ids has 1"):
            layer(typed)
    else:
        np.testing.assert_array_equal(layer(typed)["t"], layer(batch)["t"])


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.parametrize("name", ["albert", "modernbert", "mpnet", "gte"])  # with own names
def test_an_export_is_a_checkpoint_too(name, tmp_path):
    folder = families.folder(name, tmp_path)
    to = export_savedmodel(tmp_path / "x", checkpoint=folder, signature="ids", outputs=[OUTPUTS[2]])
    ids = np.array([[2, 5, 6, 7, 3, 0]], np.int32)
    mask = (ids > 0).astype(np.int32)
    batch = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": ids * 0}
    export = load_export(to)
    outputs = export(batch)
    if name == "albert":
        with pytest.raises(ConfigError, match="input_type_ids has 2"):
            export(batch | {"input_type_ids": ids * 0 + 2})
    np.testing.assert_allclose(
        outputs["sequence_output"][0, :5], states(folder, ids[0, :5])[-1], atol=2e-5
    )
    source, copy = find_checkpoint(folder), find_checkpoint(to)
    assert copy.config == source.config
    pooler = has_pooler(source)
    assert_same(read_weights(copy, pooler=pooler), read_weights(source, pooler=pooler))


@pytest.mark.parametrize("name", ["electra", "distilbert", "modernbert"])
def test_the_pooler_of_an_architecture_without_one(name, tmp_path):
    copy = families.folder(name, tmp_path)
    message = f"'pooler' is unavailable: an encoder of model_type '?{name}'? has no pooler"
    with pytest.raises(ConfigError, match=message):
        FeatureExtractor.from_checkpoint(copy, level="sequence", pooling="pooler", device="cpu")
    with pytest.raises(ConfigError, match=message):
        BertFeatures.from_checkpoint(copy, [{"level": "sequence", "pooling": "pooler"}])

"""Segment ids of single texts, as some tutorials have them."""

import numpy as np
import pytest

from bert_features import FeatureExtractor, compare, extract, read_features
from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import read_weights
from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import ConfigError
from tests.families import folder
from tests.reference.numpy_encoder import NumpyEncoder

TEXTS = ["the is a b", "jackson", "", ("a b", "it is"), "no no no no no no no no no not"]
SETTINGS = {"layers": [-1], "max_seq_length": 8, "do_lower_case": True}


@pytest.mark.parametrize("segment", [0, 1])
@pytest.mark.parametrize("more", [{}, {"long_text": "window", "stride": 2}, {"batch_size": 1}])
def test_every_token_of_a_single_text_has_it_and_pairs_have_their_own(toy, segment, more):
    settings = {**SETTINGS, **more}
    extractor = FeatureExtractor.from_checkpoint(toy, segment=segment, **settings)
    checkpoint = find_checkpoint(toy)
    encoder = NumpyEncoder(checkpoint.config, read_weights(checkpoint))
    for text, record in zip(TEXTS, extractor(TEXTS), strict=True):
        ids = np.array([record.token_ids])
        if ids.shape[1] > 8:  # of several rows, which the first tokens do not tell
            continue
        types = np.full_like(ids, segment)
        if isinstance(text, tuple):
            types[0] = [0, 0, 0, 0, 1, 1, 1]
        wanted = encoder(ids, np.ones_like(ids), types)[-1][0]
        np.testing.assert_allclose(record.features["layer_output_0"], wanted, atol=1e-5)


def test_it_is_another_vector_by_the_recipe(toy, tmp_path):
    (tmp_path / "in.txt").write_text("a b\n")
    for segment in (0, 1):
        config = ExtractConfig.of({"checkpoint": toy, "segment": segment, **SETTINGS})
        extract(config, tmp_path / "in.txt", tmp_path / f"{segment}.npz")
    (found,) = compare(tmp_path / "0.npz", tmp_path / "1.npz")
    assert (found.verdict, "segment 0 and 1" in str(found)) == ("other", True)
    assert read_features(tmp_path / "1.npz").recipe.settings["segment"] == 1


def test_a_model_without_segments_refuses_it(tmp_path):
    roberta = folder("roberta", tmp_path)
    with pytest.raises(ConfigError, match="segment is 1"):
        FeatureExtractor.from_checkpoint(roberta, segment=1, layers=[-1])

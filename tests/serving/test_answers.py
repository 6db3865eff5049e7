"""Answers of kinds that have units of their own."""

import numpy as np
import pytest

from bert_features import ExtractConfig, FeatureExtractor, find_checkpoint
from bert_features.serving.catalog import config_to_serve
from tests import multi_vector
from tests.serving.conftest import make_client
from tests.serving.over_http import make_service


@pytest.mark.slow
def test_multi_vectors_of_queries_and_documents(tmp_path):
    """By the name of the prompt; the tokens of the vectors are beside them."""
    folder = multi_vector.write("classic", tmp_path / "in")
    config = ExtractConfig(checkpoint=str(folder), **multi_vector.KIND)
    served = config_to_serve(config, find_checkpoint(folder).config)
    client = make_client(make_service(FeatureExtractor(served)))
    for side in multi_vector.SIDES:
        body = {"texts": multi_vector.TEXTS, "outputs": ["features"], "prompt_name": side}
        answer = client.post("/v1/features", json=body | {"tokens": True}).json()
        wanted = multi_vector.vectors("classic", side)
        for result, vectors in zip(answer["results"], wanted, strict=True):
            np.testing.assert_allclose(result["features"]["features"], vectors, atol=1e-5)
            assert len(result["vectors"]) == len(vectors)
            assert len(result["tokens"]) == len(result["type_ids"]) == len(result["offsets"])
    assert answer["results"][2]["vectors"][3] == {"token": "boat", "token_id": 9}

"""model_fn: the official signature and modes."""

import numpy as np
import pytest

from bert_features.batches.bucketing import FILLER_ID
from bert_features.official.model_fn import EstimatorSpec, ModeKeys, model_fn_builder
from tests.toy import TOY, random_batch


def test_model_fn_has_the_official_signature():
    model_fn = model_fn_builder(TOY, None, ["embeddings", 0])
    batch = {"unique_ids": np.array([5, FILLER_ID]), **random_batch(TOY, [4, 0], 4)}
    spec = model_fn(features=batch, labels=None, mode=ModeKeys.PREDICT, params={})
    assert isinstance(spec, EstimatorSpec)
    assert spec.predictions["unique_id"].tolist() == [5, FILLER_ID]
    assert spec.predictions["layer_output_1"].shape == (2, 4, 8)
    assert len(model_fn.encoder.blocks) == 1


@pytest.mark.parametrize("mode", [ModeKeys.TRAIN, ModeKeys.EVAL])
def test_other_modes_are_refused_as_officially(mode):
    model_fn = model_fn_builder(TOY, None, [-1])
    with pytest.raises(ValueError, match=f"Only PREDICT modes are supported: {mode}"):
        model_fn(random_batch(TOY, [4], 4), None, mode, {})


def test_use_tpu_means_bfloat16_by_default():
    assert model_fn_builder(TOY, None, [-1], use_tpu=True).encoder.compute_dtype == "bfloat16"
    kept = model_fn_builder(TOY, None, [-1], use_tpu=True, precision="float32")
    assert kept.encoder.compute_dtype == "float32"

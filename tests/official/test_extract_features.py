"""The functions of extract_features, called as code that imports the module calls them."""

import contextlib

import numpy as np
import pytest

from bert_features.official import extract_features, modeling, tokenization
from bert_features.official import tf1 as tf
from tests.reference.numpy_encoder import NumpyEncoder
from tests.toy import TOY, random_weights


@pytest.mark.parametrize("place", [contextlib.nullcontext, lambda: tf.Graph().as_default()])
def test_the_calls_of_a_program_that_imports_it(toy, tmp_path, place):
    with place():
        calls_of_a_program(toy, tmp_path)


def calls_of_a_program(toy, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("is this jack ?\nno ||| it is not .\n", encoding="utf-8")
    examples = extract_features.read_examples(str(texts))
    assert [example.unique_id for example in examples] == [0, 1]
    examples.append(extract_features.InputExample(unique_id=2, text_a="a", text_b=None))
    tokenizer = tokenization.FullTokenizer(vocab_file=f"{toy}/vocab.txt", do_lower_case=True)
    features = extract_features.convert_examples_to_features(
        examples=examples, seq_length=12, tokenizer=tokenizer
    )
    model_fn = extract_features.model_fn_builder(
        bert_config=modeling.BertConfig.from_json_file(f"{toy}/bert_config.json"),
        init_checkpoint=f"{toy}/bert_model.ckpt",
        layer_indexes=[-1, -2],
        use_tpu=False,
        use_one_hot_embeddings=False,
    )
    estimator = tf.contrib.tpu.TPUEstimator(
        use_tpu=False, model_fn=model_fn, config=tf.contrib.tpu.RunConfig(), predict_batch_size=2
    )
    input_fn = extract_features.input_fn_builder(features=features, seq_length=12)
    results = list(estimator.predict(input_fn, yield_single_examples=True))
    assert [int(result["unique_id"]) for result in results] == [0, 1, 2]
    ids, mask, types = (
        np.array([getattr(feature, name) for feature in features])
        for name in ("input_ids", "input_mask", "input_type_ids")
    )
    states = NumpyEncoder(TOY, random_weights(TOY))(ids, mask, types)
    for row, feature in enumerate(features):
        for name, state in (("layer_output_0", states[-1]), ("layer_output_1", states[-2])):
            count = len(feature.tokens)
            np.testing.assert_allclose(
                results[row][name][:count], state[row, :count], rtol=0, atol=2e-5
            )


@pytest.mark.parametrize(
    ("a", "b", "length", "kept"),
    [(5, 2, 4, (2, 2)), (2, 5, 4, (2, 2)), (3, 3, 5, (3, 2)), (4, 0, 3, (3, 0)), (2, 1, 9, (2, 1))],
)
def test_a_pair_is_shortened_in_place(a, b, length, kept):
    first, second = list(range(a)), list(range(b))
    assert extract_features._truncate_seq_pair(first, second, length) is None
    assert (first, second) == (list(range(kept[0])), list(range(kept[1])))

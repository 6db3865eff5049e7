"""input_fn_builder, as the official script has it."""

import numpy as np
import pytest

from bert_features.errors import ConfigError
from bert_features.official.features import convert_examples_to_features
from bert_features.official.input_fn import input_fn_builder
from bert_features.readers.input_example import InputExample
from bert_features.text.tokenization import FullTokenizer
from tests.toy import TOY_VOCAB

EXAMPLES = [
    InputExample(0, "is this jack"),
    InputExample(1, "the a", "it is not ."),
    InputExample(2, ""),
    InputExample(3, "jacksonville ?", "no"),
    InputExample(4, "the a b the a b the a b the a b"),
]


@pytest.fixture(scope="module")
def tokenizer():
    return FullTokenizer(TOY_VOCAB)


def test_input_fn_of_features_in_memory(tokenizer):
    features = convert_examples_to_features(EXAMPLES, 10, tokenizer)
    batches = list(input_fn_builder(features, 10)({"batch_size": 3}))
    ids = np.concatenate([batch["unique_ids"] for batch in batches])
    assert ids.tolist() == [0, 1, 2, 3, 4]
    rows = np.concatenate([batch["input_ids"] for batch in batches])
    assert rows.tolist() == [f.input_ids for f in features]


def test_input_fn_of_features_of_another_length(tokenizer):
    features = convert_examples_to_features(EXAMPLES[:1], 10, tokenizer)
    with pytest.raises(ConfigError, match="are 10 long; seq_length is 12"):
        input_fn_builder(features, 12)

"""InputFeatures: the official layout, and the official input_fn over them."""

import pytest

from bert_features.errors import ConfigError
from bert_features.official.features import convert_examples_to_features
from bert_features.official.input_fn import input_fn_builder
from bert_features.readers.input_example import InputExample
from bert_features.text.tokenization import FullTokenizer
from tests.toy import TOY_VOCAB


@pytest.fixture(scope="module")
def tokenizer():
    return FullTokenizer(TOY_VOCAB)


def test_the_worked_example_of_the_official_script(tokenizer):
    example = InputExample(7, "is this jacksonville ?", "no it is not .")
    (features,) = convert_examples_to_features([example], 16, tokenizer)
    row = "[CLS] is this jack ##son ##ville ? [SEP] no it is not . [SEP]"
    words = row.split()
    assert features.unique_id == 7
    assert features.tokens == words
    assert features.input_ids == [TOY_VOCAB.index(word) for word in words] + [0, 0]
    assert features.input_mask == [1] * 14 + [0, 0]
    assert features.input_type_ids == [0] * 8 + [1] * 6 + [0, 0]
    assert features.tokens_lost == 0


@pytest.mark.parametrize(
    ("text_a", "text_b", "tokens", "lost"),
    [
        ("a b a b a b", None, "[CLS] a b a b [SEP]", 2),
        ("a a a a", "b b", "[CLS] a a [SEP] b [SEP]", 3),
        ("a", "b b b", "[CLS] a [SEP] b b [SEP]", 1),
        ("a b", "\u200b", "[CLS] a b [SEP]", 0),  # a text_b without a piece counts as none
        ("", None, "[CLS] [SEP]", 0),
    ],
)
def test_rows(tokenizer, text_a, text_b, tokens, lost):
    (features,) = convert_examples_to_features([InputExample(0, text_a, text_b)], 6, tokenizer)
    assert features.tokens == tokens.split()
    assert features.tokens_lost == lost
    assert sum(features.input_mask) == len(features.tokens)


def test_too_short_a_row_is_refused(tokenizer):
    with pytest.raises(ConfigError, match="seq_length is 2; at least 3"):
        convert_examples_to_features([], 2, tokenizer)


def test_input_fn_of_features_in_memory(tokenizer):
    examples = [InputExample(i, text) for i, text in enumerate(["is this jack", "the a", "", "no"])]
    features = convert_examples_to_features(examples, 10, tokenizer)
    batches = list(input_fn_builder(features, 10)({"batch_size": 3}))
    assert [batch["unique_ids"].numpy().tolist() for batch in batches] == [[0, 1, 2], [3]]
    rows = [row for batch in batches for row in batch["input_ids"].numpy().tolist()]
    assert rows == [f.input_ids for f in features]
    with pytest.raises(ConfigError, match="are 10 long; seq_length is 12"):
        input_fn_builder(features, 12)

"""EncoderOutputs: the states by number, and the way to a dict and back."""

import pytest

from bert_features.encoder.modeling import BertEncoder
from bert_features.encoder.outputs import EncoderOutputs
from bert_features.errors import ConfigError
from tests.toy import TOY, random_batch

OUTPUTS = EncoderOutputs("embeddings", ["block 0", "block 1"], "pooled")


def test_states_count_the_embeddings():
    assert OUTPUTS.states == ["embeddings", "block 0", "block 1"]
    assert [OUTPUTS.state(number) for number in (0, 1, 2)] == OUTPUTS.states
    assert OUTPUTS.sequence_output == "block 1"
    assert EncoderOutputs("embeddings", []).sequence_output == "embeddings"


@pytest.mark.parametrize("number", [-1, 3])
def test_a_state_out_of_range(number):
    with pytest.raises(ConfigError, match=rf"{number} is outside \[0, 2\]"):
        OUTPUTS.state(number)


def test_the_dict_and_back():
    assert OUTPUTS.as_dict() == {
        "embedding_output": "embeddings",
        "encoder_outputs": ["block 0", "block 1"],
        "sequence_output": "block 1",
        "pooled_output": "pooled",
    }
    assert EncoderOutputs.from_dict(OUTPUTS.as_dict()) == OUTPUTS
    assert "pooled_output" not in EncoderOutputs("embeddings", []).as_dict()


@pytest.mark.parametrize("with_pooler", [False, True])
def test_it_reads_what_the_encoder_returns(with_pooler):
    encoded = BertEncoder(TOY, with_pooler=with_pooler)(random_batch(TOY, [4], 4))
    outputs = EncoderOutputs.from_dict(encoded)
    assert outputs.state(TOY.num_hidden_layers) is encoded["sequence_output"]
    assert (outputs.pooled_output is not None) == with_pooler

"""TensorFlow Lite converts an export of ids, and computes what the NumPy reference does."""

import numpy as np
import pytest
import tensorflow as tf

from bert_features import export_savedmodel
from bert_features.config.output_specs import plan_outputs
from bert_features.config.outputs import OutputConfig
from bert_features.config.poolings import POOLINGS
from bert_features.encoder.outputs import EncoderOutputs
from bert_features.encoder.pooling import compute_outputs
from tests.reference import numpy_outputs
from tests.reference.numpy_encoder import NumpyEncoder
from tests.toy import TOY, TOY_VOCAB

IDS = ("input_word_ids", "input_mask", "input_type_ids")
LENGTHS = (9, 4, 1)  # as in the fixture `batch`
SPECIAL = [TOY_VOCAB.index("[CLS]"), TOY_VOCAB.index("[SEP]")]
SEQUENCE = [
    {"name": pooling, "level": "sequence", "pooling": pooling, "layers": [-1]}
    for pooling in POOLINGS["sequence"]
    if pooling not in ("pooler", "last")  # an export of ids refuses `last`
]
SEQUENCE += [
    {**SEQUENCE[0], "name": "normalized", "normalize": True},
    {**SEQUENCE[0], "name": "text_only", "special_tokens": False},
]
TOKEN = [
    {"name": "weighted", "layers": [-1, 0], "combine": "weighted", "weights": [0.75, -2.0]},
    {"name": "joined", "layers": [-1, "embeddings"], "combine": "concat"},
]


pytestmark = pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")


def test_poolings_of_sequences(batch):
    """Without an encoder, so fast that each run of the tests notices one that does not convert."""
    outputs = plan_outputs([OutputConfig.of(output) for output in SEQUENCE], TOY)
    state = np.random.default_rng(0).normal(size=(3, 9, TOY.hidden_size)).astype(np.float32)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None, TOY.hidden_size], name="state"),
            tf.TensorSpec([None, None], tf.int32, name="ids"),
            tf.TensorSpec([None, None], tf.int32, name="mask"),
        ]
    )
    def pool(state, ids, mask):
        encoded = EncoderOutputs(state, [state] * TOY.num_hidden_layers).as_dict()
        inputs = {"input_word_ids": ids, "input_mask": mask}
        return compute_outputs(encoded, inputs, outputs, SPECIAL)

    module = tf.Module()
    module.pool = pool
    made = tf.lite.TFLiteConverter.from_concrete_functions([pool.get_concrete_function()], module)
    run = tf.lite.Interpreter(model_content=made.convert()).get_signature_runner()
    found = run(state=state, ids=batch["input_word_ids"], mask=batch["input_mask"])
    for row, length in enumerate(LENGTHS):
        special = np.isin(batch["input_word_ids"][row, :length], SPECIAL)
        check_sequences(found, row, state[row, :length], special)


@pytest.mark.slow
@pytest.mark.release
def test_every_output(toy, batch, weights, tmp_path):
    export = export_savedmodel(
        tmp_path / "ids", signature="ids", checkpoint=toy, outputs=[*SEQUENCE, *TOKEN]
    )
    model = tf.lite.TFLiteConverter.from_saved_model(str(export)).convert()
    found = tf.lite.Interpreter(model_content=model).get_signature_runner()(**batch)
    states = NumpyEncoder(TOY, weights)(*(batch[name] for name in IDS))
    for row, length in enumerate(LENGTHS):
        own = [state[row, :length] for state in states]
        special = np.isin(batch["input_word_ids"][row, :length], SPECIAL)
        for output in TOKEN:
            wanted = numpy_outputs.combine(own, output)
            close(found[output["name"]][row, :length], wanted)
        check_sequences(found, row, own[-1], special)
        close(found["sequence_output"][row, :length], own[-1])
    close(found["pooled_output"], NumpyEncoder(TOY, weights).pooled(states[-1]))


def check_sequences(found, row, state, special):
    for output in SEQUENCE:
        wanted = numpy_outputs.pool_sequence(
            state, special, output["pooling"], output.get("special_tokens", True)
        )
        close(found[output["name"]][row], numpy_outputs.finish(wanted, output))


def close(got, wanted):
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)

"""TensorFlow Lite converts an export of ids, and computes what the NumPy reference does."""

import numpy as np
import pytest
import tensorflow as tf

from bert_features import export_savedmodel
from bert_features.config.poolings import POOLINGS
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


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
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
        for output in SEQUENCE:
            wanted = numpy_outputs.pool_sequence(
                own[-1], special, output["pooling"], output.get("special_tokens", True)
            )
            close(found[output["name"]][row], numpy_outputs.finish(wanted, output))
        close(found["sequence_output"][row, :length], own[-1])
    close(found["pooled_output"], NumpyEncoder(TOY, weights).pooled(states[-1]))


def close(got, wanted):
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)

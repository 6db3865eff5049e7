"""The job: shapes and outputs are those of a run; settings that do not fit are refused."""

import json

import pytest

from bert_features.config.bert_config import BertConfig
from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import ConfigError
from bert_features.tpu.job import plan_job
from tests.reference.sentence_transformers_folder import write_settings
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, TOY_VOCAB, random_weights


def plan(settings, **options):
    settings = ExtractConfig.of({"layers": [-1], **settings})
    return plan_job(settings, "v2:2x2", architecture="bert-tiny", **options)


def test_shapes_are_those_of_a_run():
    """Four chips of two devices each: full batches, then those of the last rows of a window."""
    assert plan({"max_seq_length": 64}).shapes == ((256, 128), (32, 128))
    assert plan({}).shapes == ((256, 128), (64, 512), (32, 128), (8, 512))
    padded = plan({"max_seq_length": 64, "packing": False})
    assert padded.shapes == ((2048, 16), (1024, 32), (512, 64))
    assert (plan({}).packed, padded.packed) == (True, False)
    fixed = plan({"max_seq_length": 64, "buckets": [32], "batch_size": 64})
    assert fixed.shapes == ((16, 32), (16, 64))
    assert plan({"max_seq_length": 64, "buckets": [32]}, rows=6).shapes == ((6, 32), (6, 64))


def test_batches_of_attention():
    """No packed rows; on a device 512 MiB of 12 heads of float32 in four layers: 5,461 tokens."""
    settings = {"outputs": [{"kind": "attention", "layers": [-1, -2, -3, -4]}], "buckets": [128]}
    job = plan_job(ExtractConfig.of(settings), "v2:2x2", architecture="bert-base-uncased")
    assert job.shapes == ((84, 128), (20, 512))
    given = ExtractConfig.of(settings | {"batch_tokens": 1 << 18})
    assert plan_job(given, "v2:2x2", architecture="bert-base-uncased").shapes[1] == (128, 512)


@pytest.mark.parametrize(
    ("settings", "rows", "message"),
    [
        ({"batch_size": 20}, None, "pass 24"),
        ({}, 3, "12 rows"),
        ({"batch_size": 16}, 2, "batch_size"),
        ({"max_seq_length": 600}, None, "max_seq_length"),
    ],
)
def test_shapes_that_do_not_fit(settings, rows, message):
    with pytest.raises(ConfigError, match=message):
        plan(settings, rows=rows)


def test_a_config_file_needs_no_weights(tmp_path):
    path = tmp_path / "bert_config.json"
    path.write_text(json.dumps({"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 4}))
    job = plan_job(ExtractConfig.of({"config_file": str(path)}), "v5e:2x2")
    assert job.config == BertConfig(vocab_size=50, hidden_size=24, num_hidden_layers=4)


def test_outputs_are_those_of_the_device_step():
    """Sequences of windows are averaged, then scaled and cast, outside of it."""
    wanted = {"level": "sequence", "normalize": True, "dtype": "float16"}
    (whole,) = plan(wanted).outputs
    assert (whole.is_part, whole.dtype) == (False, "float16")
    (part,) = plan(wanted | {"long_text": "window"}).outputs
    assert (part.is_part, part.dtype) == (True, "float32")


def test_pooling_and_length_are_those_of_the_checkpoint(tmp_path):
    folder = write_directory(tmp_path / "toy", TOY, TOY_VOCAB, random_weights(TOY))
    write_settings(folder, modes=["cls", "max"], normalize=True, length=16)
    settings = {"checkpoint": str(folder), "level": "sequence", "pooling": "auto"}
    settings |= {"packing": False}
    job = plan_job(ExtractConfig.of(settings), "v2:2x2")
    (output,) = job.outputs
    assert (output.pooling, output.normalize, output.width) == ("cls+max", True, 16)
    assert [length for _, length in job.shapes] == [16]

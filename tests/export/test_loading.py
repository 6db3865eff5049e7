"""load_export: the outputs of both signatures, and what it refuses."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from bert_features import export_savedmodel, load_export
from bert_features.errors import ConfigError, InputError, OutputError
from tests.toy import TOY_VOCAB

pytestmark = pytest.mark.slow


def test_load_export_of_text(toy, toy_text):
    export = load_export(toy_text)
    assert export.signature == "text"
    assert export.outputs == ("input_mask", "input_word_ids", "last", "mean")
    assert export.tokens == tuple(TOY_VOCAB)
    texts = ["the a b", "no it is not this . " * 4]
    result = export(texts)
    assert [export.tokens[i] for i in result["input_word_ids"][0][:5]] == [
        "[CLS]", "the", "a", "b", "[SEP]",
    ]  # fmt: skip
    assert result["input_mask"].sum(axis=1).tolist() == [5, 12]
    np.testing.assert_allclose(
        export(texts, "mean")[0], result["last"][0, 1:4].mean(axis=0), rtol=0, atol=1e-6
    )
    alone = export(texts[:1])
    assert alone["last"].shape == (1, 5, 8)  # as long as the longest row, not as max_seq_length
    np.testing.assert_allclose(alone["last"][0], result["last"][0, :5], rtol=0, atol=1e-5)
    assert export([])["mean"].shape == (0, 8)
    assert export(["\ud800"])["mean"].shape == (1, 8)


def test_load_export_of_ids(toy_ids, batch):
    export = load_export(toy_ids)
    assert export.signature == "ids"
    assert export.outputs == (
        "default", "encoder_outputs", "mean", "pooled_output", "sequence_output",
    )  # fmt: skip
    assert [a.shape for a in export(batch, "encoder_outputs")] == [(3, 9, 8)] * 3


def test_what_the_reader_refuses(toy_text, toy_ids, tmp_path):
    with pytest.raises(ConfigError, match="layer_output_2"):
        load_export(toy_text)(["a"], output="layer_output_2")
    for export, inputs in ((toy_text, "a"), (toy_ids, ["a"])):
        with pytest.raises(InputError):
            load_export(export)(inputs)
    with pytest.raises(OutputError, match=r"saved_model\.pb"):
        load_export(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes(b"nothing of the kind")
    with pytest.raises(OutputError, match="cannot be read"):
        load_export(tmp_path)
    (tmp_path / "plain").mkdir()
    tf.saved_model.save(tf.train.Checkpoint(), str(tmp_path / "plain"))
    with pytest.raises(OutputError, match="cannot be read"):
        load_export(tmp_path / "plain")


def test_outputs_of_a_fixed_length(toy, tmp_path):
    tokens = {"name": "tokens", "layers": [0]}
    last = {**tokens, "name": "sep", "level": "sequence", "pooling": "last"}
    export = load_export(
        export_savedmodel(tmp_path / "x", checkpoint=toy, outputs=[last, tokens], max_seq_length=12)
    )
    result = export(["the a b"])
    assert result["tokens"].shape == (1, 12, 8)
    np.testing.assert_allclose(result["sep"], result["tokens"][:, 4], rtol=0, atol=1e-6)


@pytest.mark.release
def test_an_export_of_text_is_read_in_a_process_that_used_nothing_else(toy_text):
    """Its graph has operations of tensorflow-text, which must be known before it is read."""
    program = f"import bert_features; print(bert_features.load_export({str(toy_text)!r}).signature)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("text\n", 0), done.stderr

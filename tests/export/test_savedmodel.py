"""SavedModels: what they compute without this package, and how they are written."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from bert_features import (
    BertFeatures,
    BertTextInput,
    FeatureExtractor,
    export_savedmodel,
    find_checkpoint,
    load_export,
    read_weights,
)
from bert_features.checkpoints.read import has_pooler
from bert_features.errors import OutputError
from tests.reference.sentence_transformers_folder import write_settings
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, TOY_VOCAB

MEAN = {"name": "mean", "level": "sequence", "layers": [-1], "special_tokens": False}
UNIT = {"name": "unit", "level": "sequence", "layers": [-1], "normalize": True}
LAST = {"name": "last", "layers": [-1]}
TEXTS = [
    "Hello, World! It's a naïve café…",
    "",
    "ΟΔΥΣΣΕΥΣ 中文 mixed",
    "\u200bzero\u00adwidth \x00 control",
    "unaffable embeddings " * 40,
    "[CLS] typed [SEP] specials",
]

BLOCKED = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("bert_features", "keras"):
            raise ImportError(name + " is blocked")

import numpy as np, tensorflow as tf, tensorflow_text
for name in [n for n in sys.modules if n.split(".")[0] in ("bert_features", "keras")]:
    del sys.modules[name]
sys.meta_path.insert(0, Block())
try:
    import bert_features
except ImportError:
    pass
else:
    sys.exit("bert_features is importable")
for export in sys.argv[1:]:
    inputs = np.load(export + "_in.npz", allow_pickle=True)
    model = tf.saved_model.load(export)
    (arguments,) = [f.structured_input_signature[1] for f in model.signatures.values()]
    result = model.signatures["serving_default"](**{n: tf.constant(inputs[n]) for n in arguments})
    np.savez(export + "_out.npz", **{name: value.numpy() for name, value in result.items()})
"""


@pytest.fixture(scope="module")
def served(minilm_dir, toy_ids, batch, tmp_path_factory):
    """What `serving_default` of two exports gives in a process that cannot import bert_features."""
    folder = tmp_path_factory.mktemp("served")
    export_savedmodel(
        folder / "text", checkpoint=minilm_dir, outputs=[UNIT, LAST], max_seq_length=32
    )
    np.savez(folder / "text_in.npz", text=np.array([t.encode() for t in TEXTS], object))
    shutil.copytree(toy_ids, folder / "ids")
    np.savez(folder / "ids_in.npz", **batch)
    command = [sys.executable, "-c", BLOCKED, str(folder / "text"), str(folder / "ids")]
    run = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert run.returncode == 0, run.stderr
    return {name: dict(np.load(folder / f"{name}_out.npz")) for name in ("text", "ids")}


@pytest.mark.slow
def test_minilm_from_text_in_a_fresh_process(minilm_dir, served):
    result = served["text"]
    assert result.keys() == {"unit", "last", "input_word_ids", "input_mask"}

    batch = BertTextInput.from_checkpoint(minilm_dir, max_seq_length=32)(TEXTS)
    for name in ("input_word_ids", "input_mask"):
        np.testing.assert_array_equal(result[name], batch[name])
    layer = BertFeatures.from_checkpoint(minilm_dir, [UNIT, LAST])(batch)
    extractor = FeatureExtractor.from_checkpoint(
        minilm_dir, outputs=[UNIT, LAST], max_seq_length=32, device="cpu"
    )
    np.testing.assert_allclose(result["unit"], layer["unit"], rtol=0, atol=1e-6)
    for row, record in enumerate(extractor(TEXTS)):
        np.testing.assert_allclose(result["unit"][row], record.features["unit"], rtol=0, atol=1e-6)
        # Token vectors are as long as 10: the contract for them is 1e-5.
        tokens = record.features["last"]
        np.testing.assert_allclose(result["last"][row, : len(tokens)], tokens, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_toy_ids_in_a_fresh_process(toy, batch, served):
    result = served["ids"]
    assert result.keys() == {"default", "pooled_output", "sequence_output", "mean"}
    outputs = [LAST, MEAN, {"name": "pooled", "level": "sequence", "pooling": "pooler"}]
    layer = BertFeatures.from_checkpoint(toy, outputs)(batch)
    for name, same in [("sequence_output", "last"), ("mean", "mean"), ("default", "pooled")]:
        np.testing.assert_allclose(result[name], layer[same], rtol=0, atol=1e-6)


def test_auto_pooling_is_that_of_the_folder(tmp_path, weights):
    folder = write_directory(tmp_path / "uncased_toy", TOY, TOY_VOCAB, weights)
    write_settings(folder, modes=["max", "cls"], normalize=True)
    auto = {"name": "s", "level": "sequence", "pooling": "auto"}
    to = export_savedmodel(tmp_path / "x", checkpoint=folder, outputs=[auto], max_seq_length=8)
    own = {**auto, "pooling": "max+cls", "layers": [-1], "normalize": True}
    extractor = FeatureExtractor.from_checkpoint(
        folder, outputs=[own], max_seq_length=8, batch_size=8
    )
    texts = ["is this jackson", "the a b"]
    np.testing.assert_allclose(load_export(to)(texts, "s"), extractor.encode(texts), atol=1e-6)


AUTO = {"name": "s", "level": "sequence", "pooling": "auto"}


def test_auto_pooling_of_texts_has_the_length_of_the_folder(tmp_path, weights):
    folder = write_directory(tmp_path / "uncased_toy", TOY, TOY_VOCAB, weights)
    write_settings(folder, length=6, do_lower_case=True)  # the tokenizer lower-cases already
    to = export_savedmodel(tmp_path / "x", checkpoint=folder, outputs=[AUTO])
    texts = ["is this jackson the a b", "The a"]
    result = load_export(to)(texts)
    assert result["input_word_ids"].shape == (2, 6)
    extractor = FeatureExtractor.from_checkpoint(folder, outputs=[AUTO], batch_size=8)
    np.testing.assert_allclose(result["s"], extractor.encode(texts), atol=1e-6)


@pytest.mark.parametrize(("signature", "hidden_act"), [("text", "gelu_erf"), ("ids", "gelu_tanh")])
def test_export_reads_back_as_the_same_checkpoint(toy, tmp_path, weights, signature, hidden_act):
    export = export_savedmodel(
        tmp_path / "x", signature=signature, checkpoint=toy, layers=[0], hidden_act=hidden_act
    )
    found = find_checkpoint(export)
    assert found.config == TOY.model_copy(update={"hidden_act": hidden_act})
    assert (found.do_lower_case, has_pooler(found)) == (True, True)
    assert found.vocab_file.read_text().split() == TOY_VOCAB
    read = read_weights(found, pooler=True)
    assert read.keys() == weights.keys()
    for name, value in weights.items():
        np.testing.assert_array_equal(read[name], value)
    contents = (export / "saved_model.pb").read_bytes()
    assert str(tmp_path).encode() not in contents
    assert b"/tmp" not in contents


def test_a_failure_of_a_library_is_one_line(toy, tmp_path, monkeypatch):
    def fail(obj, path, signatures):
        raise ValueError("odd\nthing")

    monkeypatch.setattr(tf.saved_model, "save", fail)
    (tmp_path / "v3").mkdir()
    (tmp_path / "current").symlink_to("v3")
    with pytest.raises(OutputError, match=r"^cannot write .*/current: odd thing; nothing was left"):
        export_savedmodel(tmp_path / "current", checkpoint=toy, outputs=[LAST], overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["current", "v3"]


@pytest.mark.slow
def test_a_failure_leaves_what_was_there(toy, toy_text, tmp_path, monkeypatch):
    to = shutil.copytree(toy_text, tmp_path / "x")

    def full_disk(obj, path, signatures):
        del obj, signatures
        tf.io.gfile.makedirs(path)
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", full_disk)
    with pytest.raises(OutputError, match=r"cannot write .*x: .*No space left on device"):
        export_savedmodel(to, checkpoint=toy, outputs=[MEAN], overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    assert "last" in load_export(to).outputs

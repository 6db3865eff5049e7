"""SavedModels: what they compute without this package, and how they are written."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from bert_features import (
    BertFeatures,
    FeatureExtractor,
    export_savedmodel,
    find_checkpoint,
    load_export,
    read_weights,
)
from bert_features.checkpoints.read import has_pooler
from bert_features.errors import OutputError
from tests import families
from tests.reference.numpy_encoder import NumpyEncoder
from tests.reference.sentence_transformers_folder import write_settings
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, TOY_VOCAB, random_batch
from tests.weights import assert_same

MEAN = {"name": "mean", "level": "sequence", "layers": [-1], "special_tokens": False}
LAST = {"name": "last", "layers": [-1]}
TEXTS = ["Is this Jacksonville?", "", "中文 not a b", "this is it . " * 9, "[CLS] typed [SEP]"]

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
def served(toy_text, toy_ids, modernbert, batch, tmp_path_factory):
    """What `serving_default` of exports gives in a process that cannot import bert_features."""
    folder = tmp_path_factory.mktemp("served")
    shutil.copytree(toy_text, folder / "text")
    np.savez(folder / "text_in.npz", text=np.array([t.encode() for t in TEXTS], object))
    shutil.copytree(toy_ids, folder / "ids")
    np.savez(folder / "ids_in.npz", **batch)
    export_savedmodel(
        folder / "modernbert", signature="ids", checkpoint=modernbert[0], outputs=[MEAN]
    )
    np.savez(folder / "modernbert_in.npz", **modernbert[1])
    names = ("text", "ids", "modernbert")
    command = [sys.executable, "-c", BLOCKED, *(str(folder / name) for name in names)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert run.returncode == 0, run.stderr
    return {name: dict(np.load(folder / f"{name}_out.npz")) for name in names}


@pytest.fixture(scope="module")
def modernbert(tmp_path_factory):
    """A ModernBERT whose layers have windows of 9 tokens, and rows below and beyond them."""
    folder = families.folder("modernbert", tmp_path_factory.mktemp("checkpoint"))
    batch = random_batch(families.checkpoint("modernbert").config, [24, 17, 9, 3], 24)
    return folder, batch | {"input_type_ids": np.zeros_like(batch["input_mask"])}


@pytest.mark.slow
def test_text_in_a_fresh_process(toy, served):
    """tests/text/test_tokenization has texts of all kinds in a SavedModel."""
    result = served["text"]
    assert result.keys() == {"mean", "last", "input_word_ids", "input_mask"}
    extractor = FeatureExtractor.from_checkpoint(
        toy, outputs=[MEAN, LAST], max_seq_length=12, hidden_act="gelu_erf", device="cpu"
    )
    for row, record in enumerate(extractor(TEXTS)):
        mean, tokens = record.features["mean"], record.features["last"]
        np.testing.assert_allclose(result["mean"][row], mean, rtol=0, atol=1e-6)
        np.testing.assert_allclose(result["last"][row, : len(tokens)], tokens, rtol=0, atol=1e-5)
        ids = result["input_word_ids"][row][result["input_mask"][row] == 1]
        assert [TOY_VOCAB[i] for i in ids] == list(record.tokens)


@pytest.mark.slow
def test_toy_ids_in_a_fresh_process(toy, batch, served):
    result = served["ids"]
    assert result.keys() == {"default", "pooled_output", "sequence_output", "mean"}
    outputs = [LAST, MEAN, {"name": "pooled", "level": "sequence", "pooling": "pooler"}]
    layer = BertFeatures.from_checkpoint(toy, outputs)(batch)
    for name, same in [("sequence_output", "last"), ("mean", "mean"), ("default", "pooled")]:
        np.testing.assert_allclose(result[name], layer[same], rtol=0, atol=1e-6)


@pytest.mark.slow
def test_modernbert_in_a_fresh_process(modernbert, served):
    folder, batch = modernbert
    found = find_checkpoint(folder)
    want = NumpyEncoder(found.config, read_weights(found, pooler=False))(*batch.values())[-1]
    real = batch["input_mask"] == 1
    got = served["modernbert"]["sequence_output"]
    np.testing.assert_allclose(got[real], want[real], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_auto_pooling_and_length_are_those_of_the_folder(tmp_path, weights):
    folder = write_directory(tmp_path / "uncased_toy", TOY, TOY_VOCAB, weights)
    # The tokenizer lower-cases already.
    write_settings(folder, modes=["max", "cls"], normalize=True, length=6, do_lower_case=True)
    auto = {"name": "s", "level": "sequence", "pooling": "auto"}
    texts = ["is this jackson the a b", "The a"]
    to = export_savedmodel(tmp_path / "x", checkpoint=folder, outputs=[auto])
    result = load_export(to)(texts)
    assert result["input_word_ids"].shape == (2, 6)
    own = {**auto, "pooling": "max+cls", "layers": [-1], "normalize": True}
    extractor = FeatureExtractor.from_checkpoint(
        folder, outputs=[own], max_seq_length=6, batch_size=8
    )
    np.testing.assert_allclose(result["s"], extractor.encode(texts), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("export", "hidden_act"), [("toy_text", "gelu_erf"), ("toy_ids", "gelu_tanh")]
)
def test_export_reads_back_as_the_same_checkpoint(request, weights, export, hidden_act):
    export = request.getfixturevalue(export)
    found = find_checkpoint(export)
    assert found.config == TOY.model_copy(update={"hidden_act": hidden_act})
    assert (found.do_lower_case, has_pooler(found)) == (True, True)
    assert found.vocab_file.read_text().split() == TOY_VOCAB
    assert_same(read_weights(found, pooler=True), weights)
    assert b"/tmp" not in (export / "saved_model.pb").read_bytes()


@pytest.mark.slow
def test_a_failure_leaves_what_was_there(toy, toy_text, tmp_path, monkeypatch):
    shutil.copytree(toy_text, tmp_path / "v3")
    (tmp_path / "current").symlink_to("v3")

    def full_disk(obj, path, signatures):
        tf.io.gfile.makedirs(path)
        raise tf.errors.ResourceExhaustedError(None, None, "No space left\non device")

    monkeypatch.setattr(tf.saved_model, "save", full_disk)
    message = r"^cannot write .*/current: No space left on device; nothing was left"
    with pytest.raises(OutputError, match=message):
        export_savedmodel(tmp_path / "current", checkpoint=toy, layers=[0], overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["current", "v3"]
    assert "last" in load_export(tmp_path / "current").outputs

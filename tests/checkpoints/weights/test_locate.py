"""Where weights are: a directory, a prefix, a file; and what is refused."""

import pickle
import shutil

import pytest

from bert_features.checkpoints.find import find_checkpoint
from bert_features.errors import CheckpointError


@pytest.mark.parametrize(
    "suffix",
    ["", "bert_model.ckpt", "bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"],
)
def test_tf1_by_directory_prefix_or_file(tf1, suffix):
    assert find_checkpoint(tf1 / suffix).weights_path == tf1 / "bert_model.ckpt"


def test_the_latest_of_several_tf1_checkpoints(tf1, tmp_path):
    shutil.copy(tf1 / "bert_config.json", tmp_path)
    for part in tf1.glob("bert_model.ckpt.*"):
        for step in (8, 9, 10):
            shutil.copy(part, tmp_path / f"model.ckpt-{step}{part.suffix}")
    with pytest.raises(CheckpointError, match="several checkpoints"):
        find_checkpoint(tmp_path)
    (tmp_path / "checkpoint").write_text(
        'model_checkpoint_path: "/where/it/was/trained/model.ckpt-9"\n'
        'all_model_checkpoint_paths: "/where/it/was/trained/model.ckpt-10"\n'
    )
    assert find_checkpoint(tmp_path).weights_path == tmp_path / "model.ckpt-9"
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-7"\n')
    with pytest.raises(CheckpointError, match="several checkpoints"):
        find_checkpoint(tmp_path)


class Trap:
    """Leaves a file behind if it is ever unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "epoch=1.ckpt"])
def test_pickles_run_nothing_and_the_way_out_is_named(copy, name):
    (copy / "model.safetensors").unlink()
    (copy / name).write_bytes(pickle.dumps(Trap(copy / "sprung")))
    with pytest.raises(CheckpointError, match=r"is a pickle.*write the weights alone"):
        find_checkpoint(copy / name)
    with pytest.raises(CheckpointError, match=r"is a pickle|is not named pytorch_model\.bin"):
        find_checkpoint(copy)
    assert not (copy / "sprung").exists()


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("adapter_model.safetensors", "a LoRA adapter"),
        ("tf_model.h5", "a file of Keras"),
        ("flax_model.msgpack", "a file of Flax"),
        ("weights.h5", "a model of Keras"),
        ("Model-Q4.GGUF", "a model for another program"),
        ("uncased.tar.gz", "an archive"),
    ],
)
def test_what_lies_there_is_named(copy, file, message):
    (copy / "model.safetensors").rename(copy / file)
    for asked in (copy, copy / file):
        with pytest.raises(CheckpointError, match=f"{copy}/{file} is {message}"):
            find_checkpoint(asked)


def test_an_adapter_beside_weights_is_not_applied(copy, caplog):
    (copy / "adapter_config.json").write_text("{}")
    (copy / "adapter_model.safetensors").write_bytes(b"")
    assert find_checkpoint(copy).weights_path.name == "model.safetensors"
    assert "the LoRA adapter adapter_model.safetensors is not applied" in caplog.text


def test_a_name_that_is_misspelt(tmp_path, monkeypatch):
    """Published names, and what lies beside the path; a checkpoint of TensorFlow by its prefix."""
    (tmp_path / "berts" / "my-model").mkdir(parents=True)
    (tmp_path / "berts" / "my-notes.txt").write_text("")
    (tmp_path / "berts" / "bert_model.ckpt.index").write_text("")
    monkeypatch.chdir(tmp_path)
    for name, meant in {
        "bert-base-uncasd": "did you mean 'bert-base-uncased'",
        "bert": "did you mean 'berts'",
        "berts/my-modle": "did you mean 'berts/my-model'",
        "berts/bert_modle.ckpt": "did you mean 'berts/bert_model.ckpt'",
        "nothing-alike": "at that path; pass one",
        str(tmp_path / "minilmm"): "at that path; pass one",
    }.items():
        with pytest.raises(CheckpointError, match=meant):
            find_checkpoint(name)

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
def test_pickles_are_refused_unopened_and_the_way_out_named(tmp_path, name):
    (tmp_path / name).write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    for asked in (tmp_path, tmp_path / name):
        with pytest.raises(CheckpointError, match=r"is a pickle.*safe_serialization=True"):
            find_checkpoint(asked)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("files", "name", "message"),
    [
        ([], "absent", "there is no checkpoint"),
        ([], "", "holds no checkpoint"),
        (["x.txt"], "x.txt", "is not a checkpoint; allowed"),
        (["a.safetensors", "b.safetensors"], "", "several .* the path of one: a.saf.*, b.saf"),
        (["model.safetensors"], "", r"neither bert_config\.json nor config\.json in"),
    ],
)
def test_what_cannot_be_found(tmp_path, files, name, message):
    for file in files:
        (tmp_path / file).touch()
    with pytest.raises(CheckpointError, match=message):
        find_checkpoint(tmp_path / name)


def test_a_name_that_is_misspelt(tmp_path, monkeypatch):
    """Published names, and what lies beside the path; a checkpoint of TensorFlow by its prefix."""
    (tmp_path / "berts" / "my-model").mkdir(parents=True)
    (tmp_path / "berts" / "my-notes.txt").write_text("")
    (tmp_path / "berts" / "bert_model.ckpt.index").write_text("")
    monkeypatch.chdir(tmp_path)
    for name, meant in {
        "minilmm": "'minilm'",
        "bert-base-uncasd": "'bert-base-uncased' or 'bert-base-cased' or .*",
        "bert": "'berts'",
        str(tmp_path / "berts" / "my-modle"): f"'{tmp_path}/berts/my-model'",
        str(tmp_path / "berts" / "bert_modle.ckpt"): f"'{tmp_path}/berts/bert_model.ckpt'",
    }.items():
        message = f"there is no checkpoint '{name}': .*; did you mean {meant}\\? pass one of these"
        with pytest.raises(CheckpointError, match=message):
            find_checkpoint(name)
    for name in ("nothing-alike", str(tmp_path / "absent" / "x"), str(tmp_path / "minilmm")):
        with pytest.raises(CheckpointError, match=r"\.index at that path; pass one of these"):
            find_checkpoint(name)

"""Checkpoints on object stores: what is copied, when it is copied again, and errors in one line."""

import json
import logging

import pytest
from safetensors.numpy import save_file

from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import read_weights
from bert_features.checkpoints.sources import store
from bert_features.errors import CheckpointError
from tests import sentence_dense
from tests.reference.object_store import ServerError
from tests.reference.tf1_checkpoint import huggingface_weights, write_directory
from tests.reference.torch_file import zip_of
from tests.toy import TOY, TOY_VOCAB, random_weights
from tests.weights import assert_same

WEIGHTS = random_weights(TOY)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_FEATURES_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def upload(store, folder, to):
    for path in folder.rglob("*"):
        if path.is_file():
            store.files[f"{to}/{path.relative_to(folder).as_posix()}"] = path.read_bytes()


@pytest.fixture
def safetensors(object_store, tmp_path):
    folder = write_directory(tmp_path / "m", TOY, TOY_VOCAB, WEIGHTS)
    (folder / "pytorch_model.bin").write_bytes(b"\x80")
    (folder / "README.md").write_text("of no use here")
    (folder / "tokenizer.json").write_text("{}")
    upload(object_store, folder, "bucket/models/toy-cased")
    return object_store


def copied(cache):
    return sorted(
        path.name for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"
    )


@pytest.mark.parametrize("end", ["", "/", "/model.safetensors"])
def test_safetensors(safetensors, cache, end):
    checkpoint = find_checkpoint(f"toy://bucket/models/toy-cased{end}")
    assert checkpoint.name == f"toy://bucket/models/toy-cased{end}"
    assert checkpoint.do_lower_case is False  # by the folder's name
    assert checkpoint.vocab_file.name == "vocab.txt"
    assert checkpoint.weights_path.is_relative_to(cache)
    assert_same(read_weights(checkpoint, pooler=True), WEIGHTS)
    names = ["config.json", "model.safetensors", "tokenizer.json", "vocab.txt"]
    assert copied(cache) == names


@pytest.mark.parametrize("inner", ["", "0_Transformer"])
def test_a_folder_of_sentence_transformers(object_store, tmp_path, cache, inner):
    folder = sentence_dense.write("labse", tmp_path / "m")
    write_directory(folder / inner, TOY, TOY_VOCAB, WEIGHTS)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = inner
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "2_Dense" / "pytorch_model.bin").write_bytes(b"")
    upload(object_store, folder, "bucket/toy-cased")
    found, local = map(find_checkpoint, ("toy://bucket/toy-cased", folder))
    assert found.vocab_file.is_file()
    for name in ("pooling_modes", "prompts", "max_seq_length", "unsupported"):
        there, here = (getattr(each.sentence_transformers, name) for each in (found, local))
        assert there == here
    assert_same(read_weights(found, pooler=True), WEIGHTS)
    assert copied(cache).count("pytorch_model.bin") == 0
    object_store.fetched.clear()
    find_checkpoint("toy://bucket/toy-cased")
    assert object_store.fetched == []


@pytest.mark.parametrize("end", ["", "/bert_model.ckpt", "/bert_model.ckpt.index"])
def test_a_tf1_checkpoint_beside_others(object_store, tf1, cache, end):
    upload(object_store, tf1, "bucket/run")
    files = object_store.files
    for path in [path for path in files if "/bert_model.ckpt." in path]:
        for step in (1, 2):
            files[path.replace("bert_model.ckpt", f"model.ckpt-{step}")] = files[path]
    assert_same(read_weights(find_checkpoint(f"toy://bucket/run{end}"), pooler=True), WEIGHTS)
    others = [name for name in copied(cache) if name.startswith("model.ckpt-")]
    assert bool(others) is not bool(end)  # by its own name it comes alone


def test_a_saved_model(object_store, saved_model):
    upload(object_store, saved_model, "bucket/hub/4")
    for end in ("", "/saved_model.pb"):
        checkpoint = find_checkpoint(f"toy://bucket/hub/4{end}")
        assert checkpoint.do_lower_case is True
        assert checkpoint.vocab_file.parent.name == "assets"
        assert_same(read_weights(checkpoint, pooler=True), WEIGHTS)


def test_shards(safetensors, tmp_path, cache):
    tensors = huggingface_weights(WEIGHTS, TOY)
    names, shards = sorted(tensors), {}
    for i in range(2):
        shard = f"model-0000{i + 1}-of-00002.safetensors"
        save_file({name: tensors[name] for name in names[i::2]}, tmp_path / shard)
        safetensors.files[f"bucket/models/toy-cased/{shard}"] = (tmp_path / shard).read_bytes()
        shards |= dict.fromkeys(names[i::2], shard)
    del safetensors.files["bucket/models/toy-cased/model.safetensors"]
    index = "bucket/models/toy-cased/model.safetensors.index.json"
    safetensors.files[index] = json.dumps({"weight_map": shards}).encode()
    assert_same(
        read_weights(find_checkpoint("toy://bucket/models/toy-cased"), pooler=True), WEIGHTS
    )
    assert len([name for name in copied(cache) if name.endswith(".safetensors")]) == 2


@pytest.mark.parametrize("end", ["", "/pytorch_model.bin"])
def test_a_pickle_and_that_of_a_module(object_store, tmp_path, cache, end):
    folder = write_directory(tmp_path / "m", TOY, TOY_VOCAB, WEIGHTS)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(zip_of(huggingface_weights(WEIGHTS, TOY)))
    (folder / "2_Dense").mkdir()
    (folder / "2_Dense" / "pytorch_model.bin").write_bytes(b"")
    upload(object_store, folder, "bucket/toy-cased")
    found = find_checkpoint(f"toy://bucket/toy-cased{end}")
    assert_same(read_weights(found, pooler=True), WEIGHTS)
    assert copied(cache).count("pytorch_model.bin") == 2


def test_it_is_copied_once_and_again_when_it_has_changed(safetensors, caplog, cache):
    name = "toy://bucket/models/toy-cased"
    with caplog.at_level(logging.INFO, "bert_features"):
        first = find_checkpoint(name).weights_path
        assert "model.safetensors" in " ".join(safetensors.fetched)
        safetensors.fetched.clear()
        assert find_checkpoint(name).weights_path == first
    assert safetensors.fetched == []
    assert caplog.text.count(f"copying {name} ") == 1
    vocab = "bucket/models/toy-cased/vocab.txt"
    safetensors.files[vocab] = safetensors.files[vocab].replace(b"this", b"thus")  # of one size
    assert b"thus" in find_checkpoint(name).vocab_file.read_bytes()
    assert copied(cache).count("vocab.txt") == 1  # what the store had before is gone


def test_a_copy_that_breaks_off_leaves_what_was_there(safetensors, cache):
    name = "bucket/models/toy-cased/model.safetensors"
    safetensors.failing[name] = ServerError("connection lost")
    safetensors.fails_late.add(name)
    message = "cannot read toy://bucket/models/toy-cased: connection lost$"
    with pytest.raises(CheckpointError, match=message):
        find_checkpoint("toy://bucket/models/toy-cased")
    assert copied(cache) == []
    safetensors.failing.clear()
    kept = find_checkpoint("toy://bucket/models/toy-cased").vocab_file
    safetensors.files["bucket/models/toy-cased/vocab.txt"] += b"x\n"
    safetensors.failing[name] = ServerError("connection lost")
    with pytest.raises(CheckpointError, match="connection lost"):
        find_checkpoint("toy://bucket/models/toy-cased")
    assert kept.read_text().split() == TOY_VOCAB


def test_config_and_vocabulary_by_their_addresses(safetensors, tmp_path, cache):
    local = write_directory(tmp_path / "bare", TOY, TOY_VOCAB, WEIGHTS)
    (local / "config.json").unlink()
    (local / "vocab.txt").unlink()
    folder = "toy://bucket/models/toy-cased"
    checkpoint = find_checkpoint(
        local, config_file=f"{folder}/config.json", vocab_file=f"{folder}/vocab.txt"
    )
    assert checkpoint.config.hidden_size == TOY.hidden_size
    assert checkpoint.vocab_file.read_text().split() == TOY_VOCAB
    assert checkpoint.vocab_file.is_relative_to(cache)
    for name, message in {"absent": "no such file", "": "is a directory; pass a file"}.items():
        with pytest.raises(CheckpointError, match=f"{folder}.*{message}"):
            find_checkpoint(local, config_file=f"{folder}/{name}")


@pytest.mark.parametrize("server", ["s3", "gs"])
def test_stores_of_real_drivers(server, request, saved_model, tmp_path, cache):
    """One with folders; what has changed is copied again."""
    import fsspec

    bucket = getattr(request.getfixturevalue(server), "bucket", "gs://bucket")
    filesystem, root = fsspec.url_to_fs(bucket)
    for name in ("hub", "toy-cased"):
        folder = saved_model
        if name == "toy-cased":
            folder = write_directory(tmp_path / "m", TOY, TOY_VOCAB, WEIGHTS)
        for path in folder.rglob("*"):
            if path.is_file():
                to = f"{root}/models/{name}/{path.relative_to(folder).as_posix()}"
                filesystem.pipe_file(to, path.read_bytes())
        found = find_checkpoint(f"{bucket}/models/{name}")
        assert_same(read_weights(found, pooler=True), WEIGHTS)
    assert find_checkpoint(f"{bucket}/models/{name}").vocab_file == found.vocab_file
    filesystem.pipe_file(
        f"{root}/models/{name}/vocab.txt", "\n".join([*TOY_VOCAB[:-1], "thus"]).encode()
    )
    filesystem.invalidate_cache()
    assert find_checkpoint(f"{bucket}/models/{name}").vocab_file.read_text().endswith("thus")
    assert copied(cache).count("model.safetensors") == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("toy://bucket/denied", "cannot read toy://bucket/denied"),
        ("toy://bucket/broken", "cannot read toy://bucket/broken"),
        ("toy://absent/m", "cannot read toy://absent/m"),
        ("toy://bucket/absent", "there is no checkpoint at toy://bucket/absent"),
        ("toy://bucket/empty", "there is no checkpoint at toy://bucket/empty"),
        ("toy://bucket/old", r"toy://bucket/old/epoch\.ckpt is a pickle"),
        ("toy://bucket/old/epoch.ckpt", r"toy://bucket/old/epoch\.ckpt is a pickle"),
    ],
)
def test_what_cannot_be_had(object_store, cache, name, message):
    object_store.files |= {"bucket/empty/notes.txt": b"", "bucket/old/epoch.ckpt": b""}
    object_store.failing |= {
        "bucket/denied": PermissionError("Access Denied"),
        "bucket/broken": ServerError("no credentials"),
    }
    with pytest.raises(CheckpointError, match=message) as caught:
        find_checkpoint(name)
    assert "\n" not in str(caught.value)
    assert copied(cache) == []


def test_a_file_that_is_cut_on_its_way(safetensors, monkeypatch, cache):
    def cut(self, path, to, **settings):
        with open(to, "wb") as file:  # noqa: PTH123 - as a driver does
            file.write(self.files[path][:-1])

    monkeypatch.setattr(safetensors, "get_file", cut)
    with pytest.raises(CheckpointError, match=r"received \d+ of \d+ bytes of .*; try again"):
        store.fetch("toy://bucket/models/toy-cased")
    assert copied(cache) == []

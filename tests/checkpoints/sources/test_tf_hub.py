"""Handles of TF-Hub, downloaded and unpacked by tensorflow_hub from a server of our own."""

import gc
import io
import os
import re
import socket
import sys
import tarfile
import threading
import urllib.request
from urllib.parse import urlsplit

import pytest

from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import read_weights
from bert_features.checkpoints.sources import tf_hub
from bert_features.errors import CheckpointError, MissingExtraError
from tests.reference.file_server import breaks_off_after, stalls_after
from tests.reference.tf2_checkpoint import write_tf1_hub_module
from tests.toy import TOY, TOY_VOCAB, random_weights
from tests.weights import assert_same

WEIGHTS = random_weights(TOY)
TFHUB = "https://tfhub.dev/tensorflow/bert_en_uncased_L-3_H-8_A-2/4"
KAGGLE = "https://www.kaggle.com/models/tensorflow/bert/TensorFlow2/en-uncased-l-3-h-8-a-2/4"
COMPRESSED = "?tf-hub-format=compressed"


@pytest.fixture
def server(file_server, tmp_path, monkeypatch):
    """All of tfhub.dev and Kaggle: the library's requests go here, by their paths."""
    tf_hub._import_tensorflow_hub()
    from tensorflow_hub.resolver import HttpResolverBase

    monkeypatch.setenv("BERT_FEATURES_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TFHUB_CACHE_DIR", raising=False)
    host = file_server.url.removesuffix("/models")

    def call(self, request):
        address = urlsplit(request.full_url)
        return urllib.request.urlopen(f"{host}{address.path}?{address.query}")

    monkeypatch.setattr(HttpResolverBase, "_call_urlopen", call)
    return file_server


def archive(folder):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(folder, arcname="./")
    return packed.getvalue()


def path_of(handle):
    return urlsplit(handle).path + COMPRESSED


@pytest.fixture(scope="module")
def module(saved_model):
    return archive(saved_model)


@pytest.mark.parametrize("handle", [TFHUB, KAGGLE])
def test_a_module_is_downloaded_once(server, module, tmp_path, handle):
    server.files[path_of(handle)] = module
    checkpoint = find_checkpoint(handle)
    assert checkpoint.name == handle
    assert checkpoint.weights_path.is_relative_to(tmp_path / "cache" / "tfhub")
    assert (checkpoint.kind, checkpoint.family) == ("tf2", "google")
    assert checkpoint.config == TOY
    assert checkpoint.do_lower_case is True
    assert checkpoint.vocab_file.read_text().split() == TOY_VOCAB
    assert_same(read_weights(checkpoint, pooler=True), WEIGHTS)
    assert find_checkpoint(handle).weights_path == checkpoint.weights_path
    assert len(server.asked) == 1
    assert "TFHUB_CACHE_DIR" not in os.environ


def test_the_address_of_an_archive(server, module):
    server.files["/my/module.tar.gz" + COMPRESSED] = module
    assert find_checkpoint("https://example.com/my/module.tar.gz").config == TOY


def test_the_users_cache(server, module, tmp_path, monkeypatch):
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "mine"))
    server.files[path_of(TFHUB)] = module
    assert find_checkpoint(TFHUB).weights_path.is_relative_to(tmp_path / "mine")


def test_the_handle_shows_the_casing_of_a_tf1_module(server, tmp_path):
    tensors = {f"module/bert/{name}": value for name, value in WEIGHTS.items()}
    folder = write_tf1_hub_module(tmp_path / "m", tensors, vocab=TOY_VOCAB)
    server.files[path_of(TFHUB)] = archive(folder)
    # The toy's heads are 4 wide, and nothing in a SavedModel of TF1 says so.
    config = tmp_path / "bert_config.json"
    config.write_text(TOY.model_dump_json().replace("gelu_tanh", "gelu"))
    checkpoint = find_checkpoint(TFHUB, config_file=config)
    assert (checkpoint.kind, checkpoint.do_lower_case) == ("tf1", True)
    assert checkpoint.casing_evidence == "its name is bert_en_uncased_L-3_H-8_A-2"


def left_in(cache):
    return [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".txt"]


def test_a_page_in_place_of_an_archive(server, tmp_path):
    server.files[path_of(KAGGLE)] = b"<!DOCTYPE html><html>" + bytes(1000)
    with pytest.raises(CheckpointError, match="does not appear to be a valid module") as caught:
        find_checkpoint(KAGGLE)
    assert "\n" not in str(caught.value)
    assert left_in(tmp_path / "cache") == []


# The library leaves a connection that broke off to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("stalls", "message"), [(False, ""), (True, ".*timed out")])
def test_a_download_that_breaks_off(server, module, tmp_path, monkeypatch, stalls, message):
    go_on = threading.Event()
    server.files[path_of(TFHUB)] = module
    server.script = [stalls_after(0, go_on) if stalls else breaks_off_after(1000)]
    before = socket.getdefaulttimeout()
    monkeypatch.setattr(tf_hub, "_TIMEOUT", 0.2)
    with pytest.raises(CheckpointError, match=f"cannot download {message}"):
        find_checkpoint(TFHUB)
    go_on.set()
    assert socket.getdefaulttimeout() == before
    assert left_in(tmp_path / "cache") == []
    monkeypatch.setattr(tf_hub, "_TIMEOUT", 60.0)
    assert find_checkpoint(TFHUB).config == TOY
    gc.collect()


def test_an_archive_that_is_not_a_saved_model(server, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("x")
    server.files[path_of(TFHUB)] = archive(tmp_path / "other")
    with pytest.raises(CheckpointError, match=r"saved_model\.pb"):
        find_checkpoint(TFHUB)


@pytest.mark.parametrize("missing", ["tensorflow_hub", "tf_keras"])
def test_without_a_library_the_error_has_the_line_that_installs_it(monkeypatch, missing):
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorflow_hub"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtraError) as caught:
        find_checkpoint(TFHUB)
    said = str(caught.value)
    assert said.startswith(f"a library that TF-Hub handles need (import of {missing} halted")
    assert re.search(r"pip install --no-deps tensorflow-hub 'tf_keras==2\.\d\d\.\*'$", said)


def test_setuptools_may_lack_pkg_resources(monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow_hub", raising=False)
    monkeypatch.setitem(sys.modules, "pkg_resources", None)
    assert callable(tf_hub._import_tensorflow_hub().resolve)
    assert "pkg_resources" not in sys.modules  # other programs find no stand-in

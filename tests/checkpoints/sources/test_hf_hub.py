"""Models of the Hugging Face Hub, from a local cache that the tests lay out."""

import json
import logging
from types import SimpleNamespace

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import filter_repo_objects

from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import read_weights
from bert_features.checkpoints.sources import hf_hub
from bert_features.errors import CheckpointError
from tests.reference.tf1_checkpoint import huggingface_weights, write_directory
from tests.reference.torch_file import zip_of
from tests.toy import TOY, TOY_VOCAB, random_weights
from tests.weights import assert_same

WEIGHTS = random_weights(TOY)
COMMIT, OLDER = "a" * 40, "b" * 40


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The Hub's cache as huggingface_hub keeps it, and no network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "hub"


def snapshot(cache, name, commit=COMMIT, branch="main"):
    model = cache / f"models--{name.replace('/', '--')}"
    (model / "refs").mkdir(parents=True, exist_ok=True)
    (model / "refs" / branch).write_text(commit)
    folder = model / "snapshots" / commit
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("name", ["hf:org/toy-cased", "org/toy-cased", "hf:org/toy-cased@main"])
def test_a_model_of_the_cache(cache, name):
    folder = write_directory(snapshot(cache, "org/toy-cased"), TOY, TOY_VOCAB, WEIGHTS)
    checkpoint = find_checkpoint(name)
    assert checkpoint.name == name
    assert checkpoint.weights_path == folder / "model.safetensors"
    assert checkpoint.vocab_file == folder / "vocab.txt"
    assert checkpoint.config.hidden_act == "gelu_erf"
    assert checkpoint.do_lower_case is False  # the folder is named by the commit
    assert_same(read_weights(checkpoint, pooler=True), WEIGHTS)


def test_the_files_of_sentence_transformers_are_asked_for():
    modules = ["1_Pooling", "1_SpladePooling", "2_MultiVectorMask", "3_Normalize", "0_Transformer"]
    wanted = [
        *(f"{module}/config.json" for module in modules),
        *("modules.json", "2_Dense/config.json", "2_Dense/model.safetensors", "artifact.metadata"),
        *("added_tokens.json", "special_tokens_map.json", "spm.model", "adapter_config.json"),
        *("config_sentence_transformers.json", "sentence_bert_config.json"),
        *("sparse_linear.pt", "colbert_linear.pt"),
        *("0_Transformer/model.safetensors", "0_Transformer/sentence_xlm-roberta_config.json"),
    ]
    pickles = ["0_Transformer/pytorch_model.bin", "pytorch_model-00001-of-00002.bin"]
    dense = ["2_Dense/pytorch_model.bin"]
    others = ["onnx/model.onnx", "tf_model.h5", "optimizer.pt", "training_args.bin"]
    files = [*others, *pickles, *dense, *wanted]
    for patterns, found in {
        (*hf_hub.FILES,): wanted,
        (*hf_hub.PICKLES,): pickles,
        (*hf_hub.DENSE_PICKLES,): dense,
    }.items():
        assert [*filter_repo_objects(files, allow_patterns=[*patterns])] == found


def test_a_revision(cache):
    new = write_directory(snapshot(cache, "org/toy"), TOY, TOY_VOCAB, WEIGHTS)
    old = write_directory(snapshot(cache, "org/toy", OLDER, "v1"), TOY, TOY_VOCAB, WEIGHTS)
    assert find_checkpoint("hf:org/toy").weights_path.parent == new
    assert find_checkpoint("hf:org/toy@v1").weights_path.parent == old
    assert find_checkpoint(f"org/toy@{OLDER}").weights_path.parent == old
    with pytest.raises(
        CheckpointError, match=r"the model 'org/toy' at 'v2' cannot be fetched from"
    ):
        find_checkpoint("hf:org/toy@v2")


@pytest.mark.parametrize("name", ["hf:org/absent", "org/absent"])
def test_a_model_that_cannot_be_had(cache, name):
    with pytest.raises(CheckpointError) as caught:
        find_checkpoint(name)
    message = str(caught.value)
    assert "model 'org/absent' cannot be fetched from the Hugging Face Hub: " in message
    assert "\n" not in message
    assert ("there is no such path" in message) is not name.startswith("hf:")


class Hub:
    """The Hub as its library shows it: files of each revision, and discussions."""

    def __init__(self, monkeypatch, root, revisions, discussions=(), failing=False):
        self.asked, self.root, self.revisions = [], root, revisions
        self.discussions, self.failing = discussions, failing
        monkeypatch.setattr("huggingface_hub.snapshot_download", self.snapshot_download)
        monkeypatch.setattr("huggingface_hub.HfApi", lambda: self)

    def snapshot_download(self, model, *, revision, allow_patterns):
        self.asked.append((revision, allow_patterns))
        folder = self.root / "snapshots" / (revision or "main").replace("/", "-")
        files = self.revisions[revision or "main"]
        for name in filter_repo_objects(files, allow_patterns=allow_patterns):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(files[name])
        if revision:
            (self.root / "refs" / "refs" / "pr").mkdir(parents=True, exist_ok=True)
            (self.root / "refs" / revision).write_text("")
        return str(folder)

    def get_repo_discussions(self, model, *, author, discussion_type, discussion_status):
        assert (author, discussion_type) == ("SFconvertbot", "pull_request")
        assert discussion_status == "open"
        if self.failing:
            raise OSError("no\nnetwork")
        yield from self.discussions

    def list_repo_commits(self, model, revision="main"):
        names = {"main": ["m1", "m0"], "refs/pr/2": ["x", "m0"]}
        return [SimpleNamespace(commit_id=one) for one in names.get(revision, ["x", "m1", "m0"])]

    def list_repo_files(self, model, *, revision):
        return [*self.revisions[revision or "main"]]


def offer(number, author="SFconvertbot", title="Adding `safetensors` variant of this model"):
    return SimpleNamespace(author=author, title=title, git_reference=f"refs/pr/{number}")


@pytest.fixture
def files(tmp_path):
    """The files of a model with safetensors, and of the same with a pickle and a module."""
    folder = write_directory(tmp_path / "m", TOY, TOY_VOCAB, WEIGHTS)
    safe = {path.name: path.read_bytes() for path in folder.iterdir()}
    pickled = safe | {
        "pytorch_model.bin": zip_of(huggingface_weights(WEIGHTS, TOY)),
        "2_Dense/config.json": b"{}",
        "2_Dense/pytorch_model.bin": b"",
    }
    del pickled["model.safetensors"]
    return safe, pickled


def test_the_pull_request_of_the_hubs_bot_goes_before_a_pickle(
    monkeypatch, tmp_path, files, caplog
):
    safe, pickled = files
    offers = [offer(1, author="stranger"), offer(2), offer(3, title="x"), offer(4)]
    hub = Hub(monkeypatch, tmp_path, {"main": pickled, "refs/pr/4": pickled | safe}, offers)
    with caplog.at_level(logging.INFO, "bert_features"):
        found = find_checkpoint("hf:org/name")
    assert found.weights_path == tmp_path / "snapshots" / "refs-pr-4" / "model.safetensors"
    assert "org/name has no safetensors; those of its refs/pr/4 are read" in caplog.text
    assert_same(read_weights(found, pooler=True), WEIGHTS)
    dense = hf_hub.FILES + hf_hub.DENSE_PICKLES
    assert hub.asked == [(None, hf_hub.FILES), ("refs/pr/4", hf_hub.FILES), ("refs/pr/4", dense)]
    hub.failing = True  # without a network
    assert find_checkpoint("hf:org/name").weights_path == found.weights_path


@pytest.mark.parametrize("failing", [False, True])
@pytest.mark.parametrize("name", ["hf:org/name", "hf:org/name@v1"])
def test_a_pickle_where_no_pull_request_fits(monkeypatch, tmp_path, files, name, failing):
    """Strangers' do not, nor those of an older commit; a revision is the one that was asked for."""
    _, pickled = files
    offers = [offer(1, author="stranger"), offer(2)]
    hub = Hub(monkeypatch, tmp_path, {"main": pickled, "v1": pickled}, offers, failing)
    found = find_checkpoint(name)
    assert found.weights_path.name == "pytorch_model.bin"
    assert_same(read_weights(found, pooler=True), WEIGHTS)
    revision = name.partition("@")[2] or None
    both = hf_hub.FILES + hf_hub.PICKLES + hf_hub.DENSE_PICKLES
    assert hub.asked == [(revision, hf_hub.FILES), (revision, both)]


def test_pickles_are_not_asked_for_beside_safetensors(monkeypatch, tmp_path, files):
    hub = Hub(monkeypatch, tmp_path, {"dev": files[0]})
    assert find_checkpoint("hf:org/name@dev").config.hidden_size == 8
    assert hub.asked == [("dev", hf_hub.FILES)]
    pickles = {n for n in hf_hub.FILES if n.endswith((".bin", ".pt", ".h5", "*"))}
    # Small layers that have no other form.
    assert {name.rpartition("/")[2] for name in pickles} == {
        "sparse_linear.pt",
        "colbert_linear.pt",
    }


@pytest.mark.parametrize(
    ("name", "repository", "lower"),
    [
        ("bert-base-chinese", "google-bert/bert-base-chinese", True),
        ("Uncased_L-2_H-128_A-2", "google/bert_uncased_L-2_H-128_A-2", True),
        ("bert-large-cased", "google-bert/bert-large-cased", False),
    ],
)
def test_a_published_name_is_its_repository_with_googles_casing_and_gelu(
    cache, name, repository, lower
):
    """The Hub's files of the Chinese BERT say that case is kept."""
    folder = write_directory(snapshot(cache, repository), TOY, TOY_VOCAB, WEIGHTS)
    wrong = json.dumps({"do_lower_case": not lower})
    (folder / "tokenizer_config.json").write_text(wrong)
    found = find_checkpoint(name)
    assert found.weights_path == folder / "model.safetensors"
    assert (found.do_lower_case, found.casing_evidence) == (lower, f"its name is {name}")
    assert found.config.hidden_act == "gelu_tanh"
    assert find_checkpoint(name, hidden_act="gelu_erf").config.hidden_act == "gelu_erf"
    assert_same(read_weights(found, pooler=True), WEIGHTS)


def test_a_published_name_that_cannot_be_fetched_has_the_address_of_its_archive(cache):
    with pytest.raises(
        CheckpointError,
        match=r"^bert-tiny: the model 'google/bert_uncased_L-2_H-128_A-2' cannot be fetched.*"
        r"Google's archive of it is https://\S+/2020_02_20/uncased_L-2_H-128_A-2\.zip: unpack",
    ):
        find_checkpoint("bert-tiny")

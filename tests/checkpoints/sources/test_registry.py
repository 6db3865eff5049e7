"""The table of sources: which one a name means, and how often the weights are opened."""

import pytest

from bert_features.checkpoints.sources.registry import SOURCES, source_of


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("minilm", "Minilm"),
        ("https://tfhub.dev/google/bert/1", "TfHub"),
        ("https://example.org/bert.tar.gz", "TfHub"),
        ("https://www.kaggle.com/models/tensorflow/bert/TensorFlow2/en/4", "TfHub"),
        ("https://www.kaggle.com/datasets/a/b", "Address"),
        ("gs://bucket/a.tar.gz", "Address"),
        ("gs://bucket/bert", "Address"),
        ("s3://bucket/bert/bert_model.ckpt", "Address"),
        ("http://example.org/bert", "Address"),
        ("bert-base-uncased", "Published"),
        ("Uncased_L-2_H-128_A-2", "Published"),
        ("org/name", "Hub"),
        ("google/bert_uncased_L-2_H-128_A-2", "Hub"),
        ("hf:name@main", "Hub"),
        *((path, "LocalPath") for path in ("org/m.safetensors", "org/bert_model.ckpt", "a/b/c")),
        *((path, "LocalPath") for path in ("./model", "../model", "no such name")),
    ],
)
def test_the_source_of_a_name(name, source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert source_of(name) is SOURCES[source]


def test_a_path_that_exists_hides_a_published_name_and_a_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("bert-base-uncased", "org/name", "minilm"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("bert-mini.index", "org/model-9.index"):  # prefixes, which are no files
        (tmp_path / name).touch()
    assert source_of("bert-base-uncased") is source_of("org/name") is SOURCES["LocalPath"]
    assert source_of("bert-mini") is source_of("org/model-9") is SOURCES["LocalPath"]
    assert source_of("minilm") is SOURCES["Minilm"]

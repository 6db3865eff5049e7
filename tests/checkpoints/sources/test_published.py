"""The table of published checkpoints: names, aliases, repositories, addresses."""

import pytest

from bert_features.checkpoints.sources.published import ALIASES, BASE_OF_2020, PUBLISHED, resolve

TINY = "uncased_L-2_H-128_A-2"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("BERT-Mini", "2020_02_20/uncased_L-4_H-256_A-4.zip"),
        ("bert-base-uncased", "2018_10_18/uncased_L-12_H-768_A-12.zip"),
        ("bert-base-chinese", "2018_11_03/chinese_L-12_H-768_A-12.zip"),
        ("uncased_L-10_H-256_A-4", "2020_02_20/uncased_L-10_H-256_A-4.zip"),
        # The archives of 2018 and 2020 share their name, which stays with the first.
        ("uncased_L-12_H-768_A-12", "2018_10_18/uncased_L-12_H-768_A-12.zip"),
        (BASE_OF_2020, "2020_02_20/uncased_L-12_H-768_A-12.zip"),
    ],
)
def test_names(name, path):
    assert resolve(name).url == f"https://storage.googleapis.com/bert_models/{path}"


def test_every_alias_leads_somewhere():
    assert len(ALIASES) == 15
    assert set(ALIASES.values()) <= PUBLISHED.keys()
    assert not ALIASES.keys() & PUBLISHED.keys()
    assert resolve("albert") is None
    assert len(PUBLISHED) == len({row.repository for row in PUBLISHED.values()}) == 33


@pytest.mark.parametrize(
    ("name", "repository"),
    [
        ("bert-base-uncased", "google-bert/bert-base-uncased"),
        ("wwm_cased_L-24_H-1024_A-16", "google-bert/bert-large-cased-whole-word-masking"),
        ("multilingual_L-12_H-768_A-12", "google-bert/bert-base-multilingual-uncased"),
        ("bert-medium", "google/bert_uncased_L-8_H-512_A-8"),
        (BASE_OF_2020, "google/bert_uncased_L-12_H-768_A-12"),
    ],
)
def test_repositories(name, repository):
    assert resolve(name).repository == repository

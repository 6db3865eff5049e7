"""The table of published checkpoints: names, aliases, addresses, sizes."""

import pytest

from bert_features.checkpoints.sources.published import (
    ALIASES,
    BASE_OF_2020,
    PUBLISHED,
    aliases_of,
    find_published,
    resolve,
)
from bert_features.errors import CheckpointError

TINY = "uncased_L-2_H-128_A-2"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("bert-tiny", "2020_02_20/uncased_L-2_H-128_A-2.zip"),
        ("BERT-Mini", "2020_02_20/uncased_L-4_H-256_A-4.zip"),
        ("bert-small", "2020_02_20/uncased_L-4_H-512_A-8.zip"),
        ("bert-medium", "2020_02_20/uncased_L-8_H-512_A-8.zip"),
        ("bert-base-uncased", "2018_10_18/uncased_L-12_H-768_A-12.zip"),
        ("bert-base-chinese", "2018_11_03/chinese_L-12_H-768_A-12.zip"),
        ("uncased_L-10_H-256_A-4", "2020_02_20/uncased_L-10_H-256_A-4.zip"),
        # The archives of 2018 and 2020 share their name, which stays with the first.
        ("uncased_L-12_H-768_A-12", "2018_10_18/uncased_L-12_H-768_A-12.zip"),
        (BASE_OF_2020, "2020_02_20/uncased_L-12_H-768_A-12.zip"),
    ],
)
def test_names(name, path):
    assert resolve(name).path == path


def test_every_alias_leads_somewhere():
    assert len(ALIASES) == 15
    assert set(ALIASES.values()) <= PUBLISHED.keys()
    assert not ALIASES.keys() & PUBLISHED.keys()
    assert resolve("albert") is None
    listed = [alias for name in PUBLISHED for alias in aliases_of(name)]
    assert sorted(listed) == sorted(ALIASES)
    assert aliases_of("uncased_L-12_H-768_A-12") == ["bert-base", "bert-base-uncased"]


def test_sizes():
    # BERT-Tiny by hand: (30522 + 512 + 2) * 128 + 2 * 128 of the embeddings, two blocks of
    # 12 * 128² + 13 * 128, a pooler of 128² + 128.
    assert PUBLISHED[TINY].parameters == 3_972_864 + 2 * 198_272 + 16_512 == 4_385_920
    for row in PUBLISHED.values():
        # Room for the checkpoint with its heads; none for one of twice the width.
        assert 4 * row.parameters * 1.5 < row.max_bytes < 4 * row.parameters * 4.1 + (64 << 20)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("bert-tinny", "bert-tiny"),
        ("tiny", "bert-tiny"),
        ("uncased_L-2_H-128_A-4", TINY),
        ("bert-base-chinise", "chinese"),
    ],
)
def test_unknown_names_get_suggestions(name, meant):
    with pytest.raises(CheckpointError, match=f"named '{name}'; did you mean .*{meant}"):
        find_published(name)
    with pytest.raises(CheckpointError, match=r"'xyzzy'; `bert-features download --list`"):
        find_published("xyzzy")

"""Shares of a job: together they are the whole, each in a file of its own."""

import pytest

from bert_features import extract, plan, read_features
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.shards import Shard
from bert_features.errors import OutputError

SETTINGS = {"do_lower_case": True, "max_seq_length": 12, "buckets": (12,), "layers": (-1,)}


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shares_are_disjoint_whole_and_of_one_size(count):
    shares = [list(Shard(i, count).take(range(10))) for i in range(count)]
    assert sorted(item for share in shares for item in share) == list(range(10))
    assert [len(share) for share in shares] == [Shard(i, count).size(10) for i in range(count)]
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("out.parquet", "out-00001-of-00004.parquet"),
        ("a.b/out.jsonl.gz", "a.b/out-00001-of-00004.jsonl.gz"),
        ("out", "out-00001-of-00004"),
        (".hidden", ".hidden-00001-of-00004"),
    ],
)
def test_names_of_files(path, expected):
    assert str(Shard(1, 4).path(path)) == expected
    assert str(Shard().path(path)) == path


@pytest.mark.slow
def test_shares_of_a_file(toy, tmp_path):
    texts = tmp_path / "in.txt"
    texts.write_text("".join(f"{'a ' * (i % 7)}b\n" for i in range(11)))
    seen, totals = [], []

    def note(counts, total):
        totals.append(total)

    for i in range(2):
        config = ExtractConfig.of({"checkpoint": toy, "shard": f"{i}/2", **SETTINGS})
        assert plan(config, texts).examples == (6, 5)[i]
        ledger = tmp_path / "ledger.jsonl"
        extract(config, texts, tmp_path / "o.jsonl", ledger_path=ledger, progress=note)
        records = list(read_features(tmp_path / f"o-0000{i}-of-00002.jsonl"))
        seen.append([record.unique_id for record in records])
        assert [len(r.tokens) for r in records] == [id % 7 + 3 for id in seen[-1]]
        assert len((tmp_path / f"ledger-0000{i}-of-00002.jsonl").read_text().splitlines()) == len(
            records
        )
    assert seen == [[0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9]]
    assert set(totals) == {6, 5}
    with pytest.raises(OutputError, match=r"o-00001-of-00002\.jsonl.* exists"):
        extract(config, texts, tmp_path / "o.jsonl")


def test_alone_auto_is_the_whole_and_says_so(toy, tmp_path, caplog):
    caplog.set_level("INFO", "bert_features")
    texts = tmp_path / "in.txt"
    texts.write_text("a\nb\nthe\n")
    config = ExtractConfig.of({"checkpoint": toy, "shard": "auto", **SETTINGS})
    summary = extract(config, texts, tmp_path / "o.jsonl")
    assert (summary.counts.examples, summary.output) == (3, tmp_path / "o.jsonl")
    assert "shard auto is 0/1, the whole input: this process knows of no others" in caplog.messages


def test_a_share_without_examples_is_an_empty_file(toy, tmp_path):
    texts = tmp_path / "in.txt"
    texts.write_text("a\n")
    config = ExtractConfig.of({"checkpoint": toy, "shard": "3/4", **SETTINGS})
    assert extract(config, texts, tmp_path / "o.jsonl").counts.examples == 0
    assert list(read_features(tmp_path / "o-00003-of-00004.jsonl")) == []

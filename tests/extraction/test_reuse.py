"""Texts that repeat are computed once, and no byte of the output changes."""

import contextlib
import json
import random
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from bert_features import extract, read_features
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.features import OutputSpec
from bert_features.errors import InputError, OutputError
from bert_features.extraction import feature_store, preparation, reuse
from bert_features.extraction.feature_store import FeatureStore, StorePlace
from bert_features.machine import onednn
from bert_features.readers.input_example import InputExample
from tests.corpus.runs import computing_each
from tests.markers import of_release
from tests.recipes import make_recipe
from tests.toy import WORDS

EXAMPLES, DISTINCT = 300, 60
COUNTED_APART = {"computed_tokens", "examples_reused", "examples_from_cache", "tokens_reused"}


@pytest.fixture
def texts(tmp_path):
    """A file in which every text comes about five times; some do not fit a row."""
    choose = random.Random(5)
    words = [*WORDS, "unknown"]
    texts = [" ".join(choose.choices(words, k=choose.randrange(25))) for _ in range(DISTINCT)]
    lines = [*texts, *choose.choices(texts, k=EXAMPLES - DISTINCT)]
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    """Megabatches of about 15 examples, so that texts repeat in many windows."""
    monkeypatch.setattr(preparation, "_MAX_MEGABATCH_TOKENS", 200)


@pytest.fixture
def run(toy, texts, tmp_path):
    """Runs an extraction; gives its counts, the bytes of its output and those of its ledger."""

    def run(suffix="parquet", source=texts, **settings):
        fixed = {"checkpoint": toy, "do_lower_case": True, "layers": (-1,), "max_seq_length": 16}
        fixed |= {"buckets": (8, 16), "batch_tokens": 64}  # fewer batches than by default
        output, ledger = tmp_path / f"out.{suffix}", tmp_path / "ledger.jsonl"
        config = ExtractConfig.of({**fixed, **settings})
        summary = extract(config, source, output, ledger_path=ledger, overwrite=True)
        return summary.counts, output.read_bytes(), ledger.read_bytes()

    return run


def distinct_in(texts):
    return len(set(texts.read_text().splitlines()))


def totals(counts):
    """The counts that say what became of the texts, and not how."""
    return {name: value for name, value in vars(counts).items() if name not in COUNTED_APART}


def vectors_in(path):
    """The bytes of the vectors of each example."""
    return [next(iter(record.features.values())).tobytes() for record in read_features(path)]


def store_in(folder):
    (path,) = Path(folder).glob("*.features")
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suffix", "settings"),
    [
        ("parquet", {"level": "word", "pooling": "mean", "long_text": "window"}),
        of_release("npz", {"level": "sequence", "pooling": "mean+max", "dtype": "float16"}),
        of_release("jsonl", {"level": "sequence", "pooling": "mean", "long_text": "window"}),
        ("tfrecord", {"level": "token", "dtype": "bfloat16", "combine": "sum"}),
    ],
)
def test_the_output_and_the_ledger_have_the_same_bytes(run, texts, suffix, settings):
    with computing_each():
        counts, output, ledger = run(suffix, dedupe=True, **settings)
    again, *files = run(suffix, dedupe=True, **settings)
    assert files == [output, ledger]
    assert totals(again) == totals(counts)
    assert again.examples_reused == EXAMPLES - distinct_in(texts)
    assert 0 <= again.pad_waste < 1
    assert again.computed_tokens < counts.computed_tokens
    assert counts.examples_reused == 0


def test_pairs_and_words_repeat_too_and_ids_are_their_own(run, tmp_path):
    rows = [
        {"text": "a b", "text_b": "the is"},
        {"text": "a b", "text_b": "the is ."},
        {"text": "a b"},
        {"tokens": ["a b"]},
        {"tokens": ["a", "b"]},
    ]
    source = tmp_path / "in.jsonl"
    lines = [json.dumps({"id": f"example {i}", **rows[i % 5]}) for i in range(20)]
    source.write_text("\n".join(lines))
    settings = {"level": "word", "pooling": "mean"}
    with computing_each():
        _, output, _ = run(source=source, dedupe=True, **settings)
    counts, again, _ = run(source=source, dedupe=True, **settings)
    assert again == output
    assert counts.examples_reused == 15
    records = read_features(tmp_path / "out.parquet")
    assert [record.unique_id for record in records] == [f"example {i}" for i in range(20)]


def test_other_examples_have_other_keys():
    examples = [
        InputExample(0, "a b"),
        InputExample(0, "a", "b"),
        InputExample(0, "a b", ""),
        InputExample.from_words(0, ["a", "b"]),
        InputExample.from_words(0, ["a b"]),
        InputExample.from_words(0, ["a"], ["b"]),
        InputExample(0, "\ud800"),
        InputExample(0, "\\ud800"),
    ]
    assert len({reuse.key_of(example) for example in examples}) == len(examples)
    assert reuse.key_of(InputExample(1, "a b")) == reuse.key_of(InputExample("x", "a b"))


def test_a_text_has_the_same_bits_in_any_company(run, texts, tmp_path):
    with computing_each():
        run(dedupe=True, buckets=None)
    lines = texts.read_text().splitlines()
    first = list(zip(lines, vectors_in(tmp_path / "out.parquet"), strict=True))
    known = dict(first)
    assert all(known[line] == vectors for line, vectors in first)
    others = lines[::-3]
    texts.write_text("".join(f"{line}\n" for line in others))
    with computing_each():
        run(dedupe=True, buckets=None)
    assert vectors_in(tmp_path / "out.parquet") == [known[line] for line in others]


def test_the_cache_serves_the_next_run(run, texts, tmp_path):
    with computing_each():
        expected = run(dedupe=True)
    first, *_ = run(cache=str(tmp_path / "cache"))
    assert first.examples_from_cache == 0
    second, *files = run(cache=str(tmp_path / "cache"))
    assert files == [*expected[1:]]
    assert second.examples_from_cache == second.examples_reused == EXAMPLES
    assert second.computed_tokens == second.pad_waste == 0
    with texts.open("a") as file:
        file.write("a new text\n")
    third, *_ = run(cache=str(tmp_path / "cache"))
    assert third.examples_from_cache == EXAMPLES
    assert third.examples_reused == EXAMPLES


@pytest.mark.parametrize("other", [{"layers": (-2,)}, {"batch_tokens": 128}])
def test_the_cache_of_other_settings_is_not_used(run, tmp_path, other):
    run(cache=str(tmp_path / "cache"))
    counts, *_ = run(cache=str(tmp_path / "cache"), **other)
    assert counts.examples_from_cache == 0


@pytest.mark.slow
def test_outputs_in_another_order_have_a_cache_of_their_own(run, tmp_path):
    means = {"level": "sequence", "pooling": "mean"}
    outputs = [{"name": "a", **means}, {"name": "b", "layers": 0, **means}]
    for given in (outputs, outputs[::-1]):
        run(cache=str(tmp_path / "cache"), outputs=given)
        found = [record.features["a"] for record in read_features(tmp_path / "out.parquet")]
        run(outputs=given)
        expected = [record.features["a"] for record in read_features(tmp_path / "out.parquet")]
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_long_text_in_the_cache_is_an_error_where_it_would_be_one(run, tmp_path):
    run(cache=str(tmp_path / "cache"))
    with pytest.raises(InputError, match="long_text"):
        run(cache=str(tmp_path / "cache"), long_text="error")


def test_settings_of_the_files_do_not_matter_to_the_cache(run, tmp_path):
    run(cache=str(tmp_path / "cache"))
    counts, *_ = run("npz", cache=str(tmp_path / "cache"), buffer_mb=8, max_line_bytes=1000)
    assert counts.examples_from_cache == EXAMPLES


def test_a_damaged_entry_is_computed_again_and_replaced(run, tmp_path, caplog):
    expected = run(cache=str(tmp_path / "cache"))
    with sqlite3.connect(store_in(tmp_path / "cache")) as store:
        store.execute("update entries set value = zeroblob(length(value)) where rowid % 3 = 0")
        store.execute("update entries set key = x'00' || key where rowid % 7 = 0")
    store.close()
    counts, *files = run(cache=str(tmp_path / "cache"))
    assert files == [*expected[1:]]
    assert totals(counts) == totals(expected[0])
    assert [r.message for r in caplog.records].count(
        f"{store_in(tmp_path / 'cache')} has damaged entries; their texts are computed again"
    ) == 1
    counts, *_ = run(cache=str(tmp_path / "cache"))
    assert counts.examples_from_cache == EXAMPLES


@pytest.mark.parametrize("damage", ["its beginning", "its middle"])
def test_a_damaged_cache_file_costs_time_only(run, tmp_path, caplog, damage):
    expected = run(cache=str(tmp_path / "cache"))
    path = store_in(tmp_path / "cache")
    content = bytearray(path.read_bytes())
    start = 0 if damage == "its beginning" else 3 * 4096
    content[start : start + 8 * 4096] = b"\xff" * 8 * 4096
    path.write_bytes(content)
    counts, *files = run(cache=str(tmp_path / "cache"))
    assert files == [*expected[1:]]
    assert totals(counts) == totals(expected[0])
    assert "is not usable (" in caplog.text or "malformed; this run does not use it" in caplog.text


def test_a_locked_cache_costs_time_only(run, tmp_path, monkeypatch, caplog):
    expected = run(cache=str(tmp_path / "cache"))
    monkeypatch.setattr(feature_store, "_PATIENCE_SECONDS", 0.01)
    with contextlib.closing(sqlite3.connect(store_in(tmp_path / "cache"))) as other:
        other.execute("pragma locking_mode = exclusive")
        other.execute("delete from entries")
        counts, *files = run(cache=str(tmp_path / "cache"))
    assert files == [*expected[1:]]
    assert totals(counts) == totals(expected[0])
    assert "database is locked; this run does not use it" in caplog.text


@pytest.mark.slow
def test_a_full_disk_stops_the_adding_and_not_the_run(run, monkeypatch, tmp_path, caplog):
    with computing_each():
        expected = run(dedupe=True)
    connect = FeatureStore._connect

    def small(store):
        connection = connect(store)
        connection.execute("pragma max_page_count = 8")
        return connection

    monkeypatch.setattr(FeatureStore, "_connect", small)
    counts, *files = run(cache=str(tmp_path / "cache"))
    assert files == [*expected[1:]]
    assert totals(counts) == totals(expected[0])
    messages = [r.message for r in caplog.records if "nothing more is added" in r.message]
    assert len(messages) == 1
    assert "full" in messages[0]


@pytest.mark.slow
def test_huge_entries_are_not_kept(run, tmp_path, monkeypatch, caplog):
    with computing_each():
        expected = run(dedupe=True)
    monkeypatch.setattr(feature_store, "_MAX_ENTRY_BYTES", 100)
    for _ in range(2):
        counts, *files = run(cache=str(tmp_path / "cache"))
        assert files == [*expected[1:]]
        assert counts.examples_from_cache == 0
    assert "damaged" not in caplog.text


def test_a_cache_of_other_numbers_is_replaced(tmp_path, caplog):
    """As after an update of a library that changes no version that is recorded."""
    place, values = StorePlace(tmp_path, run=1), np.arange(1, 9, dtype="<f4").reshape(8, 1)
    before, close, other = (values * factor for factor in np.array([1, 1 + 1e-6, 1.01], "<f4"))
    output = OutputSpec("x", (-1,), "none", 8, "float32", states=(3,))

    def opened(canaries, precision="float32"):
        facts = {"arithmetic": {"precision": precision}, "canaries": {"x": canaries}}
        return FeatureStore(place, "a", make_recipe(output, **facts))

    with opened(before) as store:
        store.add([(b"key", 3, b"value")])
    for same in (opened(close), opened(other, "bfloat16")):
        with same as store:
            assert store.tokens([b"key"]) == {b"key": 3}
    assert caplog.text == ""
    with opened(other) as store:
        assert store.tokens([b"key"]) == {}
    assert "(this machine computes other numbers); it is replaced by a new one" in caplog.text


def test_a_cache_that_cannot_be_written_is_refused_at_once(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"cannot write the cache .*file/cache: .*; choose"):
        run(cache=str(tmp_path / "file" / "cache"))
    with pytest.raises(OutputError, match="is an address"):
        run(cache="gs://bucket/cache")
    assert {path.name for path in tmp_path.iterdir()} == {"file", "in.txt"}


def test_a_run_without_onednn_warns_of_last_bits(run, monkeypatch, caplog):
    monkeypatch.setattr(onednn, "find_off", lambda *_: onednn.Off("a reason", "a remedy"))
    run(dedupe=True)
    assert "not to the last bit: oneDNN is off (a reason); a remedy" in caplog.text

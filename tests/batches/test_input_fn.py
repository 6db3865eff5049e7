"""input_fn: the streaming one against the Python objects; static shapes, fillers, windows."""

import random

import numpy as np
import pytest

from bert_features.batches.bucketing import FILLER_ID
from bert_features.batches.input_fn import TextInputFn
from bert_features.batches.long_text import LongText
from bert_features.official.features import convert_examples_to_features
from bert_features.readers.input_example import InputExample
from bert_features.text.tokenization import FullTokenizer
from tests.toy import TOY_VOCAB, WORDS

BUCKETS = (4, 8, 12)


@pytest.fixture(scope="module")
def tokenizer():
    return FullTokenizer(TOY_VOCAB)


def random_examples(count, seed=3):
    rng = random.Random(seed)

    def text():
        words = [w for w in WORDS if not w.startswith("##")]
        return " ".join(rng.choices([*words, "jackson", "é"], k=rng.choice([0, 1, 2, 3, 5, 12])))

    return [InputExample(i, text(), text() if rng.random() < 0.4 else None) for i in range(count)]


def run(examples, tokenizer, batch_size=4, **settings):
    input_fn = TextInputFn(lambda: iter(examples), tokenizer, buckets=BUCKETS, **settings)
    dataset = input_fn({"batch_size": batch_size})
    return [{key: value.numpy() for key, value in batch.items()} for batch in dataset]


@pytest.mark.parametrize(("megabatch_tokens", "count"), [(50, 300), (1 << 17, 1500)])
def test_streams_what_the_python_objects_hold(tokenizer, megabatch_tokens, count):
    examples = random_examples(count)  # several windows, and several chunks of a window
    batches = run(examples, tokenizer, megabatch_tokens=megabatch_tokens)
    expected = convert_examples_to_features(examples, BUCKETS[-1], tokenizer)
    seen = []
    for batch in batches:
        length = batch["input_word_ids"].shape[1]
        for row, unique_id in enumerate(batch["unique_ids"]):
            if unique_id == FILLER_ID:
                continue
            want = expected[unique_id]
            assert batch["input_word_ids"][row].tolist() == want.input_ids[:length]
            assert batch["input_mask"][row].tolist() == want.input_mask[:length]
            assert batch["input_type_ids"][row].tolist() == want.input_type_ids[:length]
            assert batch["tokens_lost"][row] == want.tokens_lost
            assert len(want.tokens) <= length
            seen.append(unique_id)
    assert sorted(seen) == list(range(len(examples)))


def test_every_shape_is_declared_and_fillers_are_masked(tokenizer):
    batches = run(random_examples(57), tokenizer)
    for batch in batches:
        longest = batch["input_mask"].sum(axis=1).max()
        assert batch["input_word_ids"].shape == (4, min(b for b in BUCKETS if b >= longest))
        filler = batch["unique_ids"] == FILLER_ID
        assert not batch["input_mask"][filler].any()
        assert not batch["input_word_ids"][filler].any()
        assert batch["input_mask"][~filler][:, :2].all()
    # One window: only its last batch has fillers.
    assert [(b["unique_ids"] == FILLER_ID).any() for b in batches] == [False] * 14 + [True]


@pytest.mark.parametrize("num_devices", [1, 8])
def test_batches_by_tokens(tokenizer, num_devices):
    """Full ones hold as many rows as the budget allows, the last less than twice its need."""
    input_fn = TextInputFn(lambda: random_examples(500), tokenizer, buckets=BUCKETS)
    params = {"batch_tokens": 200, "num_devices": num_devices}
    *full, last = [{k: v.numpy() for k, v in batch.items()} for batch in input_fn(params)]
    lengths = []
    for batch in full:
        rows, length = batch["input_word_ids"].shape
        assert rows == max(200 // length // num_devices, 1) * num_devices
        assert (batch["unique_ids"] != FILLER_ID).all()
        lengths += batch["input_mask"].sum(axis=1).tolist()
    assert lengths == sorted(lengths, reverse=True)
    needed = np.count_nonzero(last["unique_ids"] != FILLER_ID)
    rows = len(last["unique_ids"])
    assert rows % num_devices == 0
    assert needed <= rows < 2 * max(needed, num_devices)
    assert len(lengths) + needed == 500


@pytest.mark.parametrize("size", [{"batch_tokens": 48}, {"batch_size": 4}])
def test_where_each_shape_is_compiled_there_is_one_for_each_length(tokenizer, size):
    """Windows of a few rows, whose last batches would have all kinds of shapes."""
    examples = random_examples(300)
    input_fn = TextInputFn(lambda: examples, tokenizer, buckets=BUCKETS, megabatch_tokens=60)
    rows = {}
    for whole in (False, True):
        params = {**size, "num_devices": 2, "whole_batches": whole}
        shapes = {batch["input_mask"].shape for batch in input_fn.batches(params)}
        rows[whole] = sorted((length, count) for count, length in shapes)
    declared = input_fn.shapes(params)
    assert rows[True] == list(zip(declared.buckets, declared.rows, strict=True))
    assert len(rows[False]) > len(rows[True])


@pytest.mark.parametrize(("words", "pieces"), [(None, None), ("whitespace", [1, 2, 0])])
def test_a_pool_has_words_where_they_are_wanted(tokenizer, words, pieces):
    examples = [InputExample(0, "is jackson \u200b")]
    input_fn = TextInputFn(lambda: examples, tokenizer, buckets=BUCKETS, words=words)
    (megabatch,) = input_fn.megabatches()
    counts = {level: table.all_pieces.tolist() for level, table in megabatch.units.items()}
    assert counts == ({} if words is None else {"word": pieces})


def test_windows_bound_what_waits_for_its_turn(tokenizer):
    window = 300
    batches = run(random_examples(1000), tokenizer, megabatch_tokens=window)
    unfinished, next_id, most = set(), 0, 0
    for batch in batches:
        unfinished |= set(batch["unique_ids"].tolist()) - {FILLER_ID}
        while next_id in unfinished:
            unfinished.remove(next_id)
            next_id += 1
        most = max(most, len(unfinished))
    assert not unfinished
    # A window and the chunk that filled it are at most two windows; each example has two tokens.
    assert most <= window


def test_no_examples_give_no_batches(tokenizer):
    assert run([], tokenizer) == []


def test_windows_have_columns_of_their_own(tokenizer):
    """20 pieces in rows of 12: three windows, which own each token once."""
    examples = [InputExample(0, "this " * 20)]
    (batch,) = run(examples, tokenizer, long_text=LongText("window", 12))
    assert batch["word_indices"].shape == batch["input_word_ids"].shape == (4, 12)
    windows = {
        name: batch[name][:3].tolist()
        for name in ("window", "num_windows", "own_starts", "own_ends")
    }
    assert windows == {
        "window": [0, 1, 2],
        "num_windows": [3, 3, 3],
        "own_starts": [0, 4, 4],
        "own_ends": [9, 9, 12],
    }
    assert batch["unique_ids"].tolist() == [0, 0, 0, FILLER_ID]

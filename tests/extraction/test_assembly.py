"""Rows come back to their examples: against a reading of the batches row by row."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from bert_features.batches.bucketing import packed_buckets
from bert_features.batches.input_fn import TextInputFn
from bert_features.batches.long_text import LongText
from bert_features.config.features import OutputSpec
from bert_features.config.packing import MAX_PACKED_TEXTS
from bert_features.extraction import assembly
from bert_features.extraction.assembly import assemble, regroup
from bert_features.extraction.counts import Counts, counts_by_example
from bert_features.formats.records import FeatureBatch, Rows
from bert_features.monitor.stages import StageClock
from bert_features.readers.input_example import InputExample
from bert_features.text.tokenization import FullTokenizer
from tests.toy import TOY_VOCAB, WORDS

D = 3
MAX_SEQ_LENGTH = 9


@pytest.fixture(scope="module")
def tokenizer():
    return FullTokenizer(TOY_VOCAB)


def make_examples(count, seed):
    """Texts of 0 to 30 words, some of them pairs."""
    rng = np.random.default_rng(seed)
    words = [word for word in WORDS if not word.startswith("##")]
    texts = [" ".join(rng.choice([*words, "漢"], rng.integers(0, 30))) for _ in range(count)]
    return [
        InputExample(i, text, texts[i - 1][:8] if i % 3 == 1 else None)
        for i, text in enumerate(texts)
    ]


def spec(level):
    return OutputSpec(level, (-1,), "none", D, "float32", level, "mean", states=(1,))


def stream(examples, tokenizer, policy, **params):
    """The batches of several megabatches."""
    input_fn = TextInputFn(
        lambda: examples,
        tokenizer,
        buckets=(4, 6, MAX_SEQ_LENGTH),
        megabatch_tokens=2000,
        long_text=LongText(policy, MAX_SEQ_LENGTH),
        words="bert",
    )
    if params:
        input_fn.buckets = packed_buckets(MAX_SEQ_LENGTH)
    return input_fn.stream({"batch_tokens": 30, **params})


def compute(examples, tokenizer, outputs, *, policy):
    """The batches with random outputs."""
    rng = np.random.default_rng(1)
    for batch in stream(examples, tokenizer, policy):
        shape = batch.columns["input_mask"].shape
        yield (
            batch,
            {
                output.name: rng.normal(
                    size=(*shape[: 1 if output.level == "sequence" else 2], D)
                ).astype(np.float32)
                for output in outputs
            },
        )


def put_together(computed, tokenizer, outputs, *, policy):
    """The results of each megabatch."""
    unknown_id = tokenizer.vocab["[UNK]"]
    assembled = assemble(
        computed,
        outputs,
        in_windows=policy == "window",
        unknown_id=unknown_id,
        counts=Counts(),
        stages=StageClock(),
    )
    return [results for results in assembled if results is not None]


def rows_by_example(computed):
    """Example -> its rows in order: the row's columns, and its outputs."""
    rows = defaultdict(dict)
    for batch, values in computed:
        columns = batch.columns
        for i, example in enumerate(columns["unique_ids"].tolist()):
            if example >= 0:
                row = {name: column[i] for name, column in columns.items()}
                outputs = {name: v[i] for name, v in values.items()}
                rows[example][int(columns["window"][i])] = (row, outputs)
    return [[rows[e][w] for w in range(len(rows[e]))] for e in range(len(rows))]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["truncate", "window"])
@pytest.mark.parametrize("count", [1, 40, 600])  # a batch of features has 512
def test_every_value_is_at_its_place(tokenizer, policy, count):
    examples = make_examples(count, seed=count)
    outputs = [spec("token"), spec("word"), spec("sequence")]
    computed = list(compute(examples, tokenizer, outputs, policy=policy))
    windows = put_together(computed, tokenizer, outputs, policy=policy)
    counts = [each for results in windows for each in counts_by_example(results)]
    pieces = np.array(tokenizer.tokens, object)
    batches = list(regroup(windows, pieces))
    records = [record for batch in batches for record in batch.records(tuple(outputs))]
    assert [r.unique_id for r in records] == [c.unique_id for c in counts] == list(range(count))
    assert [len(batch) for batch in batches] == [512] * (count // 512) + [count % 512]
    for record, count_, rows in zip(records, counts, rows_by_example(computed), strict=True):
        own = [slice(int(row["own_starts"]), int(row["own_ends"])) for row, _ in rows]
        parts = [values["token"][part] for (_, values), part in zip(rows, own, strict=True)]
        np.testing.assert_array_equal(record.features["token"], np.concatenate(parts))
        ids = [row["input_word_ids"][part] for (row, _), part in zip(rows, own, strict=True)]
        assert record.token_ids.tolist() == np.concatenate(ids).tolist()
        assert record.tokens == tuple(tokenizer.tokens[i] for i in record.token_ids)
        assert_words(record, rows)
        lengths = [int(row["input_mask"].sum()) for row, _ in rows]
        vectors = [values["sequence"] for _, values in rows]
        mean = np.average(np.stack(vectors), axis=0, weights=lengths).astype(np.float32)
        expected = mean if policy == "window" else vectors[0]
        np.testing.assert_array_equal(record.features["sequence"], expected)
        assert count_.windows == len(rows)
        specials = np.isin(record.token_ids, tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"]))
        assert count_.tokens_kept == np.count_nonzero(~specials)
        assert count_.tokens_lost == rows[0][0]["tokens_lost"]
        assert count_.words == len(record.words)


def assert_words(record, rows):
    """Each word has a vector of the output at its number in one of the rows, or zeros."""
    allowed = {tuple(vector) for _, values in rows for vector in values["word"].tolist()}
    used = [tuple(vector) for vector in record.features["word"].tolist()]
    for vector, pieces in zip(used, record.word_spans.num_pieces.tolist(), strict=True):
        assert vector in allowed if pieces else vector == (0,) * D
    with_vector = [vector for vector in used if any(vector)]
    assert len(set(with_vector)) == len(with_vector)
    if len(rows) == 1:
        row, values = rows[0]
        count = int(row["word_indices"].max(initial=-1)) + 1
        assert with_vector == [tuple(v) for v in values["word"][:count].tolist()]


@pytest.mark.parametrize("policy", ["truncate", "window"])
def test_values_that_are_not_finite_are_found(tokenizer, policy):
    """Those of padding, and of tokens that another window gives, do not count."""
    examples = make_examples(30, seed=3)
    outputs = [spec("token")]
    computed = list(compute(examples, tokenizer, outputs, policy=policy))
    for batch, values in computed:
        columns = batch.columns
        position = np.arange(columns["input_mask"].shape[1])
        is_own = (position >= columns["own_starts"][:, None]) & (
            position < columns["own_ends"][:, None]
        )
        values["token"][~is_own] = np.nan
        values["token"][(columns["unique_ids"] == 7), 0, 1] = np.inf  # [CLS] of each row
    windows = put_together(computed, tokenizer, outputs, policy=policy)
    found = [each for results in windows for each in counts_by_example(results)]
    assert [each.unique_id for each in found if each.non_finite] == [7]


def stand_in(columns):
    """What a device gives whose features are functions of a text alone: integers, so exact.

    A token's vector depends on its id, its place, its type and the other tokens of its text.
    """
    ids, mask = columns["input_word_ids"].astype(np.float64), columns["input_mask"]
    packed = "text_numbers" in columns
    numbers = columns["text_numbers"] if packed else mask
    place = columns["position_ids"] if packed else np.cumsum(mask, axis=1) - 1
    slots = MAX_PACKED_TEXTS if packed else 1
    text = numbers[:, None, :] == np.arange(1, slots + 1)[:, None]  # [B, M, S]
    total = np.einsum("bms,bs->bm", text, ids)
    tokens = np.stack(
        [ids * 64 + place, np.einsum("bms,bm->bs", text, total), columns["input_type_ids"] + ids],
        axis=2,
    )
    length = mask.shape[1]
    words = columns["word_indices"][:, None, :] == np.arange(length)[:, None]  # [B, W, S]
    sequence = np.einsum("bms,bsd->bmd", text, tokens)
    return {
        "token": np.where(mask[:, :, None], tokens, np.nan),
        "word": words @ tokens,
        "sequence": sequence if packed else sequence[:, 0],
    }


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["truncate", "window"])
def test_packed_rows_give_the_same_as_rows_of_their_own(tokenizer, policy):
    """Every level, with pairs, empty texts, windows of long texts, and several megabatches."""
    examples = make_examples(600, seed=4)
    outputs = [spec("token"), spec("word"), spec("sequence")]
    results, totals = [], []
    for params in ({}, {"packed_batches": True}):
        batches = list(stream(examples, tokenizer, policy, **params))
        counts = Counts()
        assembled = assemble(
            ((batch, stand_in(batch.columns)) for batch in batches),
            outputs,
            in_windows=policy == "window",
            unknown_id=tokenizer.vocab["[UNK]"],
            counts=counts,
            stages=StageClock(),
        )
        results.append([result for result in assembled if result is not None])
        totals.append(counts)
    unpacked, packed = results
    assert len(unpacked) == len(packed) > 1
    for one, other in zip(unpacked, packed, strict=True):
        assert one.unique_ids.tolist() == other.unique_ids.tolist()
        assert one.counts.keys() == other.counts.keys()
        for name, values in one.counts.items():
            np.testing.assert_array_equal(values, other.counts[name])
        assert one.features.keys() == other.features.keys() == {"token", "word", "sequence"}
        for name, values in one.features.items():
            np.testing.assert_array_equal(values, other.features[name])
    assert replace(totals[0], computed_tokens=0) == replace(totals[1], computed_tokens=0)


@pytest.mark.parametrize("level", ["token", "token_pair"])
def test_large_features_do_not_wait_for_512_examples(monkeypatch, level):
    monkeypatch.setattr(assembly, "_BYTES_PER_BATCH", 100)
    taken = []

    def windows():
        for first in range(0, 12, 2):
            splits, values = np.array([0, 3, 4]), np.full((4, 4), first, np.float32)  # 64 bytes
            tokens = Rows(splits, {"token_ids": np.zeros(4, np.int32)}, {})
            taken.append(first)
            if level == "token":
                tokens.features["a"] = values
            pairs = {level: Rows(splits, {}, {"a": values})} if level == "token_pair" else {}
            yield FeatureBatch(np.arange(first, first + 2), levels={"token": tokens, **pairs})

    found = []
    for batch in regroup(windows(), np.array(["a"], object)):
        found.append(batch)
        assert len(taken) == 2 * len(found)
    assert [batch.unique_ids.tolist() for batch in found] == [
        [*range(first, first + 4)] for first in (0, 4, 8)
    ]
    assert found[1].features["a"][:, 0].tolist() == [4] * 4 + [6] * 4

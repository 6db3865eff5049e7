"""Packing: each text in one place, rows within their bounds, and little of them empty."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_features.batches.bucketing import BatchShapes, cut_batches, packed_buckets
from bert_features.batches.packed_rows import pack
from bert_features.config.packing import MAX_PACKED_TEXTS

SIZES = (128, 512)
lengths_of_texts = st.lists(st.integers(2, 512), min_size=1, max_size=400).map(np.array)


def rows_of(packed):
    """The texts of each row, by the splits alone."""
    bounds = zip(packed.splits[:-1], packed.splits[1:], strict=True)
    return [packed.order[start:end] for start, end in bounds]


def sizes_of(packed, sizes):
    return np.repeat(sizes, packed.counts)


@given(lengths_of_texts)
def test_each_text_has_one_place_and_no_row_holds_too_much(lengths):
    packed = pack(lengths, SIZES)
    assert sorted(packed.order.tolist()) == list(range(len(lengths)))
    rows = rows_of(packed)
    assert len(rows) == sum(packed.counts)
    for row, size in zip(rows, sizes_of(packed, SIZES), strict=True):
        assert 1 <= len(row) <= MAX_PACKED_TEXTS
        assert lengths[row].sum() <= size
        # A long row holds a text that needs one; what is shorter only fills its gaps.
        assert size == SIZES[0] or lengths[row].max() > SIZES[0]
    numbers = [number for row in rows for number in range(len(row))]
    assert packed.numbers.tolist() == numbers


@given(lengths_of_texts)
def test_no_two_rows_could_have_been_one(lengths):
    """A text opens a row only where no open row has room: so rows are half full on average."""
    packed = pack(lengths, SIZES)
    rows, sizes = rows_of(packed), sizes_of(packed, SIZES)
    for size in SIZES:
        tokens = sorted(
            int(lengths[row].sum())
            for row, its_size in zip(rows, sizes, strict=True)
            if its_size == size and len(row) < MAX_PACKED_TEXTS
        )
        assert sum(tokens[:2]) > size or len(tokens) < 2


@given(lengths_of_texts, st.randoms(use_true_random=False))
def test_the_rows_follow_from_the_lengths_alone(lengths, random):
    packed, again = pack(lengths, SIZES), pack(lengths.copy(), SIZES)
    np.testing.assert_array_equal(packed.order, again.order)
    mixed = random.sample(range(len(lengths)), len(lengths))
    other = pack(lengths[mixed], SIZES)
    np.testing.assert_array_equal(packed.splits, other.splits)
    np.testing.assert_array_equal(lengths[packed.order], lengths[mixed][other.order])


def test_a_row_worked_out_by_hand():
    # 100 opens a row, 60 the next; 28 has its best fit with 100, 50 with 60, and 5 fills it up.
    packed = pack(np.array([5, 60, 28, 100, 50]), (128,))
    assert [row.tolist() for row in rows_of(packed)] in ([[3, 2], [1, 4, 0]], [[1, 4, 0], [3, 2]])


def test_texts_of_more_tokens_than_16_bits_can_count():
    packed = pack(np.array([2, 2**16 + 2]), (2**17,))
    assert packed.order.tolist() == [1, 0]  # the longest comes first


def test_at_most_so_many_texts_share_a_row():
    packed = pack(np.full(2 * MAX_PACKED_TEXTS + 1, 2), (128,))
    assert sorted(np.diff(packed.splits)) == [1, MAX_PACKED_TEXTS, MAX_PACKED_TEXTS]


def packed_shapes(tokens, *, max_seq_length=512, multiple=1):
    shapes = BatchShapes.by_tokens(packed_buckets(max_seq_length), tokens, multiple)
    return replace(shapes, whole=True, packed=True)


@pytest.mark.parametrize(
    ("longest", "row"),
    # By 3, 2 or 1 of the longest texts; longer rows cost more in attention.
    [(129, 512), (170, 512), (171, 384), (192, 384), (193, 256), (256, 256), (257, 384),
     (320, 384), (512, 512), (513, 640), (8192, 8192)],
)  # fmt: skip
def test_rows_have_128_tokens_or_waste_little_on_the_longest_texts(longest, row):
    assert packed_buckets(longest) == (128, row)


def test_rows_of_short_texts_have_128_tokens():
    assert packed_buckets(24) == packed_buckets(128) == (128,)


@given(
    st.lists(st.integers(3, 300), min_size=1, max_size=60), st.sampled_from([1, 4]), st.booleans()
)
def test_the_columns_of_a_batch_say_where_each_text_is(lengths, devices, words):
    window = make_window(np.array(lengths), words=words)
    starts = np.cumsum(lengths) - lengths
    shapes = packed_shapes(2048, max_seq_length=300, multiple=devices)
    found = []
    for members, batch in cut_batches(window, shapes):
        rows, size = batch["input_mask"].shape
        assert size in (128, 384)
        assert rows % devices == 0
        assert {column.shape for column in batch.values()} == {(rows, size)}
        assert {column.dtype.name for column in batch.values()} == {"int32"}
        for row, slot, place in zip(members.rows, members.slots, members.places, strict=True):
            b, number = divmod(int(slot), MAX_PACKED_TEXTS)
            its = batch["text_numbers"][b] == number + 1
            at = slice(starts[row], starts[row] + lengths[row])
            assert place == b * size + np.flatnonzero(its)[0]
            assert batch["input_word_ids"][b][its].tolist() == window["values"][at].tolist()
            assert batch["position_ids"][b][its].tolist() == list(range(lengths[row]))
            types = np.arange(lengths[row]) >= window["type_starts"][row]
            assert batch["input_type_ids"][b][its].tolist() == types.tolist()
            if words:
                index = batch["word_indices"][b][its]
                numbers = np.unique(index, return_inverse=True)[1] - 1  # one of them is -1
                assert numbers.tolist() == window["word_indices"][at].tolist()
        np.testing.assert_array_equal(batch["input_mask"], batch["text_numbers"] > 0)
        assert (np.diff(batch["input_mask"], axis=1) <= 0).all()  # padding is at the end
        if words:
            assert batch["word_indices"].max() < size
            assert (batch["word_indices"][batch["input_mask"] == 0] == -1).all()
            for b in range(rows):
                numbers = batch["word_indices"][b]
                assert (np.diff(numbers[numbers >= 0]) >= 0).all()
        found += members.rows.tolist()
    assert sorted(found) == list(range(len(lengths)))


def make_window(lengths, *, words):
    """Rows of these lengths; each second one is a pair, and its words have two pieces."""
    tokens = int(lengths.sum())
    position = np.arange(tokens) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    pair = np.arange(len(lengths)) % 2 == 1
    window = {
        "unique_ids": np.arange(len(lengths)),
        "values": np.random.default_rng(0).integers(1, 1000, tokens).astype(np.int32),
        "lengths": lengths,
        "type_starts": np.where(pair, lengths // 2, lengths).astype(np.int32),
        "tokens_lost": np.zeros(len(lengths), np.int32),
    }
    if words:
        window["word_indices"] = ((position - 1) // 2 * (position > 0) - (position == 0)).astype(
            np.int32
        )
    return window

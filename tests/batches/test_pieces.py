"""Offsets of tokens: where each stands in the text of its user."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_features.batches.long_text import LongText
from bert_features.batches.pieces import find_pieces, offsets_of
from bert_features.readers.input_example import InputExample
from bert_features.text.tokenization import FullTokenizer
from tests.toy import TOY_VOCAB

LONG = LongText("truncate", 16)


@pytest.fixture(scope="module")
def tokenizer():
    return FullTokenizer(TOY_VOCAB)


def find(tokenizer, example, kept, long_text=LONG, **options):
    pieces = find_pieces(tokenizer, [InputExample(9, "it is"), example], with_places=True)
    return offsets_of(pieces, 1, kept, long_text, **options)


def test_a_single_text(tokenizer):
    example = InputExample(0, "This  jackson?")
    assert find(tokenizer, example, (4, 0)) == [None, (0, 4), (6, 10), (10, 13), (13, 14), None]


def test_a_pair_has_the_places_of_each_text(tokenizer):
    example = InputExample(0, "a b", " it")
    assert find(tokenizer, example, (2, 1)) == [None, (0, 1), (2, 3), None, (1, 3), None]


def test_a_mask_is_one_piece_at_its_place(tokenizer):
    example, mask_id = InputExample(0, "this[MASK] is [MASK]"), TOY_VOCAB.index("[MASK]")
    pieces = find_pieces(tokenizer, [example], with_places=True, mask_id=mask_id)
    assert pieces.tokens == [6]
    offsets = offsets_of(pieces, 0, (4, 0), LONG)
    assert offsets == [None, (0, 4), (4, 10), (11, 13), (14, 20), None]


def test_words_count_as_joined_by_blanks(tokenizer):
    example = InputExample.from_words(0, ["a", "", "jackson", "b c"], ["it"])
    assert find(tokenizer, example, (5, 1))[:6] == [
        None,
        (0, 1),
        (3, 7),
        (7, 10),
        (11, 12),
        (13, 14),
    ]
    assert find(tokenizer, example, (5, 1))[6:] == [None, (0, 2), None]


@pytest.mark.parametrize(
    ("policy", "kept", "places"),
    [
        ("truncate", 2, [(0, 1), (2, 3)]),
        ("tail", 2, [(6, 7), (8, 9)]),
        ("head_tail", 4, [(0, 1), (4, 5), (6, 7), (8, 9)]),
    ],
)
def test_the_kept_pieces_of_a_text_that_was_cut(tokenizer, policy, kept, places):
    example = InputExample(0, "a b a b a")
    found = find(tokenizer, example, (kept, 0), LongText(policy, kept + 2))
    assert found == [None, *places, None]


def test_tokens_of_a_prompt_have_no_place(tokenizer):
    example = InputExample(0, "the: it is")
    assert find(tokenizer, example, (4, 0), skip=5) == [None, None, None, (0, 2), (3, 5), None]


def test_pieces_are_counted_without_places(tokenizer):
    examples = [InputExample(0, "a b", "it"), InputExample(1, ""), InputExample(2, "jackson")]
    for with_places in (False, True):
        pieces = find_pieces(tokenizer, examples, with_places=with_places)
        assert pieces.lengths.tolist() == [2, 1, 0, 0, 2, 0]
        assert pieces.tokens == [6, 2, 4]


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([*TOY_VOCAB[5:18], "é", "  ", "漢", "?!"]), max_size=12))
def test_the_text_at_an_offset_is_the_piece(tokenizer, parts):
    text = " ".join(parts)
    pieces = find_pieces(tokenizer, [InputExample(0, text)], with_places=True)
    (encoding,) = tokenizer.encode([text])
    found = offsets_of(pieces, 0, (len(encoding.ids), 0), LONG)
    assert found == [None, *encoding.offsets, None]
    for (start, end), token in zip(encoding.offsets, encoding.tokens, strict=True):
        if token != "[UNK]":
            assert text[start:end].lower() == token.removeprefix("##")

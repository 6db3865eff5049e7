"""One word in several texts: its occurrences, their cosines by layer, within and between labels."""

import numpy as np
import pytest

from bert_features.errors import InputError
from bert_features.plots.labelled import Labelled
from bert_features.plots.word import ALL, OTHER, SAME, compare_word
from bert_features.readers.input_example import InputExample
from tests.toy import TOY_LAYERS

TEXTS = ["this is it", "no", "it is not this . This", "this a b"]
# (text, position among its tokens) of each "this", in the order of the labels x, x, x, y.
PLACES = [(0, 1), (2, 4), (2, 6), (3, 1)]


def labelled(texts, labels=None):
    return Labelled("in.txt", [InputExample(i, text) for i, text in enumerate(texts)], labels)


@pytest.mark.slow
def test_each_occurrence_with_each_at_each_layer(settings, states, cosine, passes, caplog):
    found = compare_word(settings, "this", labelled(TEXTS, ["x", "x", "x", "y"]))
    assert passes == [3]
    assert [o.text[o.start : o.end] for o in found.occurrences] == ["this", "this", "This", "this"]
    assert "is not in 1 of 4 texts of in.txt, which are left out: 2" in caplog.text
    vectors = [(states(TEXTS[text])[1], token) for text, token in PLACES]
    for layer in TOY_LAYERS:
        wanted = [[cosine(a[layer][i], b[layer][j]) for b, j in vectors] for a, i in vectors]
        np.testing.assert_allclose(found.cosines[layer], wanted, atol=1e-4)


def test_pairs_of_one_label_and_of_two_are_apart(settings):
    found = compare_word(settings, "this", labelled(TEXTS, ["x", "x", "x", "y"]))
    groups, last = found.groups(), found.cosines[2]
    np.testing.assert_array_equal(groups[SAME][-1], [last[0, 1], last[0, 2], last[1, 2]])
    np.testing.assert_array_equal(groups[OTHER][-1], [last[0, 3], last[1, 3], last[2, 3]])
    unlabelled = compare_word(settings, "this", labelled(TEXTS)).groups()
    assert {name: values.shape for name, values in unlabelled.items()} == {ALL: (4, 6)}


def test_a_text_that_is_repeated_with_its_label_counts_once(settings, caplog):
    texts, labels = [*TEXTS, TEXTS[3], TEXTS[0]], ["x", "x", "x", "y", "y", "y"]
    found = compare_word(settings, "this", labelled(texts, labels))
    assert [(o.number, o.label) for o in found.occurrences] == [
        *((1, "x"), (3, "x"), (3, "x")),
        *((4, "y"), (6, "y")),
    ]
    assert "repeated texts of in.txt count once; left out: 5" in caplog.text
    assert "is not in 1 of 5 texts of in.txt, which are left out: 2" in caplog.text


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a", "b"], "is not in in.txt"),
        (["a", "this"], "once .* text 2"),
        (["this"] * 81, "once .* text 1"),
        ([f"this {i}" for i in range(81)], "81 times"),
        ([f"{'this ' * 9}{i}" for i in range(9)], "81 times"),
    ],
)
def test_too_few_and_too_many_are_refused(settings, texts, message):
    with pytest.raises(InputError, match=message):
        compare_word(settings, "this", labelled(texts))


def test_texts_with_the_word_in_a_longer_one_do_not_count(settings):
    """More of them than a heat map has rows: they are neither computed nor a reason to refuse."""
    found = compare_word(settings, "this", labelled(["thistle"] * 81 + ["(This!", "is this"]))
    assert [o.number for o in found.occurrences] == [82, 83]
    assert compare_word(settings, "!", labelled(["this!", "a !"])).occurrences[0].start == 4


def test_pairs_are_refused(settings):
    pair = Labelled("in.txt", [InputExample(0, "this", "it")], None)
    with pytest.raises(InputError, match=r"text 1 .* is a pair"):
        compare_word(settings, "this", pair)

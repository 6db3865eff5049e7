"""Token heat maps: cosines by their definition, from one pass; what is refused."""

import pytest

from bert_features.errors import InputError
from bert_features.plots.similarity import compare_tokens
from tests.toy import TOY_LAYERS

A, B = "is this jacksonville ?", "no it is not ."


@pytest.mark.parametrize("texts", [[A], [A, B]])
def test_each_token_with_each_at_each_layer(settings, states, cosine, passes, texts):
    found = compare_tokens(settings, texts)
    assert passes == [len(texts)]
    (rows, first), (columns, second) = states(texts[0]), states(texts[-1])
    assert (found.rows, found.columns) == (tuple(rows), tuple(columns))
    assert tuple(found.cosines) == TOY_LAYERS
    for layer in TOY_LAYERS:
        for i, row in enumerate(first[layer]):
            for j, column in enumerate(second[layer]):
                wanted = pytest.approx(cosine(row, column), abs=1e-4)
                assert found.cosines[layer][i, j] == wanted, (layer, i, j)


def test_the_last_layer_is_shown_unless_another_is_named(settings):
    assert compare_tokens(settings, [A]).layer == 2
    assert compare_tokens(settings, [A], -3).layer == 0
    assert compare_tokens(settings, [A], "embeddings").layer == "embeddings"


def test_too_many_tokens_are_refused(settings, monkeypatch):
    monkeypatch.setattr("bert_features.plots.similarity.MAX_ROWS", 6)
    with pytest.raises(InputError, match="text 2 has 7 tokens"):
        compare_tokens(settings, ["a", B])

"""Scatter plots and the vectors below them: PCA by SVD, equal vectors, limits."""

import sys

import numpy as np
import pytest

from bert_features.errors import BertFeaturesError
from bert_features.plots.labelled import Labelled
from bert_features.plots.scatter import METHODS, scatter_texts
from bert_features.readers.input_example import InputExample

TEXTS = ["is this jacksonville ?", "no it is not .", "the a b", "this", "it is a b .", "not the a"]


def labelled(texts=TEXTS, labels=tuple("xyxyxy")):
    return Labelled("in.csv", [InputExample(i, t) for i, t in enumerate(texts)], list(labels))


def test_pca_is_the_projection_on_the_first_singular_vectors(settings, states, passes, monkeypatch):
    """Without scikit-learn, whose import takes seconds."""
    monkeypatch.setitem(sys.modules, "sklearn", None)
    found = scatter_texts(settings, labelled(), layers=[1], poolings=["mean"], methods=["pca"])
    assert passes == [6]
    vectors = np.stack([states(text)[1][1].mean(0) for text in TEXTS])
    centred = vectors - vectors.mean(0)
    _, _, axes = np.linalg.svd(centred)
    wanted = centred @ axes[:2].T
    np.testing.assert_allclose(np.abs(found.places[1, "mean", "PCA"]), np.abs(wanted), atol=1e-4)


@pytest.mark.parametrize("shape", [(40, 8), (6, 30), (300, 64)])
def test_pca_is_that_of_scikit_learn(shape):
    """The signs of the axes too."""
    from sklearn.decomposition import PCA

    vectors = np.random.default_rng(0).normal(size=shape)
    wanted = PCA(2, svd_solver="full").fit_transform(vectors)
    np.testing.assert_allclose(METHODS["pca"][1](vectors), wanted, atol=1e-9)


def test_empty_texts_which_would_be_one_point_are_left_out(settings, passes, caplog):
    texts = labelled([*TEXTS[:3], "", *TEXTS[3:], " \t"], tuple("xyxzxyxz"))
    found = scatter_texts(settings, texts, layers=[1], poolings=["mean"], methods=["pca"])
    assert passes == [6]
    wanted = scatter_texts(
        settings, labelled(labels=tuple("xyxxyx")), layers=[1], poolings=["mean"], methods=["pca"]
    )
    assert found.data() == wanted.data()
    assert caplog.messages == [
        "2 of 8 texts of in.csv are empty and left out: all of them have the same vector"
    ]


def test_all_layers_and_poolings_come_from_one_pass(settings, passes):
    found = scatter_texts(settings, labelled(), poolings=["mean", "pooler"], methods=["pca"])
    assert passes == [6]
    panels = {(layer, pooling) for layer, pooling, _ in found.places}
    assert panels == {*((layer, "mean") for layer in ("embeddings", 0, 1, 2)), (2, "pooler")}
    absent = [(p["layer"], p["column"]) for p in found.data()["points"] if "absent" in p]
    assert absent == [(0, 1), (1, 1), (2, 1)]


def test_vectors_that_differ_by_rounding_alone_have_no_places(settings):
    """The embeddings of [CLS] do not depend on the text."""
    found = scatter_texts(settings, labelled(), layers=["embeddings", 0], poolings=["cls"])
    assert {layer for layer, _, _ in found.places} == {0}
    assert found.data()["points"][0] == {"layer": 0, "column": 0, "absent": "all vectors are equal"}


@pytest.mark.slow
def test_tsne_separates_two_clouds_and_repeats():
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(40, 8)) + np.repeat([[0.0], [30.0]], 20, axis=0)
    places = METHODS["tsne"][1](vectors)
    np.testing.assert_array_equal(places, METHODS["tsne"][1](vectors))
    near = np.linalg.norm(places[:20] - places[:20].mean(0), axis=1).max()
    assert near < np.linalg.norm(places[:20].mean(0) - places[20:].mean(0)) / 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ["pca", "mds"]}, "method is 'pca"),
        ({"poolings": ["mean", "mean"]}, "pooling"),
        ({"poolings": ["pooler"], "layers": [0]}, "add 2 to layers"),
        ({"labelled": labelled(["a"] * 4, "xyxy")}, "4 texts"),
        ({"labelled": labelled(["a"] * 2001, "x" * 2001)}, "2,001 texts"),
        ({"labelled": labelled(["a"] * 21, map(str, range(21)))}, "21 different labels"),
    ],
)
def test_what_does_not_fit_is_refused(settings, change, message):
    arguments = {"labelled": labelled(), **change}
    with pytest.raises(BertFeaturesError, match=message):
        scatter_texts(settings, **arguments)


def test_vectors_that_would_fill_the_memory_are_refused(settings, monkeypatch):
    monkeypatch.setattr("bert_features.plots.pooled._MAX_BYTES", 6 * 4 * 8 * 4 - 1)
    arguments = {"labelled": labelled(), "methods": ["pca"], "poolings": ["mean"]}
    with pytest.raises(BertFeaturesError, match="in 4 combinations"):
        scatter_texts(settings, **arguments)
    scatter_texts(settings, layers=[0], **arguments)

"""The probe from files of texts and of features to its report."""

import json

import numpy as np
import pytest

from bert_features import extract
from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import ConfigError, InputError
from bert_features.probe.examples import find_origin, gather
from bert_features.probe.report import probe
from tests.toy import TOY_LAYERS, WORDS

SEED = np.random.default_rng(3)
# The label of a word is its place; a last sentence, as long as a row, is cut.
SENTENCES = [SEED.choice(WORDS[9:], 4).tolist() for _ in range(60)] + [["a"] * 30]
TAGS = [[f"place {i}" if i < 4 else "far" for i in range(len(words))] for words in SENTENCES]


def silent(unit, done, total):
    """A report that nobody reads."""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "in.jsonl"
    rows = [{"tokens": w, "y": [*t[:-1], None]} for w, t in zip(SENTENCES, TAGS, strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def given(toy, kept_steps):
    """Settings as a user writes them."""
    return {"checkpoint": toy, "do_lower_case": True, "level": "word", "label_field": "y"}


@pytest.fixture
def config(given):
    return ExtractConfig.of(given)


def found(origin, most=1000, test=None):
    return gather(origin, test, most=most, folds=2, report=silent)


def test_words_of_texts_are_those_with_a_label_and_a_vector(config, path):
    examples = found(find_origin(path, config))
    # The last word of each sentence has no label; 22 words of the last sentence fit.
    assert len(examples.labels) == 60 * 3 + 22
    assert examples.classes == ("far", "place 0", "place 1", "place 2", "place 3")
    assert [*examples.vectors] == [(layer, "mean") for layer in TOY_LAYERS]
    assert examples.about == "202 of 209 words in 61 texts"
    assert examples.labels[:4].tolist() == [1, 2, 3, 1]
    words = [word for sentence in SENTENCES[:-1] for word in sentence[:-1]] + ["a"] * 22
    pairs = set(zip(words, examples.types.tolist(), strict=True))
    assert len(pairs) == len(set(words))
    texts = {tuple(sentence): i for i, sentence in enumerate(SENTENCES)}
    assert len(set(examples.texts.tolist())) == len(texts)


def test_a_features_file_gives_the_same_examples(config, given, path, tmp_path):
    layers = {"layers": ["embeddings", 0, -2, -1], "pooling": "mean"}
    stored = ExtractConfig.of({**given, **layers})
    extract(stored, path, tmp_path / "words.npz")
    wanted = found(find_origin(path, config))
    read = found(find_origin(str(tmp_path / "words.npz"), ExtractConfig()))
    for name in ("labels", "types", "texts"):
        np.testing.assert_array_equal(getattr(read, name), getattr(wanted, name))
    assert (read.classes, read.about) == (wanted.classes, "202 words in 61 texts")
    assert read.vectors.keys() == wanted.vectors.keys()
    for pair, vectors in wanted.vectors.items():
        np.testing.assert_allclose(read.vectors[pair], vectors, atol=1e-5)
    with pytest.raises(InputError, match="0 word features"):
        find_origin(str(tmp_path / "words.npz"), ExtractConfig(), [0], ["max"])
    assert find_origin(str(tmp_path / "words.npz"), ExtractConfig(), [-1]).pairs == [(2, "mean")]
    with pytest.raises(ConfigError, match="label_field"):
        find_origin(str(tmp_path / "words.npz"), config)


@pytest.mark.parametrize("settings", [{"combine": "sum"}, {"outputs": 2}])
def test_a_features_file_has_each_layer_once(given, path, tmp_path, settings):
    twice = [{"name": n, "level": "word", "layers": [0], "normalize": n == "a"} for n in "ab"]
    given |= {"layers": [0, 1], **settings}
    if "outputs" in settings:
        given |= {"outputs": twice}
        del given["level"], given["layers"]
    extract(ExtractConfig.of(given), path, tmp_path / "words.npz")
    with pytest.raises(InputError, match=r"has [02] word features"):
        find_origin(str(tmp_path / "words.npz"), ExtractConfig())


def test_whole_texts_are_drawn_up_to_the_most(config, path):
    origin = find_origin(path, config, [0])
    few = found(origin, most=50)
    assert few.about == "48 of 209 words in 16 of 61 texts"
    again = found(origin, most=50)
    np.testing.assert_array_equal(few.vectors[0, "mean"], again.vectors[0, "mean"])
    assert found(origin, most=209).about == "202 of 209 words in 61 texts"


def test_spans_have_labels_of_their_own(given, tmp_path):
    rows = [
        {"text": "is this the b", "s": [[0, 2, "x"], [3, 7, "y"], [8, 11]]},
        {"text": "no it is", "s": [[0, 2, "x"], [3, 8, "y"]]},
    ]
    (path := tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = given | {"label_field": None, "level": "span", "span_field": "s"}
    origin = find_origin(str(path), ExtractConfig.of(settings))
    examples = found(origin)
    assert (examples.level, examples.labels.tolist()) == ("span", [0, 1, 0, 1])
    assert examples.texts.tolist() == [0, 0, 1, 1]
    assert len(set(examples.types.tolist())) == 4


def test_examples_that_cannot_be_told_apart_are_refused(config, tmp_path, caplog):
    def origin(*labels):
        rows = [{"tokens": ["a"] * 2, "y": [label, label]} for label in labels]
        (path := tmp_path / "in.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
        return find_origin(str(path), config, [0])

    with pytest.raises(InputError, match=r"all 4 words .* 'x'"):
        found(origin("x", "x"))
    with pytest.raises(InputError, match=r"none of .* 'y'"):
        found(origin(None, "_"))
    with pytest.raises(InputError, match="1 different texts"):
        found(origin("x", "y"))  # equal texts count once


def test_the_place_of_a_word_is_in_the_embeddings(config, path):
    result = probe(find_origin(path, config), folds=4)
    assert result.advice.choice.layer == "embeddings"
    assert "no context" in result.advice.sentence
    report = json.loads(json.dumps(result.report()))
    assert report["advice"]["layer"] == "embeddings"
    assert [layer["layer"] for layer in report["layers"]] == list(TOY_LAYERS)
    score = report["layers"][0]["scores"]["accuracy"]
    assert score["mean"] == pytest.approx(np.mean(score["folds"]))
    assert sum(w["mean"] for w in report["mix"]["weights"].values()) == pytest.approx(1)
    assert report["layers"][0]["code"]["examples"][-1] == 202
    assert (report["seed"], report["file"], report["max_examples"]) == (0, path, 10_000)
    assert report["recipe"]["settings"]["label_field"] == "y"
    assert len(report["recipe"]["checkpoint"]["sha256"]) == 64
    assert {*report["recipe"]["versions"]} > {"tensorflow", "python"}
    assert report["classifier_versions"]["scikit-learn"]
    assert result.subject.startswith("in.jsonl, y: uncased_toy, 3 layers")


def test_other_examples_may_be_the_test(config, path):
    origin = find_origin(path, config, ["embeddings", 0])
    examples = found(origin, test=origin)
    own = "202 of 209 words in 61 texts"
    assert examples.about == f"{own} train, {own} test"
    assert examples.is_test.tolist() == [False] * 202 + [True] * 202
    result = probe(origin, origin, folds=2)
    assert len(result.results.scores[0].folds) == 2
    assert len(result.results.mix.weights) == 1
    assert json.loads(json.dumps([result.data(), result.report()]))[0]["weights"][0]["error"] == 0
    alone = probe(find_origin(path, config, [0]), folds=2)
    assert alone.results.mix is None
    assert alone.data()["weights"] == []

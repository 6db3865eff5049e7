"""The client and the service itself, over HTTP: the features of `FeatureExtractor`."""

import contextlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from bert_features import Client
from bert_features.errors import ConfigError, InputError
from bert_features.serving import engine as engine_module
from bert_features.serving.messages import Info
from bert_features.serving.parts import cut
from tests.serving.over_http import over_http

PAGE = Path(__file__).resolve().parents[2] / "docs" / "serving.md"
TEXTS = ["The jackson is", "", "it ville no", "a " * 30, "no it is not . the a b"]
NAMES = ["mean", "last", "word", "half", "brain"]


@pytest.fixture
def url_of(service_of):
    """Starts services with these limits, and gives their addresses."""
    with contextlib.ExitStack() as running:
        yield lambda **settings: running.enter_context(over_http(service_of(**settings)))


@pytest.fixture(scope="module")
def client(url):
    with Client(url) as client:
        yield client


def assert_close(found, expected):
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    tolerance = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}[str(found.dtype)]
    np.testing.assert_allclose(
        found.astype(np.float32), expected.astype(np.float32), atol=tolerance
    )


@pytest.mark.slow
def test_each_output_is_what_the_extractor_gives(client, extractor):
    for name in NAMES:
        expected, found = extractor.encode(TEXTS, name), client.encode(TEXTS, name)
        if name in ("last", "word"):
            assert type(found) is type(expected)
            np.testing.assert_array_equal(found.mask, expected.mask)
            found, expected = found.values, expected.values
        assert_close(found, expected)
    assert_close(client.encode(TEXTS[0], "last"), extractor.encode(TEXTS[0], "last"))
    found, expected = (c.encode(TEXTS, "last", ragged=True) for c in (client, extractor))
    assert_close(found.values, expected.values)
    np.testing.assert_array_equal(found.row_splits, expected.row_splits)


def test_all_layers_come_by_name(client, extractor):
    layers = client.encode(TEXTS, "all_layers")
    assert list(layers) == [f"all_layers_{layer}" for layer in ("embeddings", 0, 1, 2)]
    assert_close(layers["all_layers_2"].values, extractor.encode(TEXTS, "last").values)


@pytest.mark.parametrize("outputs", [["mean", "last", "word"], "word", "mean"])
def test_records_are_those_of_the_extractor(client, extractor, outputs):
    found = client.features(TEXTS, outputs)
    for record, expected in zip(found, extractor(TEXTS), strict=True):
        assert (record.unique_id, record.tokens) == (expected.unique_id, expected.tokens)
        np.testing.assert_array_equal(record.token_ids, expected.token_ids)
        for name, values in record.features.items():
            assert_close(values, expected.features[name])
        if "word" in record.features:
            assert record.words == expected.words
            np.testing.assert_array_equal(record.word_spans.starts, expected.word_spans.starts)


def test_a_single_text_is_taken_by_both_calls(client):
    (record,) = client.features("it is", "mean")
    assert_close(client.encode("it is", "mean"), record.features["mean"])


@pytest.mark.slow
def test_attention(extractor_of, service_of, client_of):
    outputs = [
        {"name": "seen", "kind": "attention", "layers": [-1]},
        {"name": "of words", "kind": "attention", "layers": [0], "level": "word", "heads": "mean"},
    ]
    extractor = extractor_of(outputs=outputs)
    with over_http(service_of(extractor)) as url, Client(url) as client:
        found = client.features(TEXTS, ["seen", "of words"])
    with client_of(extractor=extractor, answer_bytes=130_000) as client:
        body = {"texts": TEXTS, "outputs": ["seen"]}
        answer = client.post("/v1/features", json=body).json()
        # 64 texts of 16 tokens: two heads, 4 bytes each, for each pair of tokens.
        refused = client.post("/v1/features", json=body | {"texts": ["a b " * 9] * 64})
    (feature,) = answer["features"]
    assert (feature["kind"], feature["level"], feature["heads"]) == (
        "attention",
        "token_pair",
        [0, 1],
    )
    for record, result, expected in zip(found, answer["results"], extractor(TEXTS), strict=True):
        assert list(record.features) == ["seen", "of words"]
        for name, values in record.features.items():
            assert_close(values, expected.features[name])
        shown = np.array(result["features"]["seen"], np.float32)
        assert_close(shown, expected.features["seen"])
        assert shown.shape == (2, len(result["tokens"]), len(result["tokens"]))
    assert refused.status_code == 413
    assert "would take 131072 bytes" in refused.text


def test_words_and_pairs(client, extractor):
    words = [["it", "is", "jackson"], ["no"]]
    pairs = [("it is", "no"), ("a b", "the")]
    found, tokens = client.encode(words, is_tokenized=True, show_tokens=True)
    assert_close(found, extractor.encode(words, "mean"))
    assert tokens == [list(record.tokens) for record in extractor(words)]
    assert client.encode("is", show_tokens=True)[1] == ["[CLS]", "is", "[SEP]"]
    assert_close(client.encode(pairs), extractor.encode(pairs, "mean"))


@pytest.mark.slow
def test_spans_go_with_their_texts(extractor_of, service_of, monkeypatch):
    monkeypatch.setattr(engine_module.Engine, "warm_up", lambda *given, **options: None)
    outputs = [{"name": "span", "layers": [-1], "level": "span"}, {"name": "t", "layers": [-1]}]
    extractor = extractor_of(outputs=outputs)
    texts = ["is it", "", "no a b", "it"]
    spans = [[(3, 5, "X"), (0, 5)], None, [(0, 2), [3, 6, ""], (1, 2)], []]
    expected = extractor.encode(texts, "span", ragged=True, spans=spans)
    with over_http(service_of(extractor, texts=3)) as url, Client(url) as client:
        assert client.encode(texts, ragged=True, spans=spans)[1].tolist() == [0, 2, 2, 5, 5]
        assert_close(client.encode(texts, ragged=True, spans=spans).values, expected.values)
        assert_close(client.encode(texts[2], spans=spans[2]), expected.values[2:5])
        words = [text.split() for text in texts]
        split = client.encode(words, is_tokenized=True, ragged=True, spans=spans)
        assert_close(split.values, expected.values)
        pair = client.features([("is", "it")], spans=[[(0, 2, "Y", 1)]])[0].units["span"]
        assert (pair["spans"], pair["span_labels"]) == (("it",), ("Y",))
        for arguments, error, message in (
            ({"spans": spans[:2]}, InputError, "spans"),
            ({"spans": [[], [], [], [(0, 3)]]}, InputError, r"spans\[3\]\[0\]"),
            ({"spans": [[], [], [], [(0, 2, "\ud800")]]}, InputError, r"spans\[3\] has a lone"),
            ({"spans": spans, "outputs": "t"}, ConfigError, "no output has level 'span'"),
        ):
            with pytest.raises(error, match=message):
                client.encode(texts, **arguments)
        (part,) = cut(texts[:3], "texts", (), Info(**client.info()), spans=spans[:3])
    first, second = (json.loads(half.body(["span"])) for half in part.halves())
    assert first == {
        "texts": ["is it"],
        "spans": [[[3, 5, "X", 0], [0, 5, "", 0]]],
        "outputs": ["span"],
    }
    assert (second["texts"], list(map(len, second["spans"]))) == (["", "no a b"], [0, 3])


def test_the_code_of_the_page_runs(url):
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    found = {}
    exec(compile(code.replace("http://127.0.0.1:8000", url), PAGE.name, "exec"), found)
    assert found["vectors"].shape == (2, 8)
    assert found["tokens"] == [["[CLS]", "is", "it", "[SEP]"], ["[CLS]", "no", "[SEP]"]]
    assert found["layers"]["all_layers_2"].values.shape == (1, 4, 8)


def test_each_call_beside_one_of_bert_as_service_runs(client, url):
    section = PAGE.read_text().partition("### From BertClient")[2]
    cells = re.findall(r"^\| `.*(?<!\\) \| (.*) \|$", section, re.MULTILINE)
    codes = [found[1] for cell in cells if (found := re.match(r"`([^`]+)`", cell))]
    texts = ["a b", "it is"]
    given = {"client": client, "texts": texts, "batches": [texts, texts], "Client": Client}
    with ThreadPoolExecutor() as pool:
        given["ThreadPoolExecutor"] = lambda: pool
        made, vectors, pair, batches, future, info, _ = (
            eval(code.replace("http://127.0.0.1:8000", url), given) for code in codes
        )
        made.close()
        assert np.shape(vectors) == future.result().shape == (2, 8)
        assert pair.shape == (1, 8)
        assert [array.shape for array in batches] == [(2, 8), (2, 8)]
    assert info["model"] == "uncased_toy"


@pytest.mark.slow
def test_many_texts_through_small_limits_from_several_threads(url_of, extractor):
    texts = [f"{'it is ' * (i % 5)}jackson {'no ' * (i % 3)}" for i in range(100)]
    names = ["mean", "half", "mean", "brain"]
    with (
        Client(url_of(texts=9, tokens=64, body_bytes=(1 << 14) + 300)) as client,
        ThreadPoolExecutor(len(names)) as threads,
    ):
        for name, found in zip(names, threads.map(client.encode, [texts] * 4, names), strict=True):
            assert_close(found, extractor.encode(texts, name))
        assert [record.unique_id for record in client.features(texts)] == [*range(len(texts))]

"""The HTTP interface: what each path gives, and what each refuses."""

import base64
import io
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from fastapi.exceptions import RequestValidationError
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import bert_features
from bert_features.readers import text as text_reader
from bert_features.serving import engine as engine_module
from bert_features.serving import service as service_module
from bert_features.serving.app import _explain
from bert_features.serving.messages import ALLOWED, EmbeddingsRequest, FeaturesRequest
from tests.reference.sentence_transformers_folder import write_settings
from tests.reference.tf1_checkpoint import write_directory
from tests.serving.conftest import OUTPUTS, make_client
from tests.toy import TOY, TOY_VOCAB, random_weights

TEXTS = ["The jackson is", "", "it ville no", "a " * 30]
MASKED_LM = str(Path(__file__).resolve().parents[1] / "data" / "masked_lm")


def post(client, path="/v1/features", headers=None, **body):
    return client.post(path, json=body, headers=headers)


def error_of(answer, status, kind):
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert (set(error), error["type"]) == ({"message", "type", "param", "code"}, kind)
    return error


class TestFeatures:
    def test_a_pair_in_the_notation_of_files_is_one_text_and_a_warning(
        self, client, caplog, monkeypatch
    ):
        monkeypatch.setattr(text_reader, "_noticed", False)
        for texts in (["a b"], ["a ||| b"], ["a ||| b"]):
            (result,) = post(client, texts=texts, outputs=["mean"]).json()["results"]
        assert result["type_ids"] == [0] * 7  # [CLS] a | | | b [SEP]
        (message,) = caplog.messages
        assert "over HTTP in `pairs`" in message

    def test_all_parts_of_an_answer(self, client, extractor):
        answer = post(client, texts=TEXTS, outputs=["mean", "last"]).json()
        assert answer["model"] == "uncased_toy"
        assert [f["name"] for f in answer["features"]] == ["mean", "last"]
        assert answer["features"][0] == {
            "name": "mean",
            "level": "sequence",
            "width": 8,
            "dtype": "float32",
            "layers": [-1],
            "pooling": "mean",
            "kind": "layers",
            "heads": [],
        }
        records = extractor(TEXTS)
        for result, record in zip(answer["results"], records, strict=True):
            assert result["tokens"] == list(record.tokens)
            assert result["token_ids"] == record.token_ids.tolist()
            assert len(result["offsets"]) == len(result["type_ids"]) == len(record.tokens)
            for name in ("mean", "last"):
                np.testing.assert_allclose(
                    result["features"][name], record.features[name], atol=1e-5
                )
        first, empty, unknown, long = answer["results"]
        assert first["offsets"] == [None, [0, 3], [4, 8], [8, 11], [12, 14], None]
        assert empty["tokens"] == ["[CLS]", "[SEP]"]
        assert unknown["unknown_tokens"] == 1
        assert long["tokens_lost"] == 16
        assert answer["usage"] == {"tokens": sum(len(r.tokens) for r in records), "tokens_lost": 16}

    def test_pairs_and_words(self, client, extractor):
        answer = post(client, pairs=[["a", "it is"]], outputs=["mean"]).json()["results"][0]
        assert answer["type_ids"] == [0, 0, 0, 1, 1, 1]
        (record,) = extractor([("a", "it is")])
        np.testing.assert_allclose(answer["features"]["mean"], record.features["mean"], atol=1e-5)
        answer = post(client, words=[["jackson", "is"]], outputs=["word"]).json()["results"][0]
        assert answer["words"] == ["jackson", "is"]
        assert np.shape(answer["features"]["word"]) == (2, 8)

    def test_the_first_output_is_the_default_and_tokens_can_be_left_out(self, client):
        result = post(client, texts=["a"], tokens=False).json()["results"][0]
        assert sorted(result) == ["features", "tokens_lost", "unknown_tokens"]
        assert list(result["features"]) == ["mean"]

    def test_all_layers_are_always_there(self, client):
        answer = post(client, texts=["a"], outputs=["all_layers"]).json()
        layers = ["embeddings", *range(TOY.num_hidden_layers)]
        assert list(answer["results"][0]["features"]) == [f"all_layers_{i}" for i in layers]
        assert [feature["layers"] for feature in answer["features"]] == [[i] for i in layers]

    @pytest.mark.slow
    def test_dtypes_of_two_bytes_become_numbers(self, client, extractor):
        features = post(client, texts=["it is"], outputs=["half", "brain"]).json()["results"][0]
        (record,) = extractor(["it is"])
        for name in ("half", "brain"):
            wanted = record.features[name].astype(np.float32)
            np.testing.assert_allclose(features["features"][name], wanted, rtol=1e-2)


class TestForms:
    @pytest.mark.slow
    def test_npy(self, client, extractor):
        answer = post(
            client, texts=TEXTS, outputs=["half"], headers={"Accept": "application/x-npy"}
        )
        values = np.load(io.BytesIO(answer.content), allow_pickle=False)
        assert (values.shape, values.dtype) == ((4, 8), np.float16)
        np.testing.assert_allclose(values, extractor.encode(TEXTS, "half"), rtol=1e-2)
        error = error_of(
            post(client, texts=["a"], outputs=["last"], headers={"Accept": "application/x-npy"}),
            406,
            "not_acceptable",
        )
        assert "one output of level 'sequence'" in error["message"]

    def test_arrow(self, client):
        """The other columns are what test_client_and_service.py looks at."""
        accept = {"Accept": "application/vnd.apache.arrow.stream"}
        answer = post(client, texts=TEXTS, headers=accept)
        assert answer.headers["content-type"] == accept["Accept"]
        rows = pa.ipc.open_stream(answer.content).read_all().to_pylist()
        assert [row["tokens_lost"] for row in rows] == [0, 0, 0, 16]
        assert [row["unknown_tokens"] for row in rows] == [0, 0, 1, 0]

    @pytest.mark.parametrize(
        ("accept", "kind"),
        [
            ("*/*", "application/json"),
            ("text/html, application/*;q=0.5", "application/json"),
            ("application/json;q=0.1, application/x-npy", "application/x-npy"),
            ("application/x-npy;q=0.2, */*;q=0.1", "application/x-npy"),
            ("application/json;q=0, */*", "application/vnd.apache.arrow.stream"),
            ("application/json;q=0.5, */*", "application/vnd.apache.arrow.stream"),
            ("application/x-npy;q=wrong, application/json", "application/json"),
        ],
    )
    def test_the_preferred_form_is_taken(self, client, accept, kind):
        answer = post(client, texts=["a"], outputs=["mean"], headers={"Accept": accept})
        assert answer.headers["content-type"].split(";")[0] == kind

    def test_no_form_that_is_taken(self, client):
        answer = post(client, texts=["a"], headers={"Accept": "text/html"})
        assert "application/x-npy" in error_of(answer, 406, "not_acceptable")["message"]


class TestEmbeddings:
    def test_numbers_and_base64_are_those_of_encode(self, client, extractor):
        wanted = extractor.encode(TEXTS, "mean")
        for form in ("float", "base64"):
            answer = post(
                client, "/v1/embeddings", input=TEXTS, model="uncased_toy", encoding_format=form
            ).json()
            assert (answer["object"], answer["model"]) == ("list", "uncased_toy")
            assert [entry["index"] for entry in answer["data"]] == [0, 1, 2, 3]
            rows = [entry["embedding"] for entry in answer["data"]]
            if form == "base64":
                rows = [np.frombuffer(base64.b64decode(row), "<f4") for row in rows]
            np.testing.assert_allclose(rows, wanted, atol=1e-5)
            assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 0

    def test_another_output_and_fewer_dimensions(self, client, extractor):
        answer = post(
            client, "/v1/embeddings", input="it", model="uncased_toy/half", dimensions=3
        ).json()
        np.testing.assert_allclose(
            answer["data"][0]["embedding"], extractor.encode("it", "half")[:3], rtol=1e-2
        )
        answer = post(client, "/v1/embeddings", input="it", model="uncased_toy", dimensions=9)
        assert error_of(answer, 422, "invalid_request")["param"] == "dimensions"

    @pytest.mark.slow
    def test_shortened_vectors_of_length_1_get_length_1_again(self, client_of, extractor_of):
        outputs = [{"name": "unit", "level": "sequence", "layers": [-1], "normalize": True}]
        client = client_of(extractor=extractor_of(outputs=outputs))
        answer = post(client, "/v1/embeddings", input="it", model="uncased_toy", dimensions=3)
        assert np.linalg.norm(answer.json()["data"][0]["embedding"]) == pytest.approx(1)

    def test_what_is_cut_is_in_the_usage_a_header_and_the_log(
        self, client, service, monkeypatch, caplog
    ):
        now = 1000.0
        monkeypatch.setattr(service_module.time, "monotonic", lambda: now)
        monkeypatch.setattr(service, "_next_warning", 0.0)
        for accept in ("*/*", "application/x-npy"):
            answer = post(client, texts=TEXTS, headers={"Accept": accept})
            assert answer.headers["x-tokens-lost"] == "16"
        answer = post(client, "/v1/embeddings", input=TEXTS, model="uncased_toy")
        assert answer.headers["x-tokens-lost"] == "16"
        assert answer.json()["usage"]["tokens_lost"] == 16
        assert caplog.messages == [
            "1 of 4 texts of a request did not fit 16 tokens and lost 16 tokens; send shorter "
            "ones, or start with --long-text window (logged at most once a minute)"
        ]
        now += 61
        post(client, texts=TEXTS)
        now += 61
        answer = post(client, "/v1/embeddings", input="a", model="uncased_toy")
        assert (answer.headers["x-tokens-lost"], answer.json()["usage"]["tokens_lost"]) == ("0", 0)
        assert len(caplog.messages) == 2

    def test_null_is_the_default(self, client):
        """LiteLLM sends it."""
        null = dict.fromkeys(("encoding_format", "dimensions", "user"))
        answer = post(client, "/v1/embeddings", input="it", model="uncased_toy", **null)
        assert type(answer.json()["data"][0]["embedding"]) is list
        null = dict.fromkeys(("pairs", "words", "outputs", "tokens", "prompt_name"))
        assert "tokens" in post(client, texts=["it"], **null).json()["results"][0]
        answer = post(client, "/v1/embeddings", input=None, model="uncased_toy")
        assert "input is missing" in error_of(answer, 422, "invalid_request")["message"]

    def test_models(self, client):
        ids = [model["id"] for model in client.get("/v1/models").json()["data"]]
        assert ids == ["uncased_toy", *(f"uncased_toy/{n}" for n in ("mean", "half", "brain"))]
        for name in ids:
            assert client.get(f"/v1/models/{name}").json()["id"] == name
        assert error_of(client.get("/v1/models/ada"), 404, "not_found")["param"] == "model"
        answer = post(client, "/v1/embeddings", input="a", model="ada")
        assert "allowed: uncased_toy, " in error_of(answer, 404, "not_found")["message"]


@pytest.fixture(scope="module")
def trained_client(tmp_path_factory, service_of, extractor_of):
    """Of a checkpoint with settings of sentence-transformers, which one output follows."""
    folder = write_directory(
        tmp_path_factory.mktemp("st") / "toy", TOY, TOY_VOCAB, random_weights(TOY)
    )
    prompts = {"query": "is it ", "document": "no "}
    prompts = {"prompts": prompts, "default_prompt_name": "query"}
    write_settings(folder, length=6, **prompts)
    outputs = [
        {"name": "embedding", "level": "sequence", "pooling": "auto"},
        {"name": "last", "layers": [-1]},
    ]
    settings = {"checkpoint": str(folder), "outputs": outputs, "max_seq_length": None}
    return make_client(service_of(extractor_of(**settings)))


class TestSentenceTransformers:
    """The longest row and the prompt are those of `extract` with the outputs of the request."""

    @pytest.mark.parametrize(
        ("outputs", "tokens", "lost"),
        [
            (["embedding"], "[CLS] is it a a [SEP]", 28),
            (["embedding", "last"], "[CLS] is it a a [SEP]", 28),
            (["last"], " ".join(["[CLS]", *["a"] * 22, "[SEP]"]), 8),
            (["all_layers"], " ".join(["[CLS]", *["a"] * 22, "[SEP]"]), 8),
        ],
    )
    def test_of_the_outputs_of_a_request(self, trained_client, outputs, tokens, lost):
        (result,) = post(trained_client, texts=["a " * 30], outputs=outputs).json()["results"]
        assert (result["tokens"], result["tokens_lost"]) == (tokens.split(), lost)
        assert len(result["offsets"]) == len(result["tokens"])

    def test_info(self, trained_client):
        info = trained_client.get("/v1/info").json()
        assert info["max_seq_length"] == 24
        lengths = {output["name"]: output["max_seq_length"] for output in info["outputs"]}
        assert lengths == {"embedding": 6, "last": 24, "all_layers": 24}
        assert info["prompts"] == ["query", "document"]

    def test_a_prompt_by_its_name(self, trained_client):
        """Not by the texts alone: `no it` and the document `it` are the same text."""
        ids = [model["id"] for model in trained_client.get("/v1/models").json()["data"]]
        assert ids == ["toy", "toy/query", "toy/document", "toy/embedding"]

        def embed(model, text):
            answer = post(trained_client, "/v1/embeddings", input=text, model=model).json()
            return answer["data"][0]["embedding"]

        outputs = ["embedding", "last"]
        body = {"texts": ["it"], "outputs": outputs, "prompt_name": "document"}
        (result,) = post(trained_client, **body).json()["results"]
        assert result["tokens"] == ["[CLS]", "no", "it", "[SEP]"]
        assert result["offsets"] == [None, None, [0, 2], None]
        assert embed("toy/document", "it") == pytest.approx(result["features"]["embedding"], 1e-4)
        (last,) = post(trained_client, texts=["no it"], outputs=["last"]).json()["results"]
        mean = np.mean(last["features"]["last"], 0)
        np.testing.assert_allclose(embed("toy/document", "it"), mean, atol=1e-5)
        assert embed("toy", "it") == pytest.approx(embed("toy/query", "it"), 1e-4)  # the default
        assert embed("toy", "it") != pytest.approx(mean, 1e-2)

    def test_a_prompt_that_cannot_be(self, trained_client):
        for body, message in (
            ({"texts": ["a"], "prompt_name": "no"}, "prompts of .*toy: 'query', 'document'"),
            ({"words": [["a"]], "prompt_name": "query"}, "came as words"),
        ):
            error = error_of(post(trained_client, **body), 422, "invalid_request")
            assert re.search(message, error["message"])


def test_spans_of_a_request_and_of_the_service(service_of, extractor_of, monkeypatch):
    monkeypatch.setattr(engine_module.Engine, "warm_up", lambda *given, **options: None)
    outputs = [{"name": "span", "layers": [-1], "level": "span"}, {"name": "t", "layers": [-1]}]
    client = make_client(service_of(extractor_of(outputs=outputs, spans="2")))
    pairs = [["is it", "no a"], ["", "b"]]
    both = {"pairs": pairs, "outputs": ["span", "t"]}
    own = [[[3, 5, "X"], [0, 4, "", 1]], []]
    (first, second) = post(client, **both, spans=own).json()["results"]
    assert first["spans"] == [
        {"span": "it", "begin": 3, "end": 5, "type_id": 0, "num_pieces": 1, "label": "X"},
        {"span": "no a", "begin": 0, "end": 4, "type_id": 1, "num_pieces": 2, "label": ""},
    ]
    tokens = np.array(first["features"]["t"])
    want = [tokens[2], tokens[4:6].mean(axis=0)]
    np.testing.assert_allclose(first["features"]["span"], want, atol=1e-6)
    assert (second["spans"], second["features"]["span"]) == ([], [])
    (made, _) = post(client, **both).json()["results"]
    assert [span["span"] for span in made["spans"]] == ["is it", "no a"]
    for body, message in (
        (both | {"spans": own[:1]}, "spans has fewer or more entries than there are texts"),
        (both | {"spans": [[[0, 6]], []]}, r"spans\[0\]\[0\] is \[0, 6\], outside of its text"),
        (both | {"spans": [1, 2]}, "allowed: spans is a list with a list of spans for each text"),
        (
            both | {"spans": own, "outputs": ["t"]},
            "spans is for outputs of level 'span', here: span",
        ),
    ):
        error = error_of(post(client, **body), 422, "invalid_request")
        assert re.search(message, error["message"]), error


@pytest.mark.slow
def test_likely_pieces_have_whole_numbers_as_ids_and_the_places_of_their_masks(
    service_of, extractor_of, monkeypatch
):
    monkeypatch.setattr(engine_module.Engine, "warm_up", lambda *given, **options: None)
    settings = {"checkpoint": MASKED_LM, "outputs": [{"kind": "masked_lm", "name": "likely"}]}
    client = make_client(service_of(extractor_of(**settings)))
    text = "the [MASK] is not it."
    (result,) = post(client, texts=[text]).json()["results"]
    places = [text[slice(*place)] for place in result["offsets"][1:-1]]
    assert places == result["tokens"][1:-1] == ["the", "[MASK]", "is", "not", "it", "."]
    assert {type(i) for row in result["features"]["likely_ids"] for i in row} == {int}


class TestState:
    def test_info(self, client):
        info = client.get("/v1/info").json()
        assert (info["model"], info["layers"], info["hidden_size"]) == ("uncased_toy", 3, 8)
        assert info["max_seq_length"] == 16
        assert info["limits"]["texts"] == 2048
        assert info["version"] == bert_features.__version__
        names = [output["name"] for output in info["outputs"]]
        assert names == ["mean", "last", "word", "half", "brain", "all_layers"]

    def test_a_head_is_a_get_without_a_body(self, client):
        for path in ("/healthz", "/v1/info"):
            answer = client.head(path)
            assert (answer.status_code, answer.content) == (200, b"")
            assert answer.headers["content-type"] == "application/json"
        assert client.head("/v1/features").status_code == 405

    def test_metrics(self, client_of):
        client = client_of()
        tokens = post(client, texts=TEXTS).json()["usage"]["tokens"]
        client.get("/nowhere")
        post(client, texts=[])
        lines = client.get("/metrics").text.splitlines()
        assert 'bert_features_requests_total{path="/v1/features",status="200"} 1.0' in lines
        assert 'bert_features_requests_total{path="/v1/features",status="422"} 1.0' in lines
        assert 'bert_features_requests_total{path="other",status="404"} 1.0' in lines
        assert "bert_features_examples_total 4.0" in lines
        assert f"bert_features_tokens_total {tokens}.0" in lines
        assert "bert_features_lost_tokens_total 16.0" in lines
        assert "bert_features_queued_tokens 0.0" in lines

    def test_the_page_of_the_interface_asks_no_other_host(self, client):
        page = client.get("/docs").text
        assert "//" not in page.replace("https://json-schema.org", "")
        script = page.split('src="')[1].split('"')[0]
        assert client.get(script).status_code == 200


class TestRefusals:
    @pytest.mark.parametrize(
        ("body", "param", "message"),
        [
            ({}, "texts", "none of them"),
            ({"texts": ["a"], "words": [["a"]]}, "texts", "texts and words"),
            ({"texts": ["a", 3]}, "texts[1]", "texts[1] is 3; allowed: texts is a list of one or"),
            ({"pairs": [["a", "b", "c"]]}, "pairs[0]", "allowed: pairs is a list of one or more l"),
            ({"words": [["a"], ["a", None]]}, "words[1][1]", "words[1][1] is None; allowed: words"),
            ({"texts": []}, "texts", "texts is []; allowed: a list of one or more strings"),
            ({"texts": ["a"], "outputs": ["mean", "x"]}, "outputs[1]", "outputs[1] is 'x'"),
            ({"texts": ["a"], "outputs": ["mean", "mean"]}, "outputs[1]", "each of mean,"),
            ({"texts": ["a"], "layer": 1}, "layer", "layer is unknown; allowed: texts, pairs, w"),
            ({"model": "uncased_toy"}, "input", "input is missing; allowed: a string, or a list"),
            ({"model": "a", "input": ["a", 3]}, "input[1]", "input[1] is 3; allowed: input is a"),
            ({"model": "a", "input": [3, 4]}, "input", "check_embedding_ctx_length=False"),
            ({"model": "a", "input": [[3], [4]]}, "input", "input has token ids, made by another"),
            ({"model": "a", "input": "a", "encoding_format": "x"}, "encoding_format", "float or b"),
        ],
    )
    def test_wrong_values_are_named(self, client, body, param, message):
        path = "/v1/embeddings" if "model" in body else "/v1/features"
        error = error_of(post(client, path, **body), 422, "invalid_request")
        assert error["param"] == param
        assert message in error["message"]

    @pytest.mark.parametrize(
        "body",
        [
            '{"texts": [1, 1, 1]}',
            '{"words": [[1, 1, 1], [1]]}',
            '{"pairs": [[], [], []]}',
            '{"x": 1, "y": 1, "z": 1}',
            '{"%s": 1}' % ("x" * 9999),
            '{"texts": "%s"}' % ("x" * 9999),
            '{"texts": ["a"], "outputs": ["%s"]}' % ("x" * 9999),
            '{"\\ud800": 1}',
            '{"texts": ["a"], "outputs": ["\\ud800"]}',
            *(f'{{"texts": {"[" * depth}{"]" * depth}}}' for depth in (300, 900, 960)),
        ],
        ids=lambda body: body[:20],
    )
    def test_the_refusal_of_a_body_of_any_size_is_short(self, client, body):
        answer = client.post(
            "/v1/features", content=body, headers={"Content-Type": "application/json"}
        )
        error_of(answer, 422, "invalid_request")
        assert len(answer.content) < 700

    @pytest.mark.parametrize("body", ["", "[]", "null", '"texts"', "3"])
    def test_a_body_that_is_no_object(self, client, body):
        answer = client.post(
            "/v1/features", content=body, headers={"Content-Type": "application/json"}
        )
        message = error_of(answer, 422, "invalid_request")["message"]
        assert message.startswith("the body is ")
        assert "object" in message

    def test_what_is_no_json(self, client):
        json = {"Content-Type": "application/json"}
        answer = client.post("/v1/features", content=b"{", headers=json)
        assert "not JSON" in error_of(answer, 400, "bad_request")["message"]
        answer = client.post("/v1/features", content=b"{}", headers={"Content-Type": "text/plain"})
        assert "application/json" in error_of(answer, 415, "unsupported_media_type")["message"]

    def test_paths_and_methods(self, client):
        assert "/docs" in error_of(client.get("/nowhere"), 404, "not_found")["message"]
        error_of(client.get("/v1/features"), 405, "method_not_allowed")

    @pytest.mark.parametrize(
        ("limits", "body", "param"),
        [
            ({"texts": 2}, {"texts": ["a", "b", "a"]}, None),
            ({"tokens": 8}, {"pairs": [["a", "b"], ["a", "b"]]}, "pairs[1]"),
            ({"tokens": 8}, {"texts": ["a", "a" * 128]}, "texts[1]"),  # a word is one token
            ({"body_bytes": 40}, {"texts": ["a" * 40]}, None),
            ({"answer_bytes": 95}, {"texts": ["a"], "outputs": ["last"]}, "outputs"),
            # Words have vectors even if nothing is left of them, or if they were cut off.
            (
                {"answer_bytes": 95},
                {"words": [["a", "", "\x00"] * 3], "outputs": ["word"]},
                "outputs",
            ),
            ({"answer_bytes": 600}, {"texts": ["a " * 20], "outputs": ["word"]}, "outputs"),
        ],
    )
    def test_each_limit(self, client_of, limits, body, param):
        client = client_of(**limits)
        assert error_of(post(client, **body), 413, "too_large")["param"] == param
        assert post(client, texts=["a"], outputs=["mean"]).status_code == 200

    def test_a_body_without_its_length(self, client_of):
        client = client_of(body_bytes=100)
        parts = iter([b'{"texts": ["', *[b"a" * 20] * 10])
        answer = client.post(
            "/v1/features", content=parts, headers={"Content-Type": "application/json"}
        )
        error_of(answer, 413, "too_large")

    @pytest.mark.slow
    def test_a_text_that_does_not_fit_if_none_may_be_cut(self, client_of, extractor_of):
        client = client_of(extractor=extractor_of(long_text="error", outputs=OUTPUTS[:1]))
        error = error_of(post(client, texts=["a", "a " * 20]), 422, "invalid_request")
        assert error["message"] == "texts[1] has 22 tokens; allowed: at most 16"

    def test_the_token(self, client_of, caplog):
        client = client_of(token="secret-token")
        for path in ("/v1/info", "/metrics"):
            answer = client.get(path)
            assert "is missing" in error_of(answer, 401, "unauthorized")["message"]
            assert answer.headers["www-authenticate"] == "Bearer"
            wrong = client.get(path, headers={"Authorization": "Bearer secret-tokem"})
            assert "is wrong" in error_of(wrong, 401, "unauthorized")["message"]
            right = client.get(path, headers={"Authorization": "bearer secret-token"})
            assert right.status_code == 200
        for path in ("/healthz", "/readyz", "/openapi.json"):
            assert client.get(path).status_code == 200
        assert "secret" not in caplog.text


@pytest.fixture
def slow(monkeypatch):
    """Lets each load wait until the test says so."""
    release = threading.Event()
    compute = engine_module.Engine._compute

    def wait(self, slices, counts):
        release.wait(20)
        compute(self, slices, counts)

    monkeypatch.setattr(engine_module.Engine, "_compute", wait)
    yield release
    release.set()


def ask_in_threads(client, text, count, release, *, until):
    """The answers to `count` requests, of which `until` come before the others are computed."""
    with ThreadPoolExecutor(count) as threads:
        answers = [threads.submit(post, client, texts=[text]) for _ in range(count)]
        while sum(answer.done() for answer in answers) < until:
            time.sleep(0.01)
        release.set()
    return [answer.result() for answer in answers]


class TestOverload:
    def test_a_full_queue_says_when_to_try_again(self, client_of, slow):
        client = client_of(queued_tokens=20)
        answers = ask_in_threads(client, "a b a b a b a b", 9, slow, until=1)
        statuses = {answer.status_code for answer in answers}
        assert statuses == {200, 429}
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert "tokens wait" in error_of(refused, 429, "overloaded")["message"]
        assert int(refused.headers["retry-after"]) >= 1
        assert post(client, texts=["a"]).status_code == 200

    def test_too_many_requests_at_the_same_time(self, client_of, slow):
        client = client_of(requests=2)
        answers = ask_in_threads(client, "a", 5, slow, until=3)
        assert sorted(answer.status_code for answer in answers) == [200, 200, 429, 429, 429]

    def test_a_request_that_takes_too_long(self, client_of, slow):
        client = client_of(seconds=0.3)
        error = error_of(post(client, texts=["a"]), 504, "timeout")
        assert "within 0.3 seconds" in error["message"]
        slow.set()
        assert post(client, texts=["a"]).status_code == 200

    def test_the_time_of_the_tokenizer_counts_too(self, client_of, monkeypatch):
        client, done = client_of(seconds=0.3), threading.Event()
        monkeypatch.setattr(service_module, "find_pieces", lambda *given, **options: done.wait(20))
        error_of(post(client, texts=["a"]), 504, "timeout")
        done.set()

    def test_a_failure_of_the_service_has_no_traceback_for_the_client(
        self, client_of, monkeypatch, caplog
    ):
        def fail(self, slices, counts):
            for piece in slices:
                piece.job.fail(RuntimeError("inner secret"))

        monkeypatch.setattr(engine_module.Engine, "_compute", fail)
        error = error_of(post(client_of(), texts=["a"]), 500, "internal")
        assert "secret" not in error["message"]
        assert "inner secret" in caplog.text


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in (FeaturesRequest, EmbeddingsRequest) for name in kind.model_fields],
    ids=lambda each: getattr(each, "__name__", each),
)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    value=st.booleans()
    | st.integers(-3, 0)
    | st.floats(-9, -1)
    | st.dictionaries(st.text("ab"), st.none(), max_size=1)
)
def test_a_wrong_field_of_a_kindis_refused_by_name(kind, name, value):
    if name == "tokens" and isinstance(value, bool):
        return
    others = {"model": "m", "input": "a"} if kind is EmbeddingsRequest else {}
    with pytest.raises(ValidationError) as caught:
        kind.model_validate({**others, name: value})
    problems = [{**each, "loc": ("body", *each["loc"])} for each in caught.value.errors()]
    refused = _explain(RequestValidationError(problems))
    assert (refused.status_code, refused.param) == (422, name)
    assert refused.message == f"{name} is {value!r}; allowed: {ALLOWED[name]}"

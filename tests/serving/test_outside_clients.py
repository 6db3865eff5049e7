"""Clients that others wrote: OpenAI's, and one that makes requests of all kinds from the page."""

import subprocess
import sys

import numpy as np
import pytest

from tests.serving.over_http import over_http

pytestmark = pytest.mark.slow

TEXTS = ["The jackson is", "it", ""]


@pytest.fixture(scope="module")
def address(service_of):
    with over_http(service_of(token="secret-token")) as address:
        yield address


class TestOpenAI:
    @pytest.fixture
    def client(self, address):
        import openai

        with openai.OpenAI(base_url=f"{address}/v1", api_key="secret-token") as client:
            yield client

    @pytest.mark.release
    def test_embeddings(self, client, extractor):
        answer = client.embeddings.create(model="uncased_toy", input=TEXTS)
        vectors = [entry.embedding for entry in answer.data]
        np.testing.assert_allclose(vectors, extractor.encode(TEXTS, "mean"), atol=1e-5)
        assert answer.usage.total_tokens == 6 + 3 + 2
        assert answer.usage.tokens_lost == 0  # this client keeps what it does not know
        cut = client.embeddings.with_raw_response.create(model="uncased_toy", input="a " * 30)
        assert (cut.headers["X-Tokens-Lost"], cut.parse().usage.tokens_lost) == ("16", 16)

    def test_models(self, client):
        assert "uncased_toy" in [model.id for model in client.models.list()]
        assert client.models.retrieve("uncased_toy/half").id == "uncased_toy/half"

    def test_errors_are_those_of_its_own_classes(self, client, address):
        import openai

        with pytest.raises(openai.NotFoundError, match="allowed: uncased_toy"):
            client.embeddings.create(model="ada", input="a")
        with pytest.raises(openai.NotFoundError, match="allowed: uncased_toy"):
            client.models.retrieve("ada")
        with pytest.raises(openai.UnprocessableEntityError, match="check_embedding_ctx_length"):
            client.embeddings.create(model="uncased_toy", input=[[1, 2], [3]])
        with pytest.raises(openai.UnprocessableEntityError, match="dimensions is 99"):
            client.embeddings.create(model="uncased_toy", input="a", dimensions=99)
        wrong = openai.OpenAI(base_url=f"{address}/v1", api_key="wrong-token", max_retries=0)
        with wrong, pytest.raises(openai.AuthenticationError, match="the token is wrong"):
            wrong.embeddings.create(model="uncased_toy", input="a")


@pytest.mark.release
def test_no_request_makes_the_service_fail_or_answer_otherwise_than_its_page_says(address):
    """schemathesis makes them from the OpenAPI page, allowed ones and others."""
    checks = "not_a_server_error,status_code_conformance,response_schema_conformance"
    asked = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{address}/openapi.json"),
            *("--header", "Authorization: Bearer secret-token", "--checks", checks),
            *("--max-examples", "40", "--seed", "1", "--phases", "examples,coverage,fuzzing"),
            *("--generation-database", "none", "--no-color"),
            *("--request-timeout", "60"),  # not 10, which a busy machine may take
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert asked.returncode == 0, asked.stdout[-5000:] + asked.stderr[-2000:]
    assert "No issues found" in asked.stdout

"""The guard: slow clients, who send their body or take their answer bit by bit or not at all."""

import asyncio
import copy
import json
import re

import pytest

from bert_features.config.serve_settings import ServeSettings
from bert_features.errors import ConfigError
from bert_features.serving.app import make_app
from bert_features.serving.guard import Guard
from tests.serving.conftest import make_client

BODY = json.dumps({"texts": ["a b a b"] * 300, "outputs": ["all_layers"]}).encode()
SCOPE = {
    "type": "http",
    "method": "POST",
    "path": "/v1/features",
    "query_string": b"",
    "headers": [(b"content-type", b"application/json")],
}


class Connection:
    """A connection whose client takes `takes` messages of the answer, then waits for `goes_on`."""

    def __init__(self, *parts, takes=10_000):
        self.parts, self.sent, self.takes = [*parts], [], takes
        self.waits, self.goes_on = asyncio.Event(), asyncio.Event()

    async def receive(self):
        if not self.parts:
            await asyncio.Event().wait()
        body, is_last = self.parts.pop(0)
        return {"type": "http.request", "body": body, "more_body": not is_last}

    async def send(self, message):
        if len(self.sent) == self.takes:
            self.waits.set()
            await self.goes_on.wait()
        self.sent.append(message)

    @property
    def answer(self):
        return b"".join(message.get("body", b"") for message in self.sent)


def call(app, connection):
    return asyncio.ensure_future(app({**SCOPE}, connection.receive, connection.send))


def used(service):
    """The requests that are being answered, and whether answers take memory."""
    (running,) = re.findall(r"^bert_features_running_requests (.+)", to_text(service), re.MULTILINE)
    return float(running), service.bytes_under_way > 0


def to_text(service):
    return service.metrics.to_text().decode()


def test_a_large_answer_goes_out_in_blocks(service_of):
    async def run():
        connection = Connection((BODY, True))
        await call(make_app(service_of()), connection)
        assert max(len(message.get("body", b"")) for message in connection.sent) <= 1 << 16
        assert [message.get("more_body", False) for message in connection.sent[-2:]] == [
            True,
            False,
        ]
        assert len(json.loads(connection.answer)["results"]) == 300

    asyncio.run(run())


def test_a_request_counts_until_its_client_has_the_answer(service_of):
    async def run():
        service = service_of()
        connection = Connection((BODY, True), takes=2)
        done = call(make_app(service), connection)
        await asyncio.wait_for(connection.waits.wait(), 60)
        assert used(service) == (1, True)
        connection.goes_on.set()
        await done
        assert used(service) == (0, False)
        assert len(json.loads(connection.answer)["results"]) == 300

    asyncio.run(run())


def test_a_client_that_takes_no_more_is_given_up(service_of, caplog):
    async def run():
        service = service_of(seconds=0.05)

        async def answer(scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": bytes(1 << 20)})

        connection = Connection((BODY, True), takes=2)
        await asyncio.wait_for(call(Guard(answer, service, frozenset()), connection), 60)
        assert len(connection.sent) == 2
        assert used(service) == (0, False)

    asyncio.run(run())
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("parts", [[], [(b'{"texts"', False)]])
def test_a_body_that_does_not_come_is_given_up(service_of, parts):
    async def run():
        service = service_of(seconds=0.05)
        connection = Connection(*parts)
        await asyncio.wait_for(call(make_app(service), connection), 60)
        assert connection.sent[0]["status"] == 504
        assert "did not arrive" in json.loads(connection.answer)["error"]["message"]
        assert used(service) == (0, False)

    asyncio.run(run())


@pytest.mark.parametrize(
    "body",
    [
        b'{"texts": [' + b'"a", ' * 70_000,
        b'{"words": [' + b"[], " * 70_000,
        b"{" + b'"x": 1, ' * 70_000,
        b'{"texts": ["' + b"a, " * 70_000,
    ],
    ids=["texts", "words", "unknown names", "tokens"],
)
def test_a_body_of_too_many_parts_is_not_parsed(service_of, body, monkeypatch):
    app = make_app(service_of())
    monkeypatch.setattr(json, "loads", None)

    async def run():
        connection = Connection((body, False))
        await asyncio.wait_for(call(app, connection), 60)
        assert connection.sent[0]["status"] == 413
        assert b"more than 65536 commas" in connection.answer

    asyncio.run(run())


def test_as_many_texts_and_words_as_allowed_are_no_too_many_parts(client_of):
    client = client_of(texts=8, tokens=40)
    words = [["a"] * 3] * 8  # 40 tokens with [CLS] and [SEP]
    assert client.post("/v1/features", json={"words": words}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/healthz", "/v1/info", "/nothing", "/page/page.js"])
def test_no_answer_is_taken_for_another_type(client, path):
    assert client.get(path).headers.get_list("x-content-type-options") == ["nosniff"]


class TestHost:
    """A page on the web may give its name the address 127.0.0.1; its browser sends that name."""

    def get(self, service, header, /, **settings):
        served = copy.copy(service)
        served.settings = ServeSettings.of(**settings)
        return make_client(served).get("/v1/models", headers={"Host": header})

    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:81", "LOCALHOST:"])
    def test_names_of_this_machine(self, service, host):
        assert self.get(service, host).status_code == 200

    @pytest.mark.parametrize("own", ["127.0.0.1", "127.0.0.2", "localhost", "::1", "127.1"])
    def test_another_name(self, service, own):
        answer = self.get(service, "evil.example:8000", host=own)
        assert answer.status_code == 421
        assert answer.headers["x-content-type-options"] == "nosniff"
        message = answer.json()["error"]["message"]
        assert "Host is 'evil.example:8000'; allowed: localhost, 127.0.0.1, [::1]" in message
        assert message.endswith("--allowed-hosts NAME")

    @pytest.mark.parametrize("host", ["", "localhost.evil.example", "a@localhost", "[::1].a", "*"])
    def test_what_only_looks_like_a_name_of_this_machine(self, service, host):
        assert self.get(service, host).status_code == 421

    @pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
    def test_names_that_the_user_allows(self, service, host):
        names = {"host": host, "allowed_hosts": "A.example, b.example"}
        assert self.get(service, "a.example:80", **names).status_code == 200
        assert self.get(service, "localhost", **names).status_code == 200
        assert self.get(service, "c.example", **names).status_code == 421

    @pytest.mark.parametrize("settings", [{"allowed_hosts": "*"}, {"host": "0.0.0.0"}])
    def test_any_name(self, service, settings):
        assert self.get(service, "c.example", **settings).status_code == 200

    def test_of_two_headers_both_count(self, client):
        hosts = [("Host", "localhost"), ("Host", "evil.example")]
        assert client.get("/healthz", headers=hosts).status_code == 421

    @pytest.mark.parametrize("wrong", ["https://a.example", "a.example:80", "::1", "*.a.example"])
    def test_wrong_names_to_allow(self, wrong):
        with pytest.raises(ConfigError, match="without scheme and port"):
            ServeSettings.of(allowed_hosts=wrong)

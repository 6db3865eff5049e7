"""The guard: slow clients, who send their body or take their answer bit by bit or not at all."""

import asyncio
import json
import re

import pytest

from bert_features.serving.app import make_app
from bert_features.serving.guard import Guard

BODY = json.dumps({"texts": ["a b a b"] * 300, "outputs": ["layers"]}).encode()
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

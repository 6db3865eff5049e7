"""Connections: what comes before a request has bounds, and a connection that waits is closed."""

import asyncio
import contextlib
import json
import socket
import time
from http.client import HTTPConnection
from pathlib import Path

import pytest

from bert_features.serving import protocol
from bert_features.serving.guard import Guard
from tests.serving.over_http import over_http

IDLE = 0.4


@pytest.fixture(scope="module")
def port(service_of):
    with over_http(service_of(), timeout_keep_alive=IDLE) as url:
        yield int(url.rpartition(":")[2])


@pytest.fixture
def connection(port):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        yield connection


def read(connection):
    """All that comes until the service closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while block := connection.recv(1 << 16):
            received += block
    return received


def error_of(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.decode().lower(), json.loads(body)["error"]


def open_files():
    return len([*Path("/proc/self/fd").iterdir()])


GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    "request_",
    [b"GET /" + b"a" * 66000, GET + b"X: " + b"a" * 66000, GET + b"X: a\r\n" * 11000],
    ids=["url", "header", "headers"],
)
def test_a_head_without_end(connection, request_):
    connection.sendall(request_)
    head, error = error_of(read(connection))
    assert head.startswith("http/1.1 431 request header fields too large\r\n")
    assert "x-content-type-options: nosniff" in head
    assert error["type"] == "headers_too_large"
    assert "more than 65536 bytes" in error["message"]


def test_what_is_no_request(connection):
    connection.sendall(b"hello\r\n\r\n")
    head, error = error_of(read(connection))
    assert head.startswith("http/1.1 400 bad request\r\n")
    assert "x-content-type-options: nosniff" in head
    assert (error["type"], "not an HTTP/1.1 request" in error["message"]) == ("bad_request", True)


@pytest.mark.parametrize("before", [b"", GET + b"\r\n"], ids=["first", "second"])
@pytest.mark.parametrize("begun", [b"", GET], ids=["idle", "half"])
def test_a_connection_without_a_whole_head_is_closed(connection, before, begun):
    connection.sendall(before + begun)
    began = time.monotonic()
    answer = read(connection)
    assert time.monotonic() - began < 5
    assert answer.count(b"200 OK") == bool(before)


def test_a_head_that_drips_is_not_waited_for(connection):
    connection.sendall(GET)
    began = time.monotonic()
    with contextlib.suppress(ConnectionError):
        while time.monotonic() - began < 5:
            connection.sendall(b"X: a\r\n")
            time.sleep(0.05)
    assert time.monotonic() - began < 4


def test_a_request_in_time_is_answered(connection):
    for _ in range(3):
        connection.sendall(GET)
        time.sleep(IDLE / 4)
        connection.sendall(b"\r\n")
        answer = b""
        while not answer.endswith(b"}"):  # head and body may come apart
            answer += connection.recv(1 << 16) or b"closed}"
        assert b"200 OK" in answer
        time.sleep(IDLE / 4)


def test_a_client_that_takes_no_more_loses_its_connection(service_of):
    async def answer(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(1 << 25)})

    service = service_of(seconds=0.5)
    with over_http(service, app=Guard(answer, service, frozenset())) as url, socket.socket() as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        end.connect(("127.0.0.1", int(url.rpartition(":")[2])))
        end.sendall(GET + b"\r\n")
        assert b"200 OK" in end.recv(4096)
        both_ends = open_files()
        deadline = time.monotonic() + 20
        while open_files() == both_ends:  # uvicorn alone would wait for the client
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_websocket_is_an_ordinary_request(connection):
    upgrade = b"Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    key = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\n" + upgrade + key + b"\r\n")
    assert read(connection).startswith(b"HTTP/1.1 421 ")


def test_a_client_that_only_sends_no_more_gets_its_answer_and_one_that_left_is_noticed(
    service_of, monkeypatch
):
    monkeypatch.setattr(protocol, "_LOOK_SECONDS", 0.01)
    left = []

    async def answer(scope, receive, send):
        assert (await receive())["body"] == b"text"
        if scope["path"] == "/leave":
            left.append(await receive())
            return
        await asyncio.sleep(0.1)  # some looks
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"answer"})

    with over_http(service_of(), app=answer) as url:
        port = int(url.rpartition(":")[2])
        for path in ("/stay", "/leave"):
            with contextlib.closing(HTTPConnection("127.0.0.1", port, timeout=20)) as client:
                client.request("POST", path, b"text")
                if path == "/stay":
                    client.sock.shutdown(socket.SHUT_WR)
                    assert client.getresponse().read() == b"answer"
        deadline = time.monotonic() + 20
        while not left:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert left == [{"type": "http.disconnect"}]


def test_a_body_that_stops_half_way_frees_its_connection(service_of):
    with over_http(service_of(seconds=0.2)) as url:
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            head = b"POST /v1/features HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n"
            connection.sendall(head + b"Content-Type: application/json\r\n\r\n{")
            assert read(connection).startswith(b"HTTP/1.1 504 ")

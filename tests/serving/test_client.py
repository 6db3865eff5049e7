"""The client against a stand-in: what it returns, and what it does when things go wrong."""

import math
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from bert_features import Client
from bert_features.errors import ConfigError, InputError, ServiceError
from bert_features.readers import text as text_reader
from bert_features.serving import client as client_module
from bert_features.serving import connection
from tests.serving.stand_in import ARROW, LIMITS, StandIn, answer, make_info, vector_of


@pytest.fixture
def service(monkeypatch):
    monkeypatch.setattr(connection, "FIRST_PAUSE_SECONDS", 0.01)
    with StandIn() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def client(service):
    with Client(service.url, timeout=5) as client:
        yield client


def vectors(*texts):
    return [vector_of(text) for text in texts]


def vectors_of(values):
    return pa.array(values, pa.list_(pa.float32(), 3))


def test_each_text_has_its_vector(service, client):
    found = client.encode(["one", "two words"])
    assert (found.dtype, found.tolist()) == (np.float32, vectors("one", "two words"))
    assert client.encode([["New", "York"]], is_tokenized=True).tolist() == vectors(["New", "York"])
    assert service.bodies[-1]["words"] == [["New", "York"]]
    assert client.encode([("a", "b"), ("c", "d")]).tolist() == vectors(("a", "b"), ("c", "d"))
    assert service.bodies[-1]["pairs"] == [["a", "b"], ["c", "d"]]
    assert client.encode([]).shape == (0, 3)


@pytest.mark.parametrize(
    ("texts", "is_tokenized", "count"),
    [(["a ||| b"], False, 1), ([["a", "b"]], True, 0), ([("a", "b")], False, 0)],
)
def test_a_pair_in_the_notation_of_files_is_one_text_and_a_warning(
    service, client, texts, is_tokenized, count, caplog, monkeypatch
):
    monkeypatch.setattr(text_reader, "_noticed", False)
    for _ in range(2):
        client.encode(texts, is_tokenized=is_tokenized)
    assert len(caplog.messages) == count
    field = "words" if is_tokenized else "texts" if count else "pairs"
    assert service.bodies[-1][field] == [list(texts[0]) if field == "pairs" else texts[0]]


def test_queries_and_documents_have_their_prompts(service):
    service.info = make_info(prompts=["query", "passage"])
    with Client(service.url) as client:
        client.encode_query("a")
        client.encode_document(["a"], "other")
        client.encode_document(["a"], prompt_name="query")
        client.encode("a")
    sent = [(body.get("prompt_name"), body["outputs"][0]) for body in service.bodies]
    first = "embedding"
    assert sent == [("query", first), ("passage", "other"), ("query", first), (None, first)]


def test_texts_that_the_service_cut_are_reported(client, caplog):
    client.encode(["short"])
    assert not caplog.messages
    client.encode(["a long text", "short", "another long text"])
    assert caplog.messages == ["the service has cut texts that are too long: 6 tokens are lost"]


def test_what_the_service_reports(service, client):
    assert client.info() == make_info()
    assert repr(client) == f"<Client of {service.url}: toy; outputs embedding, other>"


def test_many_texts_are_cut_into_requests_in_order(service, client):
    service.pause = lambda body: time.sleep(0.02 * (len(service.bodies) % 3))
    texts = [f"text {'x' * (i % 50)} {i}" for i in range(950)]
    assert client.encode(texts).tolist() == vectors(*texts)
    assert max(len(body["texts"]) for body in service.bodies) == LIMITS["texts"]
    assert 1 < service.most_running <= 4
    assert service.connections <= 4  # used again


@pytest.mark.parametrize(
    ("limit", "value", "texts", "requests"),
    [
        ("tokens", 40, ["x" * 10] * 6, 2),
        ("body_bytes", (1 << 14) + 100, ["x" * 36] * 4, 2),
        ("body_bytes", (1 << 14) + 100, ["東" * 12] * 4, 2),  # of three bytes each
        ("answer_bytes", 24, ["x"] * 6, 3),
        ("texts", 1, ["x"] * 3, 3),
    ],
)
def test_each_limit_is_respected(service, limit, value, texts, requests):
    service.info = make_info(limits=LIMITS | {limit: value})
    with Client(service.url) as client:
        assert client.encode(texts).tolist() == vectors(*texts)
    assert len(service.bodies) == requests


def test_a_request_that_is_too_large_goes_in_halves(service, client):
    def refuse(handler):
        handler.fail(413, "with texts[2] the request has 99 tokens")

    service.handlers = [refuse, refuse]
    texts = list("abcde")
    assert client.encode(texts).tolist() == vectors(*texts)
    assert [len(body["texts"]) for body in service.bodies] == [5, 2, 1, 1, 3]
    service.handlers = [refuse]
    with pytest.raises(ServiceError, match=r"413: with texts\[2\]") as error:
        client.encode(["a"])
    assert error.value.status == 413


def test_errors_name_texts_as_the_caller_counts_them(service):
    service.info = make_info(limits=LIMITS | {"texts": 2})
    with Client(service.url) as client:

        def judge(handler):
            texts = handler.body["texts"]
            if "bad" in texts:
                handler.fail(422, f"texts[{texts.index('bad')}] has 600 tokens")
            else:
                handler.answer()

        service.handlers = [judge] * 9
        with pytest.raises(ServiceError, match=r"422: texts\[3\] has 600"):
            client.encode(["a", "b", "c", "bad", "e"])


@pytest.mark.parametrize(
    ("texts", "arguments", "error", "message"),
    [
        (["a", 3], {}, InputError, r"texts\[1\] is 3"),
        ([["a"]], {}, ConfigError, "is_tokenized=True"),
        (["a"], {"is_tokenized": True}, InputError, "a list of words"),
        ([("a", "b"), "c"], {}, InputError, r"texts\[1\] is 'c'"),
        (["\ud800"], {}, InputError, "lone surrogate"),
        (["a"], {"outputs": "x"}, ConfigError, "output is 'x'"),
        (["a"], {"outputs": []}, ConfigError, "outputs is empty"),
        (["a"], {"blocking": False}, ConfigError, "no blocking"),
        (None, {}, InputError, r"texts\[0\] is None"),
        (["a", math.nan], {}, InputError, r"texts\[1\] is nan"),
        (["a"], {"outputs": ["other"] * 2}, ConfigError, "output is 'other'; .* once"),
    ],
)
def test_wrong_texts_and_outputs(service, client, texts, arguments, error, message):
    with pytest.raises(error, match=message):
        client.encode(texts, **arguments)
    assert service.bodies == []


@pytest.mark.parametrize("name", ["encode_async", "fetch", "server_status"])
def test_other_calls_of_bert_as_service_say_what_to_use(client, name):
    with pytest.raises(AttributeError, match=f"Client has no {name}; did you mean "):
        getattr(client, name)


def test_a_wrong_address_is_an_error_at_once():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    begin = time.monotonic()
    with pytest.raises(ServiceError, match=f"nothing answers at http://127.0.0.1:{port}; start it"):
        Client(f"http://127.0.0.1:{port}")
    with pytest.raises(ServiceError, match=r"the host .* is unknown"):
        Client("http://no-such-host.invalid")
    assert time.monotonic() - begin < 5


def fail_as_proxy(handler):
    """As Ray Serve's proxy does for a replica that has died with the request."""
    handler.reply(500, b"Internal Server Error", "text/plain")


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (lambda h: h.reply(200, b"<html>", "text/html"), "status 200 and text/html"),
        (fail_as_proxy, "status 500 and text/plain"),
        (lambda h: h.reply(500, b"x" * (2 << 20), "text/plain"), "status 500 and more"),
        (lambda h: h.reply(307, b"", Location="http://else/v1/info"), "redirects to 'http://else"),
        (lambda h: h.fail(401, "the token is wrong"), "the token is wrong"),
        (lambda h: h.reply(200, b"{}"), "install the version"),
        (lambda h: h.reply(200, b"[1"), "install the version"),
    ],
)
def test_what_is_no_service_is_an_error_at_once(service, reply, message):
    service.info = reply
    with pytest.raises(ServiceError, match=message):
        Client(service.url)
    assert len(service.headers) == 1


def test_the_token_is_sent_and_never_shown(service):
    with Client(service.url, token="secret-token") as client:
        client.encode(["a"])
        assert "secret" not in repr(client)
    assert {h["Authorization"] for h in service.headers} == {"Bearer secret-token"}


def test_a_busy_service_is_asked_again_when_it_says(service, client):
    service.handlers = [
        lambda h: h.fail(429, "busy", Retry_After="1"),
        lambda h: h.fail(503, "busy"),
    ]
    begin = time.monotonic()
    assert client.encode(["a"]).tolist() == vectors("a")
    assert time.monotonic() - begin >= 1
    assert len(service.bodies) == 3


def test_a_service_that_stays_busy_is_given_up(service):
    with Client(service.url, retries=2) as client:
        service.handlers = [lambda h: h.fail(429, "9 tokens wait", Retry_After="0")] * 9
        with pytest.raises(ServiceError, match="429: 9 tokens wait") as error:
            client.encode(["a"])
        assert (error.value.status, len(service.bodies)) == (429, 3)
        service.handlers = [lambda h: h.fail(503, "stopping", Retry_After="3600")] * 9
        with pytest.raises(ServiceError, match="answered 503: stopping"):
            client.encode(["a"])
        assert len(service.bodies) == 4  # nobody waits for an hour


def begin(handler, **headers):
    """The head of an answer whose body ends with the connection, if no header says otherwise."""
    handler.send_response(200)
    for name, value in {"Content-Type": ARROW, **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.close_connection = True


def drip(handler):
    """A byte now and then, for ever."""
    while True:
        handler.wfile.write(b"x")
        time.sleep(0.05)


def cut_off(handler):
    """Promises more bytes than come."""
    body = answer(handler.body)
    begin(handler, Content_Length=str(len(body)))
    handler.wfile.write(body[: len(body) // 2])


def cut_off_chunk(handler):
    begin(handler, Transfer_Encoding="chunked")
    handler.wfile.write(b"ffff\r\nARROW")


def hang_up(handler):
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("loss", [cut_off, cut_off_chunk, hang_up, fail_as_proxy])
def test_a_lost_connection_is_made_again(service, loss):
    with Client(service.url, retries=2, timeout=5) as client:
        service.handlers = [loss, loss]
        assert client.encode(["a"]).tolist() == vectors("a")
        service.handlers = [loss] * 3
        with pytest.raises(ServiceError, match="was lost 3 times"):
            client.encode(["a"])


def test_a_connection_that_the_service_closed_while_idle_is_made_again(service, client):
    service.handlers = [lambda h: (h.fail(500, "no"), setattr(h, "close_connection", True))]
    with pytest.raises(ServiceError):
        client.encode(["a"])
    assert client.encode(["b"]).tolist() == vectors("b")


def hang(handler):
    time.sleep(5)


def drip_a_body(handler):
    begin(handler, Content_Length="1000000")
    drip(handler)


def drip_headers(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
    drip(handler)


@pytest.mark.parametrize("slow", [hang, drip_a_body, drip_headers])
def test_a_service_that_hangs_is_given_up_once(service, slow):
    with Client(service.url, timeout=0.4) as client:
        service.handlers = [slow] * 9
        begin = time.monotonic()
        with pytest.raises(ServiceError, match=r"within 0\.4 seconds"):
            client.encode(["a"])
        assert time.monotonic() - begin < 2
        assert len(service.bodies) == 1


def test_a_body_without_end_is_an_error(service, client, monkeypatch):
    monkeypatch.setattr(client_module, "_MAX_REST_BYTES", 1 << 20)

    def send_on(handler):
        begin(handler)
        while True:
            handler.wfile.write(bytes(1 << 16))

    service.handlers = [send_on]
    with pytest.raises(ServiceError, match="status 200 and more than"):
        client.encode(["a"])


def test_control_codes_of_a_message_are_escaped(service):
    service.handlers = [lambda h: h.fail(422, "no \x1b[2J\r way")]
    with Client(service.url) as client, pytest.raises(ServiceError, match=r"no .x1b.2J.r way$"):
        client.encode(["a"])


def test_ctrl_c_ends_a_call_at_once(service):
    service.handlers = [hang] * 9
    code = f"import bert_features; bert_features.Client({service.url!r}).encode(['a'])"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) as process:
        while not service.bodies:
            assert process.poll() is None
            time.sleep(0.01)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert b"KeyboardInterrupt" in process.communicate()[1]
        assert time.monotonic() - begin < 4


def test_the_first_failure_ends_a_call(service):
    service.info = make_info(limits=LIMITS | {"texts": 1})
    with Client(service.url) as client:
        service.handlers = [lambda h: h.fail(500, "it failed")]
        with pytest.raises(ServiceError, match="answered 500: it failed"):
            client.encode(["a"] * 500)
    assert len(service.bodies) < 20


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (lambda body: answer(body, count=1), "answered for 1 texts, and 2 were sent"),
        (lambda body: answer(body | {"outputs": ["other"]}), "outputs of .* have changed"),
        (lambda body: answer(body, values=vectors_of([[1, 2, 3], None])), "is damaged"),
        (lambda body: answer(body, values=vectors_of([[1, 2, 3], [1, None, 3]])), "is damaged"),
        (lambda body: b"not Arrow", "is damaged"),
    ],
)
def test_answers_that_do_not_fit(service, client, reply, message):
    service.handlers = [lambda h: h.reply(200, reply(h.body), ARROW)]
    with pytest.raises(ServiceError, match=message):
        client.encode(["a", "b"])


def test_a_client_serves_several_threads(service, client):
    def encode(number):
        texts = [f"{number} {i}" for i in range(150)]
        return client.encode(texts).tolist() == vectors(*texts)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(encode, range(24)))
    assert service.most_running <= 4


def test_a_closed_client_says_so(service):
    with Client(service.url) as client:
        pass
    with pytest.raises(ServiceError, match="the client is closed"):
        client.encode(["a"])


@pytest.mark.slow
def test_the_client_imports_no_tensorflow(service):
    code = (
        "import sys, bert_features; "
        f"print(bert_features.Client({service.url!r}).encode(['a', 'b']).shape); "
        "heavy = {'tensorflow', 'jax', 'keras', 'fastapi', 'ray'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("(2, 3)\n", "")

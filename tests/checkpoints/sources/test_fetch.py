"""One file from a server that breaks off, changes its file, fails and does not end."""

import io
import re

import pytest
import requests

from bert_features.checkpoints.sources.fetch import fetch
from bert_features.errors import CheckpointError
from tests.reference.file_server import answers, breaks_off_after, status
from tests.reference.published_archive import ARCHIVE, OTHER


@pytest.fixture
def partial(tmp_path):
    return tmp_path / "file.partial"


@pytest.fixture
def server(file_server):
    file_server.files["/models/file"] = ARCHIVE
    return file_server


@pytest.fixture
def get(server, partial):
    """Fetches the server's file, or another address; its bytes."""

    def run(url=f"{server.url}/file", *, max_bytes=10_000_000, progress=lambda done, total: None):
        fetch(url, partial, max_bytes=max_bytes, progress=progress, otherwise="Ask for it.")
        return partial.read_bytes()

    return run


def test_resumes_where_it_broke_off(server, get, caplog):
    caplog.set_level("INFO", logger="bert_features")
    server.script = [breaks_off_after(400_000)]
    seen = []
    assert get(progress=lambda done, total: seen.append((done, total))) == ARCHIVE
    assert "Range" not in server.asked[0]
    assert server.asked[0]["Accept-Encoding"] == "identity"
    came = int(re.fullmatch(r"bytes=(\d+)-", server.asked[1]["Range"])[1])
    assert 0 < came <= 400_000
    assert server.sent[1] == len(ARCHIVE) - came  # no byte was sent twice
    assert seen[0] == (0, len(ARCHIVE))
    assert seen[-1] == (len(ARCHIVE), len(ARCHIVE))
    assert seen == sorted(seen)
    assert any(f"resuming {server.url}/file at byte {came:,}: " in m for m in caplog.messages)


@pytest.mark.parametrize(
    "answer",
    [
        answers(200, Content_Length=len(ARCHIVE)),
        answers(206, Content_Length=5, Content_Range="bytes 0-4/5"),
        answers(206, Content_Length=5),
    ],
)
def test_an_answer_that_is_not_the_rest_starts_over(server, get, answer):
    server.script = [breaks_off_after(300_000), answer]
    assert get() == ARCHIVE


def test_a_partial_file_longer_than_the_file_starts_over(get, partial):
    partial.write_bytes(ARCHIVE + OTHER)
    assert get() == ARCHIVE


def test_a_server_that_always_breaks_off_is_given_up(server, get):
    server.script = [breaks_off_after(300_000), *[answers(206, Content_Length=9)] * 9]
    with pytest.raises(CheckpointError, match="does not have the rest of this file"):
        get()
    assert len(server.asked) == 5


@pytest.mark.parametrize("announced", [{"Content_Length": 5 * len(ARCHIVE)}, {}])
def test_a_body_that_does_not_end_is_cut_off(server, get, partial, announced):
    def endless(handler, body):
        handler.head(200, **announced)
        while True:
            handler.send(body)

    server.script = [endless]
    with pytest.raises(CheckpointError, match="has more than 2,000,000 bytes, so it is not that"):
        get(max_bytes=2_000_000)
    assert not partial.exists()


def test_not_found_is_not_tried_again(server, get, partial):
    server.files.clear()
    message = f"cannot download {server.url}/file: the server answered 404 Not Found. Ask for it."
    with pytest.raises(CheckpointError, match=f"^{re.escape(message)}$"):
        get()
    assert len(server.asked) == 1
    assert not partial.exists()


@pytest.mark.parametrize("code", [429, 503])
def test_passing_failures_are_tried_again(server, get, code):
    server.script = [status(code)]
    assert get(max_bytes=len(ARCHIVE)) == ARCHIVE  # not one byte more than allowed
    assert len(server.asked) == 2


def test_a_server_may_ask_for_a_pause_of_30_seconds_at_most(server, get, monkeypatch):
    slept = []
    monkeypatch.setattr("urllib3.util.retry.time.sleep", slept.append)
    server.script = [
        answers(503, Retry_After=seconds, Content_Length=len(ARCHIVE)) for seconds in (86400, 2)
    ]
    assert get() == ARCHIVE
    assert slept == [30, 2]


def test_a_redirect_that_is_not_encrypted_is_refused(get, monkeypatch):
    insecure = requests.Response()
    insecure.url, insecure.raw = "http://example.org/file", io.BytesIO()
    monkeypatch.setattr(requests.Session, "get", lambda self, url, **options: insecure)
    with pytest.raises(CheckpointError, match=r"to http://example\.org/file, which is not"):
        get("https://example.org/file")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1:9/file", "cannot download .*Connection refused. Ask for it"),
        ("http://[::", "cannot download"),
    ],
)
def test_what_cannot_be_reached(get, url, message):
    with pytest.raises(CheckpointError, match=message) as caught:
        get(url)
    assert "\n" not in str(caught.value)

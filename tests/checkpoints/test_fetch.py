"""One file from a server that breaks off, lies, changes and does not end."""

import dataclasses
import functools
import io
import json
import re
import threading
import time

import pytest
import requests

from bert_features.checkpoints.fetch import Fetch, Patience
from bert_features.checkpoints.pace import PaceLimits
from bert_features.errors import CheckpointError, ConfigError
from tests.reference.file_server import (
    FileServer,
    answers,
    breaks_off_after,
    etag,
    goog_hash,
    ignores_range,
    serve,
    stalls_after,
    status,
)
from tests.reference.published_archive import ARCHIVE, OTHER

PATH = "/models/file"
QUICK = Patience(attempts=3, backoff=0.001, timeout=(60.0, 60.0))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


@pytest.fixture
def server(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with FileServer() as running:
        running.files[PATH] = ARCHIVE
        yield running


@pytest.fixture
def get(server, folder):
    """Fetches the server's file, or another address; its bytes."""

    def run(
        url=f"{server.url}/file",
        *,
        max_bytes=10_000_000,
        progress=None,
        patience=QUICK,
        clock=time.monotonic,
    ):
        partial = folder / "file.partial"
        told = progress or (lambda done, total: None)
        Fetch(url, partial, max_bytes, told, patience, "Ask for it.", clock).run()
        return partial.read_bytes()

    return run


def left(folder):
    return sorted(path.name for path in folder.iterdir())


def test_resumes_where_it_broke_off(server, get):
    server.script = [breaks_off_after(400_000)]
    assert get() == ARCHIVE
    assert "Range" not in server.asked[0]
    came = int(re.fullmatch(r"bytes=(\d+)-", server.asked[1]["Range"])[1])
    assert 0 < came <= 400_000
    assert server.asked[1]["If-Range"] == etag(ARCHIVE)
    # No byte that arrived was sent again.
    assert server.sent[1] == len(ARCHIVE) - came
    assert len(server.asked) == 2


def test_progress_goes_on_where_it_broke_off(server, get, caplog):
    caplog.set_level("INFO", logger="bert_features")
    server.script = [breaks_off_after(400_000)]
    seen = []
    get(progress=lambda done, total: seen.append((done, total)))
    came = int(server.asked[1]["Range"][6:-1])
    assert seen[0] == (0, len(ARCHIVE))
    assert seen.count((came, len(ARCHIVE))) == 2  # as it broke off, and as it goes on
    assert seen[-1] == (len(ARCHIVE), len(ARCHIVE))
    assert seen == sorted(seen)
    assert f"going on from byte {came:,} of {server.url}/file" in caplog.messages


def test_a_later_run_resumes(server, get, folder):
    server.script = [breaks_off_after(300_000), *[status(503)] * 2]
    with pytest.raises(
        CheckpointError, match=r"tried 3 times\): the server answered 503.*are kept"
    ):
        get()
    assert left(folder) == ["file.partial", "file.partial.json"]
    came = (folder / "file.partial").stat().st_size
    assert (folder / "file.partial").read_bytes() == ARCHIVE[:came]
    assert get() == ARCHIVE
    assert server.asked[-1]["Range"] == f"bytes={came}-"


def test_a_server_that_ignores_ranges_starts_over(server, get):
    server.script = [breaks_off_after(300_000), ignores_range]
    assert get() == ARCHIVE
    assert "Range" in server.asked[1]
    assert server.sent[1] == len(ARCHIVE)


def test_without_a_validator_nothing_is_resumed(server, get):
    server.script = [breaks_off_after(300_000, ETag='W/"weak"')]
    assert get() == ARCHIVE
    assert "Range" not in server.asked[1]


def test_a_date_will_do_for_a_validator(server, get):
    date = "Thu, 20 Feb 2020 00:00:00 GMT"
    server.script = [
        breaks_off_after(300_000, ETag='W/"weak"', Last_Modified=date),
        lambda handler, body: serve(handler, body, tag=lambda body: date),
    ]
    assert get() == ARCHIVE
    assert server.asked[1]["If-Range"] == date
    assert 0 < server.sent[1] < len(ARCHIVE)


def test_a_changed_file_is_not_glued_to_the_old_one(server, get):
    def changes(handler, body):
        breaks_off_after(300_000)(handler, body)
        server.files[PATH] = OTHER

    server.script = [changes]
    assert get() == OTHER
    assert server.asked[1]["If-Range"] == etag(ARCHIVE)
    assert server.sent[1] == len(OTHER)


def test_a_changed_file_is_seen_though_the_server_ignores_if_range(server, get):
    def rest_of_another(handler, body):
        first = int(handler.headers["Range"][6:-1])
        told = f"bytes {first}-{len(ARCHIVE) - 1}/{len(ARCHIVE)}"
        length = len(ARCHIVE) - first
        handler.head(206, Content_Range=told, Content_Length=length, ETag=etag(OTHER))
        handler.send(OTHER[first : first + length])

    server.script = [breaks_off_after(300_000), rest_of_another]
    assert get() == ARCHIVE
    assert "Range" not in server.asked[2]


JANUARY, MAY = "Wed, 01 Jan 2020 00:00:00 GMT", "Fri, 01 May 2020 00:00:00 GMT"


@pytest.mark.parametrize(
    ("before", "now", "resumed"),
    [
        ({"ETag": '"1"', "Last_Modified": JANUARY}, {"Last_Modified": JANUARY}, True),
        ({"ETag": '"1"', "Last_Modified": JANUARY}, {"Last_Modified": MAY}, False),
        ({"ETag": '"1"'}, {"Last_Modified": MAY}, True),
        ({"ETag": '"1"', "Last_Modified": JANUARY}, {"ETag": '"1"', "Last_Modified": MAY}, True),
        ({"ETag": '"1"', "Last_Modified": JANUARY}, {"ETag": '"2"'}, False),
        (
            {"ETag": 'W/"1"', "Last_Modified": JANUARY},
            {"ETag": '"1"', "Last_Modified": JANUARY},
            True,
        ),
        ({"ETag": '"1"'}, {}, True),
    ],
)
def test_a_part_is_another_files_if_the_same_header_differs(server, get, before, now, resumed):
    def rest(handler, body):
        came = int(handler.headers["Range"][6:-1])
        stated = f"bytes {came}-{len(body) - 1}/{len(body)}"
        handler.head(206, Content_Range=stated, Content_Length=len(body) - came, **now)
        handler.send(body[came:])

    server.script = [breaks_off_after(300_000, **before), rest]
    assert get() == ARCHIVE
    assert len(server.asked) == (2 if resumed else 3)


@pytest.mark.parametrize(
    "told",
    [
        "bytes 0-9/10",
        "bytes 1-5/{size}",
        "bytes {came}-{last}/99",
        "bytes {came}-{last}/*",
        "bytes {came}-{size}/{size}",
        "bytes {came}-{last}/{size}, 0-1/2",
        "rubbish",
        "",
    ],
)
def test_a_wrong_range_starts_over(server, get, told):
    def wrong(handler, body):
        came = int(handler.headers["Range"][6:-1])
        content_range = told.format(came=came, last=len(body) - 1, size=len(body))
        handler.head(206, Content_Range=content_range, Content_Length=len(body) - came)
        handler.send(body[came:])

    server.script = [breaks_off_after(300_000), wrong]
    assert get() == ARCHIVE
    assert ["Range" in headers for headers in server.asked] == [False, True, False]


def test_a_part_that_ends_early_is_gone_on_from(server, get):
    def some(handler, body):
        came = int(handler.headers["Range"][6:-1])
        told = f"bytes {came}-{came + 99}/{len(body)}"
        handler.head(206, Content_Range=told, Content_Length=100, ETag=etag(body))
        handler.send(body[came : came + 100])

    server.script = [breaks_off_after(300_000), some]
    assert get() == ARCHIVE
    first, second = (int(headers["Range"][6:-1]) for headers in server.asked[1:])
    assert second == first + 100


def test_a_partial_file_longer_than_the_file_starts_over(server, get):
    server.script = [breaks_off_after(300_000), *[status(503)] * 2]
    with pytest.raises(CheckpointError, match="503"):
        get()
    server.script = [status(416)]
    assert get() == ARCHIVE
    assert "Range" not in server.asked[-1]


ELSEWHERE = {"url": "http://elsewhere/x.zip", "size": 5000, "last_modified": None, "md5": None}


@pytest.mark.parametrize(
    "description", [None, "{", json.dumps(ELSEWHERE | {"etag": etag(ARCHIVE)})]
)
def test_a_partial_file_of_unknown_origin_is_not_used(server, get, folder, description):
    (folder / "file.partial").write_bytes(b"x" * 1000)
    if description is not None:
        (folder / "file.partial.json").write_text(description)
    assert get() == ARCHIVE
    assert "Range" not in server.asked[0]


def test_a_body_shorter_than_announced_is_an_error_in_the_end(server, get):
    long = breaks_off_after(len(ARCHIVE), Content_Length=len(ARCHIVE) + 1000)
    server.script = [long, status(416), long]
    with pytest.raises(CheckpointError, match=r"cannot download http.*\(tried 3 times\)"):
        get()
    assert len(server.asked) == 3


def test_a_part_longer_than_the_rest_is_an_error(server, get, folder):
    def chunked(handler, body):
        came = int(handler.headers["Range"][6:-1])
        told = f"bytes {came}-{len(body) - 1}/{len(body)}"
        handler.head(206, Content_Range=told, ETag=etag(body), Transfer_Encoding="chunked")
        much = body[came:] + b"more"
        handler.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(much), much))

    server.script = [breaks_off_after(300_000), chunked]
    with pytest.raises(CheckpointError, match=rf"more than the {len(ARCHIVE)} bytes.*\. Ask for"):
        get()
    assert left(folder) == []


@pytest.mark.parametrize("announced", [True, False])
def test_an_endless_body_is_cut_off(server, folder, get, announced):
    if not announced:
        server.script = [answers(200, Connection="close")]
    with pytest.raises(CheckpointError, match=r"has more than 500,000 bytes.*\. Ask for it\.$"):
        get(max_bytes=500_000)
    assert left(folder) == []
    assert len(server.asked) == 1


def test_no_length_announced(server, get):
    server.script = [answers(200, Connection="close")]
    assert get() == ARCHIVE


def test_compressed_on_the_way_is_refused(server, get):
    server.script = [answers(200, Content_Encoding="gzip", Content_Length=len(ARCHIVE))]
    with pytest.raises(CheckpointError, match=r"comes as gzip, .*asked for\. Ask for it\.$"):
        get()


def test_a_redirect_that_is_not_encrypted_is_refused(get, monkeypatch):
    answer = requests.Response()
    answer.status_code, answer.url, answer.raw = 200, "http://elsewhere/file", io.BytesIO()
    monkeypatch.setattr(requests, "get", lambda url, **settings: answer)
    message = r"^https://here/file redirects to http://elsewhere/file, which.*\. Ask for it\.$"
    with pytest.raises(CheckpointError, match=message):
        get("https://here/file")


def test_not_found_is_not_tried_again(server, get, folder):
    server.files.clear()
    message = r"cannot download http\S+file: the server answered 404 Not Found\. Ask for it\.$"
    with pytest.raises(CheckpointError, match=message):
        get()
    assert len(server.asked) == 1
    assert left(folder) == []


@pytest.mark.parametrize("code", [500, 503, 429])
def test_passing_failures_are_tried_again(server, get, code, caplog):
    server.script = [status(code)] * 2
    with caplog.at_level("INFO", logger="bert_features"):
        assert get() == ARCHIVE
    assert len(server.asked) == 3
    assert f"the server answered {code}" in caplog.text
    assert "trying again in 0 s" in caplog.text
    assert "trying again in 0.002 s" in caplog.text


def test_a_server_can_ask_for_time(server, get, caplog, monkeypatch):
    caplog.set_level("INFO", logger="bert_features")
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    server.script = [status(503, Retry_After=asked) for asked in ("7", "86400", "soon")]
    assert get(patience=dataclasses.replace(QUICK, attempts=4)) == ARCHIVE
    assert slept == [7, 60, 0.004]
    assert "the server answered 503 Service Unavailable; trying again in 7 s" in caplog.text


def test_lasting_failures_end(server, get):
    server.script = [status(500)] * 9
    with pytest.raises(CheckpointError, match=r"\(tried 3 times\): the server answered 500"):
        get()
    assert len(server.asked) == 3


def test_a_silent_server_times_out(server, get):
    go_on = threading.Event()
    server.script = [stalls_after(0, go_on)] * 2
    try:
        with pytest.raises(CheckpointError, match=r"tried 2 times\): .*[Rr]ead timed out"):
            get(patience=Patience(attempts=2, backoff=0.0, timeout=(2.0, 0.2)))
    finally:
        go_on.set()


class DripClock:
    """A clock by which each of the first bytes of a file takes some seconds."""

    def __init__(self, seconds_per_byte, slow_bytes=1000):
        self.seconds_per_byte = seconds_per_byte
        self.slow_bytes = slow_bytes
        self.now = 0.0
        self.done = 0

    def __call__(self):
        return self.now

    def progress(self, done, total):
        came = min(done, self.slow_bytes) - min(self.done, self.slow_bytes)
        self.now += max(came, 0) * self.seconds_per_byte
        self.done = done


@pytest.fixture
def drips(server):
    """Makes the next answers send 1,000 bytes and then nothing until the test ends."""
    go_on = threading.Event()

    def make(count):
        server.script = [stalls_after(1000, go_on)] * count

    yield make
    go_on.set()


def test_a_server_that_drips_is_left_and_the_download_goes_on(server, get, drips, caplog):
    caplog.set_level("INFO", "bert_features")
    drips(1)
    clock = DripClock(1.0)  # one byte a second: the 1,000 bytes take 1,000 seconds
    assert get(clock=clock, progress=clock.progress) == ARCHIVE
    assert "the server sent 1 bytes per second for 1000 seconds; at least 10,000" in caplog.text
    assert server.asked[1]["Range"] == "bytes=1000-"


def test_a_server_that_always_drips_is_given_up(server, get, drips, folder):
    drips(9)
    clock = DripClock(1.0)
    message = (
        r"\(tried 3 times\): the server sent 1 bytes.* The 1,000 bytes that came are kept: run"
    )
    with pytest.raises(CheckpointError, match=message):
        get(clock=clock, progress=clock.progress)
    server.script = []
    assert get() == ARCHIVE
    assert server.asked[-1]["Range"] == "bytes=1000-"


def test_a_download_may_not_take_for_ever(server, get, drips):
    drips(9)
    # As fast as it must be, for days.
    limits = PaceLimits(least_speed=0.1, longest=3600.0)
    clock = DripClock(4.0)
    with pytest.raises(CheckpointError, match=r"took more than 1 hours\. The 1,000 bytes"):
        get(
            clock=clock,
            progress=clock.progress,
            patience=dataclasses.replace(QUICK, pace=limits),
        )
    assert len(server.asked) == 1


def test_a_pause_does_no_harm(server, get):
    """As fast as is expected on average over a minute."""
    clock = DripClock(1 / 10_001, slow_bytes=len(ARCHIVE))
    assert get(clock=clock, progress=clock.progress) == ARCHIVE
    assert len(server.asked) == 1


def test_no_network(get):
    with pytest.raises(CheckpointError) as caught:
        get("http://127.0.0.1:9/file")
    message = str(caught.value)
    assert message.startswith("cannot download http://127.0.0.1:9/file (tried 3 times): ")
    assert "Connection refused" in message
    assert message.endswith("Ask for it.")
    assert "\n" not in message


def test_an_address_that_is_none(get):
    with pytest.raises(CheckpointError, match=r"cannot download http://\["):
        get("http://[")


@pytest.mark.parametrize("attempts", [0, -1])
def test_at_least_one_attempt(server, get, attempts):
    with pytest.raises(ConfigError, match=f"attempts is {attempts}; allowed: at least 1"):
        get(patience=Patience(attempts=attempts))
    assert server.asked == []


def test_a_redirect_to_what_is_no_address(server, get):
    server.script = [answers(302, part=slice(0), Location="http://[::", Content_Length=0)]
    with pytest.raises(CheckpointError, match=r"cannot download http\S+/file: .*\. Ask for it\.$"):
        get()
    assert len(server.asked) == 1


# ---- the storage server's own checksum


@pytest.mark.parametrize(
    "stated",
    [
        goog_hash(ARCHIVE),
        goog_hash(ARCHIVE).partition(",")[2],
        goog_hash(ARCHIVE).replace(",", ", "),
        "crc32c=n03x6A==",  # of an object in several parts
        "md5=rubbish",
        "",
    ],
    ids=["both", "md5", "with a blank", "crc32c", "rubbish", "none"],  # the archive has dates in it
)
def test_a_checksum_that_is_right_or_not_there(server, get, stated):
    server.script = [lambda handler, body: serve(handler, body, x_goog_hash=stated)]
    assert get() == ARCHIVE
    assert len(server.asked) == 1


def test_damage_on_the_way_is_seen(server, get, caplog):
    caplog.set_level("INFO", logger="bert_features")

    def damaged(handler, body):
        serve(handler, body[:500_000] + b"?" + body[500_001:], x_goog_hash=goog_hash(body))

    server.script = [damaged]
    assert get() == ARCHIVE
    assert "Range" not in server.asked[1]  # nothing of it is used
    assert f"the server states {etag(ARCHIVE)[1:-1]}; trying again" in caplog.text


def test_a_checksum_that_is_never_right_is_an_error(server, get, folder):
    wrong = functools.partial(serve, x_goog_hash=goog_hash(OTHER))
    server.script = [wrong] * 9
    with pytest.raises(CheckpointError, match=r"\(tried 3 times\): damaged on the way: MD5 "):
        get()
    assert left(folder) == []
    assert len(server.asked) == 3


def test_a_resumed_file_is_checked_as_a_whole(server, get, folder):
    server.script = [
        breaks_off_after(300_000, x_goog_hash=goog_hash(ARCHIVE)),
        *[status(503)] * 2,
    ]
    with pytest.raises(CheckpointError, match="503"):
        get()
    partial = folder / "file.partial"
    partial.write_bytes(b"?" + partial.read_bytes()[1:])  # a damaged disk
    assert get() == ARCHIVE
    assert ["Range" in headers for headers in server.asked[3:]] == [True, False]


def test_another_checksum_is_another_file(server, get):
    def rest_of_another(handler, body):
        serve(handler, body, x_goog_hash=goog_hash(OTHER))

    server.script = [breaks_off_after(300_000, x_goog_hash=goog_hash(ARCHIVE)), rest_of_another]
    assert get() == ARCHIVE
    assert ["Range" in headers for headers in server.asked] == [False, True, False]


def test_a_file_that_is_stored_compressed_has_the_checksum_of_that(server, get):
    headers = {"x_goog_hash": goog_hash(OTHER), "x_goog_stored_content_encoding": "gzip"}
    server.script = [functools.partial(serve, **headers)]
    assert get() == ARCHIVE
    assert len(server.asked) == 1


# ---- what is there already, and proxies


def test_what_has_come_whole_is_not_asked_for_again(server, get):
    assert get() == get() == ARCHIVE
    assert len(server.asked) == 1


def test_the_proxy_of_the_environment_is_used(server, get, monkeypatch):
    # The toy server as the proxy: a proxy is asked for the whole address.
    monkeypatch.setenv("http_proxy", server.url.removesuffix("/models"))
    server.files["http://nowhere.invalid/file"] = ARCHIVE
    assert get("http://nowhere.invalid/file") == ARCHIVE

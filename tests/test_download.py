"""Downloads from a server that breaks off, lies and changes; hostile archives; the cache."""

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
import warnings
import zipfile

import numpy as np
import pytest
from typer.testing import CliRunner

from bert_features import published
from bert_features.checkpoints import find_checkpoint, read_weights
from bert_features.cli import app
from bert_features.download import (
    Patience,
    Record,
    cache_dir,
    download,
    find,
    unpack,
    url_of,
    verify,
)
from bert_features.errors import CheckpointError, ConfigError
from bert_features.published import ALIASES, BASE_OF_2020, PUBLISHED, resolve
from tests.reference.file_server import (
    FileServer,
    answers,
    breaks_off_after,
    etag,
    ignores_range,
    serve,
    stalls_after,
    status,
)
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, TOY_VOCAB, random_weights

TINY = "uncased_L-2_H-128_A-2"
PATH = f"/models/2020_02_20/{TINY}.zip"
QUICK = Patience(attempts=3, backoff=0.001, timeout=(2.0, 2.0))
DATA = "bert_model.ckpt.data-00000-of-00001"
RANDOM = np.random.default_rng(0).bytes(1_000_000)
FILES = {
    "vocab.txt": b"[PAD]\n[UNK]\n",
    "bert_config.json": b"{}",
    "bert_model.ckpt.index": b"index",
    "bert_model.ckpt.meta": b"meta",
    DATA: RANDOM,
}


def zipped(members):
    """A zip of (name or ZipInfo, bytes) pairs."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # duplicate names are the point of one of them
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


ARCHIVE = zipped(FILES.items())
OTHER = zipped((FILES | {"vocab.txt": b"[PAD]\n[UNK]\nother\n"}).items())


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("BERT_FEATURES_CACHE", str(folder))
    return folder


@pytest.fixture
def server(cache, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with FileServer() as running:
        monkeypatch.setenv("BERT_FEATURES_MIRROR", running.url)
        running.files[PATH] = ARCHIVE
        yield running


def left(cache):
    """What lies in the cache, but for the empty lock."""
    return sorted(path.name for path in cache.iterdir() if path.suffix != ".lock")


def get(name=TINY, **options):
    return download(name, patience=QUICK, **options)


def read(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---- the table


def test_addresses_are_those_of_the_readme():
    # As google-research/bert's README.md and multilingual.md link them.
    small = {
        f"2020_02_20/uncased_L-{layers}_H-{hidden}_A-{heads}.zip"
        for layers in (2, 4, 6, 8, 10, 12)
        for hidden, heads in ((128, 2), (256, 4), (512, 8), (768, 12))
    }
    assert len(small) == 24
    assert {row.path for row in PUBLISHED.values()} == small | {
        "2018_10_18/uncased_L-12_H-768_A-12.zip",
        "2018_10_18/uncased_L-24_H-1024_A-16.zip",
        "2018_10_18/cased_L-12_H-768_A-12.zip",
        "2018_10_18/cased_L-24_H-1024_A-16.zip",
        "2019_05_30/wwm_uncased_L-24_H-1024_A-16.zip",
        "2019_05_30/wwm_cased_L-24_H-1024_A-16.zip",
        "2018_11_23/multi_cased_L-12_H-768_A-12.zip",
        "2018_11_03/multilingual_L-12_H-768_A-12.zip",
        "2018_11_03/chinese_L-12_H-768_A-12.zip",
    }
    assert len(PUBLISHED) == 33
    assert published.SOURCE == "https://storage.googleapis.com/bert_models"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("bert-tiny", "2020_02_20/uncased_L-2_H-128_A-2.zip"),
        ("BERT-Mini", "2020_02_20/uncased_L-4_H-256_A-4.zip"),
        ("bert-small", "2020_02_20/uncased_L-4_H-512_A-8.zip"),
        ("bert-medium", "2020_02_20/uncased_L-8_H-512_A-8.zip"),
        ("bert-base-uncased", "2018_10_18/uncased_L-12_H-768_A-12.zip"),
        ("bert-base-chinese", "2018_11_03/chinese_L-12_H-768_A-12.zip"),
        ("google/bert_uncased_L-10_H-256_A-4", "2020_02_20/uncased_L-10_H-256_A-4.zip"),
        # The archives of 2018 and 2020 share their name; Hugging Face's google/ is the later one.
        ("uncased_L-12_H-768_A-12", "2018_10_18/uncased_L-12_H-768_A-12.zip"),
        (BASE_OF_2020, "2020_02_20/uncased_L-12_H-768_A-12.zip"),
        ("google/bert_uncased_L-12_H-768_A-12", "2020_02_20/uncased_L-12_H-768_A-12.zip"),
    ],
)
def test_names(name, path):
    assert resolve(name).path == path


def test_every_alias_leads_somewhere():
    # Short names, and the 24 under google/.
    assert len(ALIASES) == 15 + 24
    assert set(ALIASES.values()) <= PUBLISHED.keys()
    assert not ALIASES.keys() & PUBLISHED.keys()
    assert resolve("albert") is None


def test_sizes():
    # BERT-Tiny by hand: (30522 + 512 + 2) * 128 + 2 * 128 of the embeddings, two blocks of
    # 12 * 128² + 13 * 128, a pooler of 128² + 128.
    assert PUBLISHED[TINY].parameters == 3_972_864 + 2 * 198_272 + 16_512 == 4_385_920
    for row in PUBLISHED.values():
        # Room for the checkpoint with its heads; none for one of twice the width.
        assert 4 * row.parameters * 1.5 < row.most_bytes < 4 * row.parameters * 4.1 + (64 << 20)


def test_casing_agrees_with_what_the_checkpoint_reader_takes_from_the_folder(tmp_path):
    for row in PUBLISHED.values():
        folder = write_directory(tmp_path / row.name, TOY, TOY_VOCAB, random_weights(TOY))
        assert find_checkpoint(folder).do_lower_case == (row.casing == "uncased"), row.name


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("bert-tinny", "bert-tiny"),
        ("uncased_L-2_H-128_A-4", TINY),
        ("bert-base-chinise", "chinese"),
    ],
)
def test_unknown_names_get_suggestions(cache, name, meant):
    with pytest.raises(CheckpointError, match=f"named '{name}'; did you mean .*{meant}"):
        get(name)
    with pytest.raises(CheckpointError, match=r"'xyzzy'; `bert-features download --list`"):
        get("xyzzy")


# ---- downloading


def test_download(server, cache):
    assert find("bert-tiny") is None
    seen = []
    folder = get("bert-tiny", progress=lambda done, total: seen.append((done, total)))
    assert folder == cache / TINY == find("bert-tiny") == find(TINY)
    assert read(folder) == FILES
    assert left(cache) == [TINY, f"{TINY}.json"]
    assert server.asked[0]["Accept-Encoding"] == "identity"
    assert seen[0] == (0, len(ARCHIVE))
    assert seen[-1] == (len(ARCHIVE), len(ARCHIVE))
    record = json.loads((cache / f"{TINY}.json").read_text())
    assert record["url"] == f"{server.url}/2020_02_20/{TINY}.zip"
    assert record["sha256"] == hashlib.sha256(ARCHIVE).hexdigest()
    assert record["size"] == len(ARCHIVE)
    assert record["files"][DATA] == {
        "size": 1_000_000,
        "sha256": hashlib.sha256(RANDOM).hexdigest(),
    }
    assert record["files"].keys() == FILES.keys()
    assert get() == folder
    assert len(server.asked) == 1


def test_what_comes_is_a_checkpoint(server, cache, tmp_path):
    weights = random_weights(TOY)
    folder = write_directory(tmp_path / "toy", TOY, TOY_VOCAB, weights, kind="tf1")
    server.files[PATH] = zipped((f"{TINY}/{name}", data) for name, data in read(folder).items())
    checkpoint = find_checkpoint(get("google/bert_uncased_L-2_H-128_A-2"))
    assert checkpoint.do_lower_case
    assert checkpoint.config == TOY
    for name, value in read_weights(checkpoint).items():
        np.testing.assert_array_equal(value, weights[name])


def test_resumes_where_it_broke_off(server, cache):
    server.script = [breaks_off_after(400_000)]
    assert read(get()) == FILES
    assert "Range" not in server.asked[0]
    came = int(re.fullmatch(r"bytes=(\d+)-", server.asked[1]["Range"])[1])
    assert 0 < came <= 400_000
    assert server.asked[1]["If-Range"] == etag(ARCHIVE)
    # No byte that arrived was sent again.
    assert server.sent[1] == len(ARCHIVE) - came
    assert len(server.asked) == 2


def test_a_later_run_resumes(server, cache):
    server.script = [breaks_off_after(300_000), *[status(503)] * 2]
    with pytest.raises(
        CheckpointError, match=r"tried 3 times\): the server answered 503.*are kept"
    ):
        get()
    partial = f"{TINY}.zip.partial"
    assert left(cache) == [partial, f"{partial}.json"]
    came = (cache / partial).stat().st_size
    assert (cache / partial).read_bytes() == ARCHIVE[:came]
    assert read(get()) == FILES
    assert server.asked[-1]["Range"] == f"bytes={came}-"
    assert left(cache) == [TINY, f"{TINY}.json"]


def test_a_description_without_bytes_does_no_harm(server, cache):
    server.script = [answers(200, part=slice(0), Content_Length=0)]
    with pytest.raises(CheckpointError, match="is not a sound zip archive"):
        get()
    arriving = {"url": url_of(PUBLISHED[TINY]), "size": 0, "etag": '"e"', "last_modified": None}
    (cache / f"{TINY}.zip.partial.json").write_text(json.dumps(arriving))
    assert read(get()) == FILES


def test_a_complete_partial_file_is_not_asked_for_again(server, cache, monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("bert_features.download.unpack", full)
        with pytest.raises(CheckpointError, match=r"cannot write to .*: No space left on device"):
            get()
    assert left(cache) == [f"{TINY}.zip.partial", f"{TINY}.zip.partial.json"]
    assert read(get()) == FILES
    assert len(server.asked) == 1


def test_a_server_that_ignores_ranges_starts_over(server, cache):
    server.script = [breaks_off_after(300_000), ignores_range]
    assert read(get()) == FILES
    assert "Range" in server.asked[1]
    assert server.sent[1] == len(ARCHIVE)


def test_without_a_validator_nothing_is_resumed(server, cache):
    server.script = [breaks_off_after(300_000, ETag='W/"weak"')]
    assert read(get()) == FILES
    assert "Range" not in server.asked[1]


def test_a_date_will_do_for_a_validator(server, cache):
    date = "Thu, 20 Feb 2020 00:00:00 GMT"
    server.script = [
        breaks_off_after(300_000, ETag='W/"weak"', Last_Modified=date),
        lambda handler, body: serve(handler, body, tag=lambda body: date),
    ]
    assert read(get()) == FILES
    assert server.asked[1]["If-Range"] == date
    assert server.sent[1] < len(ARCHIVE)


def test_a_changed_file_is_not_glued_to_the_old_one(server, cache):
    def changes(handler, body):
        breaks_off_after(300_000)(handler, body)
        server.files[PATH] = OTHER

    server.script = [changes]
    assert read(get())["vocab.txt"].endswith(b"other\n")
    assert server.asked[1]["If-Range"] == etag(ARCHIVE)
    assert server.sent[1] == len(OTHER)


def test_a_changed_file_is_seen_though_the_server_ignores_if_range(server, cache):
    def rest_of_another(handler, body):
        first = int(handler.headers["Range"][6:-1])
        told = f"bytes {first}-{len(ARCHIVE) - 1}/{len(ARCHIVE)}"
        length = len(ARCHIVE) - first
        handler.head(206, Content_Range=told, Content_Length=length, ETag=etag(OTHER))
        handler.send(OTHER[first : first + length])

    server.script = [breaks_off_after(300_000), rest_of_another]
    assert read(get()) == FILES
    assert "Range" not in server.asked[2]


@pytest.mark.parametrize(
    "told", ["bytes 0-9/10", "bytes 1-5/{size}", "bytes {came}-{last}/99", "rubbish", ""]
)
def test_a_wrong_range_starts_over(server, cache, told):
    def wrong(handler, body):
        came = int(handler.headers["Range"][6:-1])
        content_range = told.format(came=came, last=len(body) - 1, size=len(body))
        handler.head(206, Content_Range=content_range, Content_Length=len(body) - came)
        handler.send(body[came:])

    server.script = [breaks_off_after(300_000), wrong]
    assert read(get()) == FILES
    assert ["Range" in headers for headers in server.asked] == [False, True, False]


def test_a_part_that_ends_early_is_gone_on_from(server, cache):
    def some(handler, body):
        came = int(handler.headers["Range"][6:-1])
        told = f"bytes {came}-{came + 99}/{len(body)}"
        handler.head(206, Content_Range=told, Content_Length=100, ETag=etag(body))
        handler.send(body[came : came + 100])

    server.script = [breaks_off_after(300_000), some]
    assert read(get()) == FILES
    first, second = (int(headers["Range"][6:-1]) for headers in server.asked[1:])
    assert second == first + 100


def test_a_partial_file_longer_than_the_file_starts_over(server, cache):
    server.script = [breaks_off_after(300_000), *[status(503)] * 2]
    with pytest.raises(CheckpointError, match="503"):
        get()
    server.script = [status(416)]
    assert read(get()) == FILES
    assert "Range" not in server.asked[-1]


ELSEWHERE = {"url": "http://elsewhere/x.zip", "size": 5000, "last_modified": None}


@pytest.mark.parametrize(
    "description", [None, "{", json.dumps(ELSEWHERE | {"etag": etag(ARCHIVE)})]
)
def test_a_partial_file_of_unknown_origin_is_not_used(server, cache, description):
    cache.mkdir()
    (cache / f"{TINY}.zip.partial").write_bytes(b"x" * 1000)
    if description is not None:
        (cache / f"{TINY}.zip.partial.json").write_text(description)
    assert read(get()) == FILES
    assert "Range" not in server.asked[0]


def test_a_body_shorter_than_announced_is_an_error_in_the_end(server, cache):
    long = breaks_off_after(len(ARCHIVE), Content_Length=len(ARCHIVE) + 1000)
    server.script = [long, status(416), long]
    with pytest.raises(CheckpointError, match=r"cannot download http.*\(tried 3 times\)"):
        get()
    assert not (cache / TINY).exists()


def test_a_body_longer_than_announced_is_an_error(server, cache):
    # HTTP ends the body at the announced length: what comes is the beginning of a zip.
    server.script = [answers(200, Content_Length=len(ARCHIVE) - 1000, ETag=etag(ARCHIVE))]
    with pytest.raises(CheckpointError, match=r"is not a sound zip archive"):
        get()
    assert left(cache) == []


def test_a_part_longer_than_the_rest_is_an_error(server, cache):
    def chunked(handler, body):
        came = int(handler.headers["Range"][6:-1])
        told = f"bytes {came}-{len(body) - 1}/{len(body)}"
        handler.head(206, Content_Range=told, ETag=etag(body), Transfer_Encoding="chunked")
        much = body[came:] + b"more"
        handler.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(much), much))

    server.script = [breaks_off_after(300_000), chunked]
    with pytest.raises(CheckpointError, match=rf"sent more than the {len(ARCHIVE)} bytes"):
        get()
    assert left(cache) == []


@pytest.mark.parametrize("announced", [True, False])
def test_an_endless_body_is_cut_off(server, cache, monkeypatch, announced):
    small = dataclasses.replace(PUBLISHED[TINY])
    monkeypatch.setattr(type(small), "most_bytes", property(lambda row: 500_000))
    if not announced:
        server.script = [answers(200, Connection="close")]
    with pytest.raises(CheckpointError, match="has more than 500,000 bytes"):
        get()
    assert left(cache) == []
    assert len(server.asked) == 1


def test_no_length_announced(server, cache):
    server.script = [answers(200, Connection="close")]
    assert read(get()) == FILES


def test_compressed_on_the_way_is_refused(server, cache):
    server.script = [answers(200, Content_Encoding="gzip", Content_Length=len(ARCHIVE))]
    with pytest.raises(CheckpointError, match="comes as gzip, which was not asked for"):
        get()


def test_not_found_is_not_tried_again(server, cache):
    server.files.clear()
    message = r"cannot download http\S+zip: the server answered 404 Not Found\. Or get that archive"
    with pytest.raises(CheckpointError, match=message) as caught:
        get()
    assert str(cache / TINY) in str(caught.value)
    assert len(server.asked) == 1
    assert left(cache) == []


@pytest.mark.parametrize("code", [500, 503, 429])
def test_passing_failures_are_tried_again(server, cache, code, caplog):
    server.script = [status(code)] * 2
    with caplog.at_level("INFO", logger="bert_features"):
        assert read(get()) == FILES
    assert len(server.asked) == 3
    assert f"the server answered {code}" in caplog.text
    assert "trying again in 0.001 s" in caplog.text
    assert "trying again in 0.002 s" in caplog.text


def test_lasting_failures_end(server, cache):
    server.script = [status(500)] * 9
    with pytest.raises(CheckpointError, match=r"\(tried 3 times\): the server answered 500"):
        get()
    assert len(server.asked) == 3


def test_a_silent_server_times_out(server, cache):
    go_on = threading.Event()
    server.script = [stalls_after(0, go_on)] * 2
    try:
        with pytest.raises(CheckpointError, match=r"tried 2 times\): .*[Rr]ead timed out"):
            download(TINY, patience=Patience(attempts=2, backoff=0.0, timeout=(2.0, 0.2)))
    finally:
        go_on.set()


def test_no_network(cache, monkeypatch):
    monkeypatch.setenv("BERT_FEATURES_MIRROR", "http://127.0.0.1:9")
    with pytest.raises(CheckpointError) as caught:
        get()
    message = str(caught.value)
    assert f"cannot download http://127.0.0.1:9/2020_02_20/{TINY}.zip" in message
    assert "Connection refused" in message
    assert f"unpack its files into {cache / TINY}" in message
    assert "\n" not in message


def test_addresses(cache, monkeypatch):
    row = PUBLISHED[TINY]
    monkeypatch.delenv("BERT_FEATURES_MIRROR", raising=False)
    assert url_of(row) == f"https://storage.googleapis.com/bert_models/2020_02_20/{TINY}.zip"
    monkeypatch.setenv("BERT_FEATURES_MIRROR", "https://mirror.example/bert/")
    assert url_of(row) == f"https://mirror.example/bert/2020_02_20/{TINY}.zip"
    monkeypatch.setenv("BERT_FEATURES_MIRROR", "file:///etc")
    with pytest.raises(
        ConfigError, match="BERT_FEATURES_MIRROR is 'file:///etc'; allowed: an http"
    ):
        get()
    monkeypatch.setenv("BERT_FEATURES_MIRROR", "http://[")
    with pytest.raises(CheckpointError, match=r"cannot download http://\["):
        get()


def test_the_proxy_of_the_environment_is_used(server, cache, monkeypatch):
    # The toy server as the proxy: a proxy is asked for the whole address.
    monkeypatch.setenv("BERT_FEATURES_MIRROR", "http://nowhere.invalid")
    monkeypatch.setenv("http_proxy", server.url.removesuffix("/models"))
    server.files[f"http://nowhere.invalid/2020_02_20/{TINY}.zip"] = ARCHIVE
    assert read(get()) == FILES


# ---- what was seen first


def test_another_archive_later_is_refused(server, cache):
    folder = get()
    server.files[PATH] = OTHER
    with pytest.raises(CheckpointError) as caught:
        get(force=True)
    first, then = (hashlib.sha256(archive).hexdigest() for archive in (ARCHIVE, OTHER))
    assert re.search(f"has SHA-256 {then}, but on 20.* it had {first}", str(caught.value))
    assert str(caught.value).endswith(f"bert-features download {TINY} --forget")
    assert read(folder) == FILES
    assert left(cache) == [TINY, f"{TINY}.json"]
    assert read(get(forget=True))["vocab.txt"].endswith(b"other\n")
    assert Record.model_validate_json((cache / f"{TINY}.json").read_text()).sha256 == then
    assert verify(TINY) == folder


def test_the_hash_outlives_the_folder(server, cache):
    for path in get().iterdir():
        path.unlink()
    (cache / TINY).rmdir()
    server.files[PATH] = OTHER
    with pytest.raises(CheckpointError, match="the archive has changed"):
        get()
    server.files[PATH] = ARCHIVE
    assert read(get()) == FILES


def test_force_downloads_again(server, cache):
    folder = get()
    (folder / "vocab.txt").write_bytes(b"")
    with pytest.raises(CheckpointError, match=f"vocab.txt has 0 bytes, 12 .* {TINY} --force"):
        find(TINY)
    with pytest.raises(CheckpointError, match="is damaged"):
        get()
    assert read(get(force=True)) == FILES
    (folder / DATA).unlink()
    with pytest.raises(CheckpointError, match=f"there is no {DATA}"):
        find(TINY)


def test_verify(server, cache):
    with pytest.raises(CheckpointError, match=f"is not in the cache .* download {TINY}"):
        verify("bert-tiny")
    folder = get()
    assert verify("bert-tiny") == folder
    changed = bytearray(RANDOM)
    changed[500_000] ^= 1
    (folder / DATA).write_bytes(changed)
    (folder / "model.safetensors").write_bytes(b"")
    assert find(TINY) == folder  # the size is the same
    message = rf"{DATA} has changed; model.safetensors was added\. Download it again with"
    with pytest.raises(CheckpointError, match=message):
        verify(TINY)
    assert verify(get(force=True).name) == folder


def test_unpacked_by_hand(server, cache):
    (cache / TINY).mkdir(parents=True)
    with pytest.raises(
        CheckpointError, match=r"there is no vocab.txt; there is no bert_config.json"
    ):
        find(TINY)
    for name, content in FILES.items():
        (cache / TINY / name).write_bytes(content)
    assert get() == find(TINY) == verify(TINY) == cache / TINY
    assert server.asked == []
    (cache / TINY / "vocab.txt").write_bytes(b"[PAD]\n[XXX]\n")
    with pytest.raises(CheckpointError, match=r"vocab.txt has changed"):
        verify(TINY)
    assert read(get(force=True)) == FILES
    assert verify(TINY) == cache / TINY


@pytest.mark.parametrize("text", ["", "[]", '{"files": 3}'])
def test_a_damaged_record(server, cache, text):
    get()
    (cache / f"{TINY}.json").write_text(text)
    with pytest.raises(CheckpointError, match=f"json is damaged.* {TINY} --forget"):
        find(TINY)
    assert verify(get(forget=True).name) == cache / TINY


# ---- archives


def link(name, target):
    member = zipfile.ZipInfo(name)
    member.create_system = 3
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    return member, target


def special(name, kind):
    member = zipfile.ZipInfo(name)
    member.create_system = 3
    member.external_attr = (kind | 0o600) << 16
    return member, b""


def encrypted():
    """The first member's flag of encryption set, in both of its headers."""
    data = bytearray(zipped(FILES.items()))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


def corrupt():
    data = bytearray(ARCHIVE)
    data[500_000] ^= 0xFF
    return bytes(data)


def declares_less():
    """A bomb whose headers declare 10 bytes for 2,000,000."""
    data = zipped([*FILES.items(), ("zeros", bytes(2_000_000))])
    return data.replace((2_000_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))


HOSTILE = {
    "parent": ([("../evil", b"x")], r"'\.\./evil' does not lie below it"),
    "inner parent": ([("a/../../evil", b"x")], "does not lie below it"),
    "absolute": ([("/tmp/evil", b"x")], "'/tmp/evil' does not lie below it"),
    "drive": ([("C:/evil", b"x")], "does not lie below it"),
    "backslash": ([("..\\evil", b"x")], "does not lie below it"),
    "parent folder": ([("../", b"")], "does not lie below it"),
    "dot": ([("./vocab2.txt", b"")], "does not lie below it"),
    "link": ([link("evil", "/etc/passwd")], "'evil' is a link or a special file"),
    "fifo": ([special("evil", stat.S_IFIFO)], "'evil' is a link or a special file"),
    "device": ([special("evil", stat.S_IFCHR)], "'evil' is a link or a special file"),
    "duplicate": ([("vocab.txt", b"x")], "two members of the same name"),
    "case": ([("VOCAB.txt", b"x")], "two members of the same name"),
    "file and folder": ([("vocab.txt/x", b"x")], "a file and a folder of the same name"),
    "many": ([(f"f{i}", b"") for i in range(100)], "holds 105 members; at most 100"),
    "bomb": ([("zeros", bytes(83_000_000))], r"unpacks to 84,000,0\d\d bytes; at most 83,9"),
}


def unpack_bytes(tmp_path, data, most_bytes=83_999_999):
    (tmp_path / "a.zip").write_bytes(data)
    return unpack(tmp_path / "a.zip", tmp_path / "to", most_bytes=most_bytes, source="a.zip")


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_archives(tmp_path, kind):
    members, message = HOSTILE[kind]
    with pytest.raises(CheckpointError, match=f"^a.zip is refused: .*{message}"):
        unpack_bytes(tmp_path, zipped([*FILES.items(), *members]))
    # Refused before a byte was written.
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<html>not here</html>", "is not a sound zip archive"),
        (b"", "is not a sound zip archive"),
        (ARCHIVE[:-1000], "is not a sound zip archive"),
        (corrupt(), "is not a sound zip archive: .*(CRC|invalid|Error)"),
        (encrypted(), "'vocab.txt' is encrypted"),
        (declares_less(), "is not a sound zip archive: .*CRC"),
        (zipped([]), "holds no BERT checkpoint: it is empty"),
        (zipped([("a/b/vocab.txt", b"")]), "there is no vocab.txt"),
    ],
)
def test_unsound_archives(tmp_path, data, message):
    with pytest.raises(CheckpointError, match=message):
        unpack_bytes(tmp_path, data)


@pytest.mark.parametrize("name", ["vocab.txt", "bert_config.json", "bert_model.ckpt.index", DATA])
def test_a_missing_member(tmp_path, name):
    data = zipped((n, content) for n, content in FILES.items() if n != name)
    with pytest.raises(CheckpointError, match=f"holds no BERT checkpoint: there is no {name}$"):
        unpack_bytes(tmp_path, data)


def test_one_top_folder_is_left_out(tmp_path):
    members = [(f"uncased_L-12/{name}", content) for name, content in FILES.items()]
    files = unpack_bytes(tmp_path, zipped([("uncased_L-12/", b""), *members]))
    assert read(tmp_path / "to") == FILES
    assert files.keys() == FILES.keys()


def test_a_refused_archive_leaves_nothing(server, cache, tmp_path):
    server.files[PATH] = zipped([*FILES.items(), ("../evil", b"x")])
    with pytest.raises(CheckpointError, match=r"2020_02_20/.*zip is refused: "):
        get()
    assert left(cache) == []
    server.files[PATH] = ARCHIVE
    assert read(get()) == FILES


# ---- the cache


def test_cache_dir(monkeypatch, tmp_path):
    monkeypatch.setenv("BERT_FEATURES_CACHE", "~/models")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "models"
    monkeypatch.setenv("BERT_FEATURES_CACHE", "")
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: f"/caches/{name}")
    assert str(cache_dir()) == "/caches/bert_features"


@pytest.mark.parametrize("below", ["", "/deeper"])
def test_a_cache_that_cannot_be_written(server, tmp_path, monkeypatch, below):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BERT_FEATURES_CACHE", f"{tmp_path}/file{below}")
    message = f"cannot (write to|read) the cache {tmp_path}/file{below}: .*set BERT_FEATURES_CACHE"
    with pytest.raises(CheckpointError, match=message):
        get()
    assert server.asked == []


def test_leftovers_of_a_killed_run_are_removed(server, cache):
    for name in (f"{TINY}.unpacking", f"{TINY}.old"):
        (cache / name).mkdir(parents=True)
        (cache / name / "vocab.txt").write_text("half")
    assert read(get()) == FILES
    assert left(cache) == [TINY, f"{TINY}.json"]


def test_threads_download_once(server, cache):
    server.script = [slowly]
    results = []
    threads = [threading.Thread(target=lambda: results.append(get())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [cache / TINY] * 4
    assert len(server.asked) == 1
    assert read(cache / TINY) == FILES


def slowly(handler, body):
    handler.head(200, Content_Length=len(body), ETag=etag(body))
    for start in range(0, len(body), 100_000):
        handler.send(body[start : start + 100_000])
        time.sleep(0.05)


# ---- the command line


def run(*arguments):
    return CliRunner().invoke(app, ["download", *arguments])


def program(*arguments):
    command = [sys.executable, "-m", "bert_features", "download", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )


def test_processes_download_once(server, cache):
    go_on = threading.Event()
    server.script = [stalls_after(300_000, go_on)]
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(program("bert-tiny")) for _ in range(2)]
        waiting = threading.Timer(3.0, go_on.set)
        waiting.start()
        results = [process.communicate(timeout=60) for process in processes]
        waiting.join()
    assert [process.returncode for process in processes] == [0, 0], results
    assert [stdout for stdout, _ in results] == [f"{cache / TINY}\n"] * 2
    assert len(server.asked) == 1
    assert read(cache / TINY) == FILES


def test_a_killed_process_is_resumed_by_the_next(server, cache):
    go_on = threading.Event()
    server.script = [stalls_after(600_000, go_on)]
    partial = cache / f"{TINY}.zip.partial"
    with program("bert-tiny") as process:
        deadline = time.monotonic() + 60
        while not (partial.is_file() and partial.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    go_on.set()
    came = partial.stat().st_size
    assert 0 < came < len(ARCHIVE)
    assert left(cache) == [partial.name, f"{partial.name}.json"]
    assert read(get()) == FILES
    assert server.asked[1]["Range"] == f"bytes={came}-"


def test_the_command_prints_the_folder(server, cache):
    result = run("bert-tiny")
    assert (result.exit_code, result.stdout) == (0, f"{cache / TINY}\n"), result.output
    assert run("bert-tiny", "--force").exit_code == 0
    assert len(server.asked) == 2
    result = run("bert-tiny", "--verify")
    assert result.stdout == f"{cache / TINY}: every file is as recorded\n"
    server.files[PATH] = OTHER
    assert run("bert-tiny", "--force").exit_code == 1
    assert run("bert-tiny", "--forget").exit_code == 0


def test_progress_is_lines_where_there_is_no_terminal(server, cache):
    with program("bert-tiny") as process:
        stdout, stderr = process.communicate(timeout=60)
    assert stdout == f"{cache / TINY}\n"
    assert stderr == f"downloading {server.url}/2020_02_20/{TINY}.zip\n1.0 of 1.0 MB\n"


def test_progress_is_a_bar_on_a_terminal(server, cache):
    terminal, inner = os.openpty()
    command = [sys.executable, "-m", "bert_features", "download", "bert-tiny"]
    environment = dict(os.environ) | {"TERM": "xterm", "COLUMNS": "80"}
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=inner, env=environment)
    os.close(inner)
    shown = os.read(terminal, 100_000).decode()
    os.close(terminal)
    assert result.stdout.decode() == f"{cache / TINY}\n"
    assert re.search(r"1\.0/1\.0.* MB.*━", shown), shown


@pytest.mark.parametrize("arguments", [[], ["--list"]])
def test_the_table(server, cache, arguments):
    get()
    lines = run(*arguments).stdout.splitlines()
    assert [line[2:].split()[0] for line in lines[1 : 1 + 33]] == list(PUBLISHED)
    (tiny,) = [line for line in lines if TINY in line and "4,385,920" in line]
    assert tiny.split() == ["*", TINY, "4,385,920", "uncased", "bert-tiny"]
    (new,) = [line for line in lines if BASE_OF_2020 in line]
    assert "trained anew" in new
    assert any(str(cache) in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["bert-tinny"], 1, "did you mean bert-tiny"),
        (["bert-tiny", "--verify"], 1, "is not in the cache"),
        (["bert-mini"], 1, "the server answered 404"),
        (["--verify"], 2, "--verify needs the NAME of a checkpoint"),
        (["bert-tiny", "--list"], 2, "--list goes alone; received bert-tiny"),
        (["bert-tiny", "--verify", "--force"], 2, "--verify and --force exclude each other"),
    ],
)
def test_failures_are_one_line(server, cache, arguments, code, message):
    result = run(*arguments)
    assert result.exit_code == code, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("bert-features: ")
    assert message in line
    assert result.stdout == ""


def test_help_does_not_import_requests():
    check = (
        "import sys, bert_features.cli\n"
        "try: bert_features.cli.app(['download', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'requests', 'tensorflow', 'pyarrow', 'h5py'}\n"
        "sys.exit(sorted(heavy & sys.modules.keys()) or None)"
    )
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "--verify" in result.stdout


def test_a_name_works_wherever_a_checkpoint_is_asked_for(server, caplog, tmp_path):
    """Downloaded at the first use; the second needs no server."""
    folder = write_directory(tmp_path / "toy", TOY, TOY_VOCAB, random_weights(TOY), kind="tf1")
    server.files[PATH] = zipped(read(folder).items())
    caplog.set_level("INFO", logger="bert_features")
    assert find_checkpoint("bert-tiny").config == TOY
    told = [record.getMessage() for record in caplog.records]
    assert any("uncased_L-2_H-128_A-2 is not in the cache; downloading it" in t for t in told)
    server.files.clear()
    result = CliRunner().invoke(app, ["inspect", "bert-tiny"])
    assert result.exit_code == 0, result.output
    assert "uncased" in result.stdout


def test_a_name_that_cannot_be_downloaded_is_one_line(server):
    server.files.clear()
    result = CliRunner().invoke(app, ["inspect", "bert-tiny"])
    assert result.exit_code == 1
    (line,) = [t for t in result.stderr.splitlines() if t.startswith("bert-features:")]
    assert "404" in line

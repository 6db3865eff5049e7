"""Runs into a folder of an object store, by a real S3 server: whole, ended, gone on with, read."""

import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from bert_features import extract, read_features
from bert_features.corpus.job import repair
from bert_features.corpus.status import read_status
from bert_features.errors import ConfigError, OutputError
from bert_features.files import open_store
from tests.cli.command_line import run as run_command
from tests.corpus.runs import EXAMPLES, extract_until, shards_of
from tests.markers import of_release
from tests.s3_server import BREAK, BUSY, DENIED


@pytest.fixture(autouse=True)
def _temporary_files(tmp_path, monkeypatch):
    """A folder of temporary files, in which nothing is left."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert list(folder.iterdir()) == []


def content_of(address):
    """The content of each file in a folder, by name."""
    store = open_store(address)
    names = sorted(name for name in store.names() if name.startswith("part-"))
    return dict(zip(names, store.read_all(names), strict=True))


def local_content(config, texts, tmp_path):
    """The same of a local run."""
    extract(config, texts, f"{tmp_path}/computed/")
    return shards_of(tmp_path / "computed")


@pytest.mark.slow
@pytest.mark.parametrize("format", ["jsonl"])  # it has sidecars; other tests write Parquet
def test_a_folder_on_s3_has_the_bytes_of_a_local_one(config, texts, tmp_path, s3, format):
    address = f"{s3.bucket}/run/"
    summary = extract(config(format=format), texts, address)
    assert (summary.counts.examples, summary.output) == (EXAMPLES, address.rstrip("/"))
    assert content_of(address) == local_content(config(format=format), texts, tmp_path)
    names = open_store(address).names()
    assert {name for name in names if not name.startswith("part-")} == {"_manifest.json"}
    local = read_features(tmp_path / "computed")
    with read_features(address, verify=True) as there:
        assert there.path == address.rstrip("/")
        for record, expected in zip(there, local, strict=True):
            np.testing.assert_equal(record.features, expected.features)
        assert there[13].tokens == local[13].tokens
        assert there.ids.tolist() == local.ids.tolist()
        assert there.bytes == local.bytes
    status = read_status(address)
    assert status.is_whole
    assert (status.finished_shards, status.missing, status.holders) == (4, (), ())
    s3.requests.clear()
    assert extract(config(format=format), texts, address).before.examples == EXAMPLES
    assert not any("part-" in path for method, path in s3.requests if method == "PUT")
    extract(config(format=format, layers=(-1,)), texts, address, overwrite=True)
    assert len(read_features(address).features) == 1


def test_a_folder_on_google_cloud_storage(config, texts, tmp_path, gs):
    address = f"{gs}/run/"
    extract_until(13, config(), texts, address)
    assert extract(config(), texts, address).before.examples == 12
    assert content_of(address) == local_content(config(), texts, tmp_path)
    assert [r.unique_id for r in read_features(address, verify=True)] == list(range(EXAMPLES))
    assert read_status(address).is_whole
    extract(config(layers=(-1,)), texts, address, overwrite=True)
    assert len(read_features(address).features) == 1


def test_an_open_folder_keeps_copies_of_a_few_shards(config, texts, s3):
    extract(config(shard_examples=2), texts, f"{s3.bucket}/run/")
    temporary = Path(tempfile.gettempdir())
    folder = read_features(f"{s3.bucket}/run/_manifest.json")
    assert [record.unique_id for record in folder] == list(range(EXAMPLES))
    assert 0 < len(list(temporary.glob("*/part-*"))) <= 4
    folder.close()
    assert list(temporary.iterdir()) == []


def test_a_damaged_copy_is_named_by_its_address(config, texts, s3):
    address = f"{s3.bucket}/run"
    extract(config(), texts, f"{address}/")
    store = open_store(address)
    name = "part-00001-of-00004.parquet"
    whole = store.read(name)
    s3.filesystem.pipe_file(f"{address}/{name}", bytes([whole[0] ^ 1]) + whole[1:])
    with (
        read_features(address) as folder,
        pytest.raises(OutputError, match=rf"^cannot read {address}/{name}: its bytes have the CRC"),
    ):
        folder[7]
    done = run_command("check", address)
    assert (done.exit_code, f"{address}/{name}: its bytes" in done.stderr) == (1, True)
    assert repair(address) == (f"{address}/{name}",)
    assert store.read(name) == whole
    store.remove(name)
    assert read_status(address).missing == (f"{address}/{name}",)
    done = run_command("status", address)
    assert (done.exit_code, name in done.stdout) == (1, True)
    done = run_command("check", address, "--repair")
    assert done.exit_code == 0, done.stderr
    assert f"{address}: ok, 20 examples in 4 files" in done.stdout
    assert store.read(name) == whole


@pytest.mark.slow
@pytest.mark.parametrize("failure", [of_release(BREAK), of_release(BUSY), DENIED])
def test_a_run_ends_when_a_shard_cannot_be_uploaded_and_can_go_on(
    config, texts, tmp_path, s3, failure
):
    address = f"{s3.bucket}/run/"
    s3.fail = lambda method, path: failure if method == "PUT" and "part-00002" in path else None
    with pytest.raises(OutputError, match=r"^cannot write s3://.*/part-00002-of-00004\.parquet: "):
        extract(config(), texts, address)
    s3.reset()
    status = read_status(address)
    assert (status.state, status.finished_shards, status.missing) == ("unfinished", 2, ())
    assert len(content_of(address)) == 2
    with pytest.raises(OutputError, match="its run is not finished: 2 of 4 shards are done"):
        read_features(address)
    assert extract(config(), texts, address).before.examples == 12
    assert content_of(address) == local_content(config(), texts, tmp_path)


@pytest.mark.slow
def test_repair_computes_nothing_while_the_server_does_not_answer(config, texts, s3):
    extract(config(), texts, f"{s3.bucket}/run/")
    s3.requests.clear()
    s3.fail = lambda method, path: BUSY if method == "GET" and "part-00001" in path else None
    with pytest.raises(OutputError, match=r"^cannot read s3://.*part-00001.*reduce your rate"):
        repair(f"{s3.bucket}/run")
    assert "PUT" not in {method for method, path in s3.requests}


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("s3://absent/run/", "there is no bucket absent"),
        ("{bucket}/other/", r"holds other files \(notes.txt\)"),
        ("{bucket}/other/notes.txt/", "it is a file"),
    ],
)
def test_what_is_no_folder_for_a_run(config, texts, s3, output, message):
    s3.filesystem.pipe_file(f"{s3.bucket}/other/notes.txt", b"precious")
    with pytest.raises(OutputError, match=message):
        extract(config(checkpoint="nowhere"), texts, output.format(bucket=s3.bucket))


def test_inputs_and_output_on_s3(config, texts, s3):
    for name in "ab":
        s3.filesystem.pipe_file(f"{s3.bucket}/in/{name}.txt", texts.read_bytes())
    extract(config(), f"{s3.bucket}/in/*.txt", f"{s3.bucket}/run/")
    assert len(read_features(f"{s3.bucket}/run/")) == 2 * EXAMPLES
    s3.filesystem.pipe_file(f"{s3.bucket}/in/b.txt", b"a\n")
    assert read_status(f"{s3.bucket}/run").changed_inputs == (f"{s3.bucket}/in/b.txt",)


@pytest.mark.slow
@pytest.mark.parametrize("begun", [0, 7])
def test_two_runs_at_once_write_what_one_writes(config, texts, tmp_path, s3, begun):
    """The second begins and ends while the first has computed some examples."""
    address, ran = f"{s3.bucket}/run/", []

    def run_again(counts, total):
        if counts.examples > begun and not ran:
            ran.append(extract(config(), texts, address))

    extract(config(), texts, address, progress=run_again)
    assert ran
    assert content_of(address) == local_content(config(), texts, tmp_path)
    assert read_status(address).is_whole
    assert open_store(address).names() == {"_manifest.json", *content_of(address)}


def test_two_runs_that_begin_at_once_write_what_one_writes(config, texts, tmp_path, s3):
    """Each finds the folder empty, plans its shards and computes them all."""
    address, together = f"{s3.bucket}/run/", threading.Barrier(2, timeout=60)
    begin = iter([together.wait] * 2)

    def wait(method, path):
        """Neither writes its manifest before both have planned."""
        if method == "PUT" and path.endswith("_manifest.json"):
            next(begin, lambda: None)()

    s3.fail = wait
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(extract, config(), texts, address) for _ in range(2)]
        assert [run.result().counts.examples for run in runs] == [EXAMPLES] * 2
    s3.reset()
    assert content_of(address) == local_content(config(), texts, tmp_path)
    assert read_status(address).is_whole
    assert open_store(address).names() == {"_manifest.json", *content_of(address)}


def test_another_run_that_began_meanwhile_is_refused(config, texts, s3):
    address, ran = f"{s3.bucket}/run/", []

    def run_another(method, path):
        """Runs once the first run has seen that no other run has begun."""
        if path.endswith("_manifest.json") and not ran:
            ran.append(address)
            extract(config(layers=(-1,)), texts, address)

    s3.seen = run_another
    with pytest.raises(ConfigError, match=r"was begun by a run with layers \[-1\], now \[-1, -2"):
        extract(config(), texts, address)
    with read_features(address, verify=True) as folder:
        assert (len(folder), len(folder.features)) == (EXAMPLES, 1)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_requests_for_each_shard(config, texts, s3, format):
    """The figures of docs/corpora.md."""

    def count(act):
        """The requests of an act on a folder of 2 shards, and those for each other shard."""
        few, many = (_requests(s3, act, shards) for shards in (2, 5))
        more = {method: (many[method] - few[method]) / 3 for method in many}
        return {method: each for method, each in more.items() if each}

    def write(shards):
        settings = config(shard_examples=EXAMPLES // shards, format=format)
        extract(settings, texts, f"{s3.bucket}/{shards}/")

    def read(shards):
        with read_features(f"{s3.bucket}/{shards}/") as folder:
            list(folder)

    files = 1 if format == "parquet" else 2
    assert count(write) == {"PUT": files + 1, "HEAD": files}
    assert count(read) == {"GET": files, "HEAD": files}
    assert count(lambda shards: read_status(f"{s3.bucket}/{shards}")) == {}  # but for the listing


def _requests(s3, act, shards):
    s3.requests.clear()
    act(shards)
    return Counter(method for method, _ in s3.requests)

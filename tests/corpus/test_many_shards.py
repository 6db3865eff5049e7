"""Folders of five thousand shards: no step takes time for each pair of shards."""

import time

import pytest

from bert_features import extract
from bert_features.corpus import run
from bert_features.corpus.status import read_status
from bert_features.extraction.counts import Counts
from bert_features.files import store
from bert_features.formats.manifest import FinishedEntry, Manifest
from tests.corpus.runs import extract_until

SHARDS = 5000
# What takes a microsecond for each pair of shards takes 25 s.
LIMIT_SECONDS = 8.0  # of CPU, whatever else runs on the machine


class QuickWriter:
    """Writes shards of five bytes instead of features."""

    device = "none, none, none"
    processor = "none"

    def __init__(self, manifest):
        self._manifest = manifest

    @classmethod
    def load(cls, job, checkpoint=None):
        return cls(job.manifest)

    def write(self, shard, progress):
        self._manifest.path(shard).write_bytes(b"12345")
        progress(Counts(1, 3))
        counts = {"examples": self._manifest.shards[shard].records, "tokens": 3}
        return FinishedEntry(
            bytes=5, crc32c="0" * 8, sidecar_crc32c=None, seconds=0.5, counts=counts
        )


class Clock:
    """Asserts that a block takes less CPU time than the limit."""

    def __enter__(self):
        self._started = time.process_time()

    def __exit__(self, *exception):
        if exception[0] is None:
            assert time.process_time() - self._started < LIMIT_SECONDS


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(run, "ShardWriter", QuickWriter)
    # A file system takes its time to bring each record to the disk.
    monkeypatch.setattr(store, "write_whole", lambda path, text: path.write_text(text))


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_run_of_many_shards(config, tmp_path):
    inputs, out = [tmp_path / "a.txt", tmp_path / "b.txt"], tmp_path / "out"
    for path in inputs:
        path.write_text("a b\n" * (SHARDS // 2))
    settings = config(shard_examples=1)
    with Clock():
        extract_until(SHARDS // 2 + 1, settings, inputs, f"{out}/")
    with Clock():
        status = read_status(out)
    assert (status.state, status.finished_shards) == ("stopped", SHARDS // 2)
    with Clock():
        extract(settings, inputs, out, progress=lambda counts, total: None)
    with Clock():
        assert read_status(out).is_whole
    manifest = Manifest.read(out)
    for shard in (0, SHARDS - 1):
        manifest.path(shard).unlink()
    with Clock():
        assert extract(settings, inputs, out).before.examples == SHARDS - 2

"""Folders of five thousand shards: no step takes time for each pair of shards."""

import time

import pytest

from bert_features import extract
from bert_features.corpus import run
from bert_features.corpus.status import read_status
from bert_features.extraction.counts import Counts
from bert_features.files import store
from bert_features.formats.manifest import Manifest
from tests.corpus.quick import QuickWriter
from tests.corpus.runs import extract_until
from tests.formats.feature_folders import describe_shard

SHARDS = 5000
# What takes a microsecond for each pair of shards takes 25 s.
LIMIT_SECONDS = 8.0  # of CPU, whatever else runs on the machine


class TinyWriter(QuickWriter):
    """Writes shards of five bytes instead of features."""

    def write(self, shard, progress):
        self._job.manifest.path(shard).write_bytes(b"12345")
        progress(Counts(1, 3))
        return describe_shard(self._job.manifest, shard)


class Clock:
    """Asserts that a block takes less CPU time than the limit."""

    def __enter__(self):
        self._started = time.process_time()

    def __exit__(self, *exception):
        if exception[0] is None:
            assert time.process_time() - self._started < LIMIT_SECONDS


@pytest.mark.slow
@pytest.mark.release
def test_a_run_of_many_shards(config, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "ShardWriter", TinyWriter)
    # A file system takes its time to bring each record to the disk.
    monkeypatch.setattr(store, "write_whole", lambda path, text: path.write_text(text))
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

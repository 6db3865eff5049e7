"""The actor of a run on Ray, without Ray: what it refuses before it loads a model."""

import logging
from dataclasses import replace

import pytest

from bert_features import extract
from bert_features.corpus.executor import Finished, Job, Log, Ready
from bert_features.corpus.ray_actors import ShardActor
from bert_features.errors import DeviceError, InputError, OutputError
from bert_features.formats.manifest import Manifest
from bert_features.machine.hardware import describe_processor
from tests.corpus.test_job import shards_of


@pytest.fixture(autouse=True)
def _logger_as_it_was():
    logger = logging.getLogger("bert_features")
    level, handlers = logger.level, list(logger.handlers)
    yield
    logger.propagate = True
    logger.setLevel(level)
    logger.handlers[:] = handlers


@pytest.fixture
def job(config, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    extract(config(), texts, f"{tmp_path}/out/")
    (tmp_path / "out" / ".lock").touch()  # as a run has it
    settings = config(format="parquet")
    return Job(settings, Manifest.read(tmp_path / "out"))


def refusal(job):
    *_, error = ShardActor(job, ".", None).load()
    assert isinstance(error, Exception)
    return error


def test_it_computes_a_shard_and_reports_what_it_did(job, tmp_path):
    before = shards_of(tmp_path / "out")
    actor = ShardActor(job, ".", None)
    log, ready = actor.load()
    assert isinstance(log, Log)
    assert log.text.startswith("running on 1 CPU")
    assert ready == Ready("tensorflow, cpu, float32", describe_processor("cpu"))
    *_, finished = actor.write(1)
    assert isinstance(finished, Finished)
    assert finished.entry.counts["examples"] == 6
    assert actor.take_news() == []  # what was reported meanwhile came with it
    assert shards_of(tmp_path / "out") == before


def test_a_stopped_actor_leaves_nothing_half_written(job, tmp_path):
    before = shards_of(tmp_path / "out")
    actor = ShardActor(job, ".", None)
    actor.load()
    actor.stop()
    assert actor.write(0) == []
    assert shards_of(tmp_path / "out") == before
    assert not list((tmp_path / "out").glob(".part*"))


def test_other_versions_are_named(job):
    versions = {**job.manifest.run["versions"], "keras": "3.1"}
    other = replace(job.manifest, run={**job.manifest.run, "versions": versions})
    error = refusal(replace(job, manifest=other))
    assert isinstance(error, DeviceError)
    assert "differs from the machine of the run: versions.keras '3.1', now" in str(error)


def test_another_checkpoint_of_the_same_name_is_named(job):
    checkpoint = {**job.manifest.run["checkpoint"], "sha256": "0" * 64}
    other = replace(job.manifest, run={**job.manifest.run, "checkpoint": checkpoint})
    assert "checkpoint.sha256" in str(refusal(replace(job, manifest=other)))


def test_a_node_that_does_not_see_the_folder_is_refused(job, tmp_path):
    elsewhere = replace(job.manifest, folder=tmp_path / "not-mounted")
    error = refusal(replace(job, manifest=elsewhere))
    assert isinstance(error, OutputError)
    assert "does not see" in str(error)


def test_a_bad_shard_is_an_answer_and_no_exception(job):
    entry = replace_first_crc(job.manifest)
    actor = ShardActor(replace(job, manifest=entry), ".", None)
    actor.load()
    *_, error = actor.write(0)
    assert isinstance(error, InputError)
    assert "has changed since this run began" in str(error)


def replace_first_crc(manifest):
    first, *others = manifest.shards
    changed = first.model_copy(update={"crc32c": "00000000"})
    return replace(manifest, shards=(changed, *others))

"""The actor of a run on Ray, without Ray: the nodes and the shards that it refuses."""

import re
from dataclasses import replace

import pytest

from bert_features import extract
from bert_features.corpus.ray_actors import ShardActor
from bert_features.corpus.shards import ShardJob
from bert_features.errors import DeviceError, InputError, OutputError
from bert_features.formats.manifest import Manifest

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def job(config, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    extract(config(), texts, f"{tmp_path}/out/")
    (tmp_path / "out" / ".lock").touch()  # as a run has it
    return ShardJob(config(format="parquet"), Manifest.read(tmp_path / "out"))


def with_fact(manifest, name, **facts):
    changed = getattr(manifest.recipe, name) | facts
    return replace(manifest, recipe=replace(manifest.recipe, **{name: changed}))


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (
            lambda manifest: with_fact(manifest, "versions", keras="3.1"),
            DeviceError,
            r"differs from the machine of the run: versions\.keras '3\.1', now",
        ),
        (
            lambda manifest: with_fact(manifest, "checkpoint", sha256="0" * 64),
            DeviceError,
            r"checkpoint\.sha256",
        ),
        (
            lambda manifest: replace(manifest, folder=manifest.folder / "not-mounted"),
            OutputError,
            "does not see",
        ),
    ],
    ids=["versions", "checkpoint", "folder"],
)
def test_a_node_that_would_write_other_bytes_is_refused(job, change, kind, message):
    *_, error = ShardActor(replace(job, manifest=change(job.manifest)), ".", None).load()
    assert isinstance(error, kind)
    assert re.search(message, str(error))


def test_a_bad_shard_is_an_answer_and_no_exception(job):
    first, *others = job.manifest.shards
    changed = first.model_copy(update={"crc32c": "00000000"})
    manifest = replace(job.manifest, shards=(changed, *others))
    actor = ShardActor(replace(job, manifest=manifest), ".", None)
    actor.load()
    *_, error = actor.write(0, job.manifest.recipe)
    assert isinstance(error, InputError)
    assert "has changed since this run began" in str(error)

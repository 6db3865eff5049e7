"""The actor of a run on Ray, without Ray: the nodes and the shards that it refuses."""

import pickle
import re
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from bert_features import extract
from bert_features.corpus.folder import MARK, holding
from bert_features.corpus.ray_actors import ShardActor, _name_node
from bert_features.corpus.shards import ShardJob
from bert_features.errors import (
    CheckpointError,
    DeviceError,
    InputError,
    MissingExtraError,
    OutputError,
)
from bert_features.formats.manifest import Manifest

NODE = re.escape(socket.gethostname())

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def job(config, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    extract(config(), texts, f"{tmp_path}/out/")
    with holding(tmp_path / "out"):
        yield ShardJob(config(format="parquet"), Manifest.read(tmp_path / "out"))


def actor_of(job):
    return ShardActor(job, ".", None, MARK)


def with_fact(manifest, name, **facts):
    changed = getattr(manifest.recipe, name) | facts
    return replace(manifest, recipe=replace(manifest.recipe, **{name: changed}))


def test_a_node_that_would_write_other_bytes_is_refused(job):
    manifest = job.manifest
    for other, kind, part in (
        (with_fact(manifest, "versions", keras="3.1"), DeviceError, r"versions\.keras"),
        (with_fact(manifest, "checkpoint", sha256="0" * 64), DeviceError, r"checkpoint\.sha256"),
        (replace(manifest, folder=manifest.folder / "not-mounted"), OutputError, "not-mounted"),
    ):
        *_, error = actor_of(replace(job, manifest=other)).load()
        assert isinstance(error, kind)
        assert re.fullmatch(rf"Ray node {NODE}: .*{part}.*", str(error))


def test_a_bad_shard_is_an_answer_and_no_exception(job):
    first, *others = job.manifest.shards
    changed = first.model_copy(update={"crc32c": "00000000"})
    manifest = replace(job.manifest, shards=(changed, *others))
    actor = actor_of(replace(job, manifest=manifest))
    actor.load()
    *_, error = actor.write(0, job.manifest.recipe)
    assert isinstance(error, InputError)
    assert re.match(rf"Ray node {NODE}: .*in\.txt has changed since this run began", str(error))
    assert "overwrite" not in str(error)  # on other nodes the input may be what it was


def test_a_folder_that_another_run_left_at_the_path_is_refused(job):
    """As another disk has it: with files that are named as those of this run."""
    holder = job.manifest.folder / ".running"
    assert (job.manifest.folder / ".lock").exists()
    holder.write_text(holder.read_text().replace(MARK, "0" * len(MARK)))
    *_, error = actor_of(job).load()
    assert "out is not the folder that this run writes" in str(error)


def test_what_a_node_lacks_is_named_with_the_node(job):
    config = job.config.model_copy(update={"checkpoint": "/not/there"})
    *_, error = actor_of(replace(job, config=config)).load()
    assert isinstance(error, CheckpointError)
    assert re.match(rf"Ray node {NODE}: there is no checkpoint '/not/there'", str(error))
    actor = actor_of(job)
    actor.load()
    Path(job.manifest.inputs[0].path).unlink()
    *_, error = actor.write(0, job.manifest.recipe)
    assert re.fullmatch(rf"Ray node {NODE}: cannot read .*in\.txt: No such file.*", str(error))
    missing = pickle.loads(pickle.dumps(_name_node(MissingExtraError("JAX", "jax"))))
    assert re.match(rf"Ray node {NODE}: JAX is not installed. Install it with: ", str(missing))

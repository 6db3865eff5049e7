"""Hosts that share one folder: the bytes of one host, whoever comes, goes or comes back."""

import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from bert_features import extract, read_features
from bert_features.config.shards import Shard
from bert_features.corpus import run as run_module
from bert_features.corpus.folder import holding
from bert_features.corpus.job import repair
from bert_features.corpus.status import read_status
from bert_features.errors import ConfigError, OutputError
from bert_features.files import open_store
from bert_features.formats.manifest import Manifest
from tests.cli.command_line import run as run_command
from tests.corpus.runs import EXAMPLES, begin, extract_until, shards_in, shards_of, wait_until
from tests.markers import of_release

HOSTS = ["2/3", "0/3", "1/3"]


def content_of(folder):
    """The content of each file of a folder by name, hidden ones included."""
    store = open_store(folder)
    names = sorted(store.names())
    return dict(zip(names, store.read_all(names), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("place", ["local", "s3", "gs"])
def test_hosts_one_after_the_other_write_the_folder_of_one(config, texts, tmp_path, place, request):
    extract(config(), texts, f"{tmp_path}/one/")
    out = tmp_path / "out"
    if place != "local":
        store = request.getfixturevalue(place)
        out = f"{getattr(store, 'bucket', store)}/run"
    for number, host in enumerate(HOSTS):
        summary = extract(config(shard=host), texts, f"{out}/")
        done = HOSTS[: number + 1]
        assert [not left for left in summary.left] == [f"{i}/3" in done for i in range(3)]
        assert read_status(out).left == summary.left
        assert read_status(out).is_whole == (number == 2)
    assert summary.counts.examples == EXAMPLES
    found, wanted = content_of(out), content_of(tmp_path / "one")
    assert found.keys() == wanted.keys()  # no file of a host is left
    for name in found.keys() - {"_manifest.json"}:
        assert found[name] == wanted[name], name
    assert [record.unique_id for record in read_features(out, verify=True)] == [*range(EXAMPLES)]
    assert extract(config(shard="0/3"), texts, f"{out}/").before.examples == EXAMPLES
    assert content_of(out) == found


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(of_release(seed) for seed in range(1, 20))])
def test_hosts_at_once_of_which_one_is_killed(toy, many, whole, tmp_path, seed):
    choose, out = random.Random(seed), tmp_path / "out"
    hosts = [begin(toy, many, out, "--shard", f"{i}/4") for i in range(4)]
    killed = choose.randrange(4)
    wait_until(lambda: (out.is_dir() and shards_in(out) >= choose.randrange(1, 4)) or _any(hosts))
    hosts[killed].kill()
    for host in hosts:
        host.communicate()
    again = begin(toy, many, out, "--shard", f"{killed}/4")
    _, errors = again.communicate()
    assert again.returncode == 0, errors
    assert [host.returncode for i, host in enumerate(hosts) if i != killed] == [0] * 3
    assert shards_of(out) == whole
    assert {path.name for path in out.iterdir()} == {"_manifest.json", *whole}


def _any(hosts):
    return any(host.poll() is not None for host in hosts)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["s3", "gs"])
def test_hosts_at_once_in_a_store(config, texts, tmp_path, place, request):
    extract(config(), texts, f"{tmp_path}/one/")
    store = request.getfixturevalue(place)
    out = f"{getattr(store, 'bucket', store)}/run"
    with ThreadPoolExecutor(5) as pool:  # one number twice: its shards are computed twice
        shares = ["0/4", "1/4", "2/4", "3/4", "3/4"]
        list(pool.map(lambda host: extract(config(shard=host), texts, f"{out}/"), shares))
    found = content_of(out)
    assert read_status(out).is_whole
    assert {n: c for n, c in found.items() if n.startswith("part-")} == shards_of(tmp_path / "one")


def test_a_lost_share_is_computed_by_a_run_of_the_whole(config, texts, tmp_path):
    extract(config(), texts, f"{tmp_path}/one/")
    extract(config(shard="0/2"), texts, f"{tmp_path}/out/")
    extract_until(4, config(shard="1/2"), texts, f"{tmp_path}/out/")
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    assert extract(config(), texts, f"{tmp_path}/out/").before.examples == 12
    assert len(repair(tmp_path / "copy")) == 2
    for folder in ("out", "copy"):
        assert shards_of(tmp_path / folder) == shards_of(tmp_path / "one")


def content_of_tree(folder):
    files = (path for path in folder.rglob("*") if path.is_file() and ".lock" not in path.name)
    return {path: path.read_bytes() for path in files}


def test_a_run_of_one_host_is_not_shared_out_later(config, texts, tmp_path):
    extract_until(4, config(), texts, f"{tmp_path}/out/")
    with pytest.raises(ConfigError, match="was begun without shard; pass no shard to compute"):
        extract(config(shard="0/2"), texts, f"{tmp_path}/out/")


def test_a_host_with_other_inputs_or_settings_ends_with_status_2(config, texts, tmp_path, toy):
    other = tmp_path / "other.txt"
    other.write_text(texts.read_text())
    command = ["extract", "-o", f"{tmp_path}/out/", "--checkpoint", toy, "--uncased"]
    command += ["--max-seq-length=8", "--batch-size=4", "--shard-examples=6", "--layers=-2"]
    first = run_command(*command, str(texts), "--shard=0/2")
    assert first.exit_code == 0, first.stderr
    assert "the shares 1/2 (2 shards)" in first.stdout
    status = run_command("status", f"{tmp_path}/out/")
    assert (status.exit_code, "not finished: 1/2 (2 shards)" in status.stdout) == (1, True)
    before = content_of_tree(tmp_path / "out")
    for line, message in [
        ((texts, other, "--shard=1/2"), "now added: "),
        ((texts, "--shard=1/2", "--layers=-1"), "was begun by a run with layers"),
        ((texts, "--shard=0/3"), "shard is 0/3"),
        ((texts, "--shard=1/3"), "shard is 1/3"),
    ]:
        done = run_command(*command, *map(str, line))
        assert (done.exit_code, message in done.stderr) == (2, True), done.stderr
    assert content_of_tree(tmp_path / "out") == before


@pytest.mark.parametrize("same", [True, False])
def test_a_plan_that_another_host_has_made_meanwhile(config, texts, tmp_path, monkeypatch, same):
    """The first one counts: a host with the same plan goes on with it, another is refused."""
    make_plan, other = run_module.make_plan, tmp_path / "other.txt"
    other.write_text("a b\n" * 7)

    def late(*arguments):
        monkeypatch.setattr(run_module, "make_plan", make_plan)
        plan = make_plan(*arguments)
        extract(config(shard="0/2"), texts if same else other, f"{tmp_path}/out/")
        return plan

    monkeypatch.setattr(run_module, "make_plan", late)
    if same:
        extract(config(shard="1/2"), texts, f"{tmp_path}/out/")
        extract(config(), texts, f"{tmp_path}/one/")
        assert shards_of(tmp_path / "out") == shards_of(tmp_path / "one")
    else:
        with pytest.raises(ConfigError, match=r"holds the features of .*other.txt, not of"):
            extract(config(shard="1/2"), texts, f"{tmp_path}/out/")
        assert [entry.path for entry in Manifest.read(tmp_path / "out").inputs] == [str(other)]


def test_one_host_of_a_number_at_a_time_and_none_beside_a_run_of_the_whole(config, texts, tmp_path):
    out = tmp_path / "out"
    with holding(out, share=Shard(1, 2)):
        for shard in ("1/2", None):
            with pytest.raises(OutputError, match=r"another run is writing .* share 1/2\); wait"):
                extract(config(shard=shard), texts, f"{out}/")
        extract(config(shard="0/2"), texts, f"{out}/")
        (holder,) = read_status(out).holders
        assert holder.share == "1/2"
    with holding(out), pytest.raises(OutputError, match="another run is writing"):
        extract(config(shard="1/2"), texts, f"{out}/")
    extract(config(shard="1/2"), texts, f"{out}/")
    assert read_status(out).is_whole


def test_more_hosts_than_shards(config, texts, tmp_path, caplog):
    caplog.set_level("INFO", "bert_features")
    summary = extract(config(shard="5/6"), texts, f"{tmp_path}/out/")  # it comes first
    assert (summary.counts.examples, summary.left) == (0, (1, 1, 1, 1, 0, 0))
    assert "the share 5/6 of " in caplog.text
    for host in range(5):
        extract(config(shard=f"{host}/6"), texts, f"{tmp_path}/out/")
    assert read_status(tmp_path / "out").is_whole


def test_a_lost_shard_of_a_finished_folder_has_the_record_of_its_new_bytes(config, texts, tmp_path):
    """Another processor may have computed the bytes that are gone."""
    out = tmp_path / "out"
    for host in ("0/2", "1/2"):
        extract(config(shard=host), texts, f"{out}/")
    manifest = Manifest.read(out)
    old = manifest.finished[1].model_copy(update={"crc32c": "00000000"})
    replace(manifest, finished=(manifest.finished[0], old, *manifest.finished[2:])).write()
    manifest.path(1).unlink()
    extract(config(shard="1/2"), texts, f"{out}/")
    found, wanted = Manifest.read(out).finished, manifest.finished
    assert [entry.crc32c for entry in found] == [entry.crc32c for entry in wanted]
    assert len(read_features(out, verify=True)) == EXAMPLES


def test_a_host_that_starts_again_while_the_others_end_computes_nothing(
    config, texts, tmp_path, monkeypatch
):
    out, check = tmp_path / "out", run_module.resuming.check_unchanged_inputs
    extract(config(shard="1/2"), texts, f"{out}/")

    def late(*arguments):
        monkeypatch.setattr(run_module.resuming, "check_unchanged_inputs", check)
        extract(config(shard="0/2"), texts, f"{out}/")
        monkeypatch.setattr(run_module.ShardWriter, "load", None)
        check(*arguments)

    monkeypatch.setattr(run_module.resuming, "check_unchanged_inputs", late)
    summary = extract(config(shard="1/2"), texts, f"{out}/")
    assert (summary.before.examples, summary.counts.examples) == (EXAMPLES, EXAMPLES)


def test_a_refused_run_leaves_no_lock_in_the_folder_at_its_end(config, texts, tmp_path):
    out = tmp_path / "out"
    extract(config(shard="0/2"), texts, f"{out}/")
    with holding(out, share=Shard(1, 2)), pytest.raises(OutputError, match="another run"):
        extract(config(), texts, f"{out}/")
    extract(config(shard="1/2"), texts, f"{out}/")
    assert not list(out.glob(".*"))


def test_a_store_that_knows_no_conditions_is_written(config, texts, tmp_path, monkeypatch):
    from fsspec.implementations.memory import MemoryFileSystem

    write = MemoryFileSystem.pipe_file

    def pipe_file(self, path, value, mode="overwrite", **more):
        if mode == "create":
            raise NotImplementedError("a header implies functionality that is not implemented")
        write(self, path, value, **more)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", pipe_file)
    extract(config(), texts, "memory://bucket/unconditional/")
    assert read_status("memory://bucket/unconditional").is_whole


def test_auto_is_the_place_among_the_hosts(config, texts, tmp_path, monkeypatch):
    monkeypatch.setenv("TPU_WORKER_HOSTNAMES", "a,b")
    for worker in ("1", "0"):
        monkeypatch.setenv("TPU_WORKER_ID", worker)
        extract(config(shard="auto"), texts, f"{tmp_path}/out/")
        extract(config(shard="auto"), texts, tmp_path / "out.npz")
        file = read_features(tmp_path / f"out-0000{worker}-of-00002.npz")
        assert file.recipe.settings["shard"] == f"{worker}/2"
    assert read_status(tmp_path / "out").is_whole
    monkeypatch.setenv("TPU_WORKER_ID", "2")
    with pytest.raises(ConfigError, match="TPU_WORKER_ID"):
        extract(config(shard="auto"), texts, f"{tmp_path}/other/")


def test_shares_in_files_are_read_as_one_if_each_is_there_once(config, texts, tmp_path, caplog):
    for shard in ("0/2", "1/2", "0/3"):
        extract(config(shard=shard), texts, tmp_path / "out.npz")
    first, second, foreign = (
        tmp_path / f"out-0000{i}-of-0000{n}.npz" for i, n in ((0, 2), (1, 2), (0, 3))
    )
    assert len(read_features([first, second])) == EXAMPLES
    assert "missing" not in caplog.text
    for files in ([first, first], [first, second, foreign]):
        with pytest.raises(OutputError, match="pass the file of each share of one run once"):
            read_features(files)
    read_features([second])
    assert "1 of the 2 shares of the run are missing" in caplog.text


@pytest.mark.parametrize("variables", [{"TPU_WORKER_ID": ""}, {"JAX_PROCESS_ID": "1"}])
def test_a_wrong_number_of_a_host_refuses_only_a_run_of_a_share(
    config, texts, tmp_path, monkeypatch, variables
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    extract(config(), texts, tmp_path / "out.npz")
    for output in ("share.npz", "out/"):
        with pytest.raises(ConfigError, match=next(iter(variables))):
            extract(config(shard="auto"), texts, f"{tmp_path}/{output}")

"""Commands where all is missing that Linux alone has, as on a Mac."""

import os
import signal

import numpy as np
import pytest

from bert_features import read_features
from tests.cli.command_line import program
from tests.serving.test_run import Program

pytestmark = pytest.mark.slow

# Each process of Python imports it first, also one that another one starts.
NO_LINUX = """
import os, select, signal, sys, sysconfig, types

sysconfig.get_config_vars()  # a file of Python's own that is named after the system
# The standard library asks these two of a Mac's own modules.
sys.modules["_scproxy"] = types.SimpleNamespace(
    _get_proxy_settings=dict, _get_proxies=dict
)
sys.platform = "darwin"
for module, names in {
    os: "sched_getaffinity sched_setaffinity fdatasync posix_fadvise posix_fallocate pidfd_open "
    "memfd_create eventfd copy_file_range splice getrandom O_TMPFILE O_PATH O_DIRECT",
    select: "epoll",
    signal: "sigtimedwait sigwaitinfo",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)

def refuse(event, arguments):
    if event in ("open", "os.listdir", "os.scandir"):
        path = str(arguments[0])
        if path.startswith(("/proc", "/sys", "/dev/shm")):
            raise FileNotFoundError(2, "No such file or directory", path)
    if event == "os.fork" or event == "os.forkpty":
        raise NotImplementedError("forked")

sys.addaudithook(refuse)
"""


@pytest.fixture
def without_linux(tmp_path):
    """Environment variables."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(NO_LINUX)
    path = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(path)}


def finish(*arguments, env):
    process = program(*arguments, env=env)
    stdout, stderr = process.communicate(timeout=600)
    assert process.returncode == 0, stderr
    assert "warning" not in stderr
    return stdout


def test_the_main_job_a_folder_and_a_service(toy, text, out, without_linux):
    texts = ["is this jacksonville ?", "no it is not .", "the a b", "no"]
    text.write_text("\n".join(texts))
    options = ["--checkpoint", toy, "--layers=-1", "--level", "sequence", "--pooling", "mean"]
    options += ["--uncased", "--device", "cpu"]
    finish("extract", text, "-o", out / "here.npz", *options, env={})
    finish("extract", text, "-o", out / "there.npz", *options, env=without_linux)
    shards = ["--shard-examples", "1", "--processes", "2"]
    finish("extract", text, "-o", f"{out}/folder/", *shards, *options, env=without_linux)
    with Program(toy, "--replicas", "2", **without_linux) as service:
        answers = service.ask(texts).json()
        assert service.end(signal.SIGTERM)[0] == 0
    here = [record.features["features"] for record in read_features(out / "here.npz")]
    for name in ("there.npz", "folder"):
        there = [record.features["features"] for record in read_features(out / name)]
        np.testing.assert_allclose(there, here, rtol=0, atol=1e-6)
    answered = [result["features"]["mean"] for result in answers["results"]]
    np.testing.assert_allclose(answered, here, rtol=0, atol=1e-5)

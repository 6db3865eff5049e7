"""Why a TPU cannot be used, told before anything heavy is imported; on made-up machines."""

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bert_features.errors import ConfigError
from bert_features.machine import hardware, tpu_installation
from bert_features.machine.names import Device
from bert_features.machine.quiet_tensorflow import import_tensorflow
from tests.made_up_machine import GVNIC, V4, V5E, install, move_to

ROOT = Path(__file__).resolve().parents[2]
WORKS = {"tensorflow_tpu": "2.20.0", "libtpu": "0.0.30"}


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch):
    for name in (
        *("TPU_NAME", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_VISIBLE_CHIPS"),
        *("TPU_VISIBLE_DEVICES", "NEXT_PLUGGABLE_DEVICE_USE_C_API"),
        "TF_PLUGGABLE_DEVICE_LIBRARY_PATH",
    ):
        monkeypatch.delenv(name, raising=False)


def test_a_container_without_the_device_files(tmp_path, monkeypatch):
    move_to(monkeypatch, tmp_path, V4, V4, files=("dev/vfio/vfio",))
    problem = tpu_installation.device_problem()
    assert problem == (
        "the 2 v4 chip(s) of this machine have no device files here, /dev/accel* or /dev/vfio/*; a "
        "container needs --privileged"
    )


def test_files_that_this_user_may_not_open(tmp_path, monkeypatch):
    move_to(monkeypatch, tmp_path, V5E, files=("dev/vfio/0",))
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith("vfio/0"))
    problem = tpu_installation.device_problem()
    assert problem is not None
    assert re.fullmatch("this user may not open .*/dev/vfio/0; run as one who may.*", problem)


def test_a_process_that_holds_the_chips_is_named(tmp_path, monkeypatch):
    root = move_to(monkeypatch, tmp_path, V5E, files=("dev/vfio/0",))
    (root / "proc/4711/fd").mkdir(parents=True)
    (root / "proc/4711/comm").write_text("python3\n")
    (root / "proc/4711/fd/9").symlink_to(root / "dev/vfio/0")
    assert tpu_installation.device_problem() == (
        "process 4711 (python3) holds the 1 v5e chip(s) of this machine; wait for it, or end it: "
        "kill 4711"
    )
    monkeypatch.setenv("TPU_VISIBLE_CHIPS", "0")  # shared by choice
    assert tpu_installation.device_problem() is None


@pytest.mark.parametrize(
    ("wheels", "problem"),
    [
        (WORKS, None),
        ({"tensorflow_tpu": "2.20.0", "libtpu": "0.0.14"}, None),
        ({"tensorflow": "2.20.0", "libtpu": "0.0.51"},
         "tensorflow 2.20.0 has no TPU support, tensorflow-tpu has; bash scripts/setup_tpu.sh"),
        ({"tensorflow": "2.20.0", **WORKS},
         "tensorflow 2.20.0 was installed over tensorflow-tpu and replaced its files; bash"),
        # As on Colab, where Keras came before this package.
        ({"tensorflow": "2.20.0", "jax": "0.7.2", "libtpu": "0.0.21"},
         "tensorflow 2.20.0 has no TPU support, tensorflow-tpu has; JAX is here and may drive "),
        ({"tensorflow_tpu": "2.20.0"}, "libtpu is not installed; pip install 'libtpu>=0.0.14,<0."),
        ({"tensorflow_tpu": "2.20.0", "libtpu": "0.0.51"},
         "libtpu 0.0.51 is too new for tensorflow-tpu; pip install 'libtpu>=0.0.14,<0.0.31'"),
        ({"tensorflow_tpu": "2.20.0", "libtpu": "0.0.43.2"}, "libtpu 0.0.43.2 is too new"),
        ({"tensorflow_tpu": "2.20.0", "libtpu": "0.0.9"}, "libtpu 0.0.9 is too old"),
    ],
)  # fmt: skip
def test_wheels(monkeypatch, wheels, problem):
    install(monkeypatch, **wheels)
    told = tpu_installation.tensorflow_problem()
    assert told is None if problem is None else told is not None and told.startswith(problem)


def test_the_range_of_libtpu_is_the_one_that_is_installed():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extra = setup["options.extras_require"]["tpu"].split()
    assert f"libtpu{tpu_installation.LIBTPU_RANGE}" in extra


def test_tensorflow_has_a_version_under_both_names(monkeypatch):
    """What a run notes in its output; the TPU build is a distribution of another name."""
    install(monkeypatch, **WORKS)
    assert tpu_installation.tensorflow_version() == "2.20.0"
    install(monkeypatch, tensorflow="2.21.0")
    assert tpu_installation.tensorflow_version() == "2.21.0"


def test_an_import_that_would_abort_is_refused(monkeypatch):
    install(monkeypatch, tensorflow_tpu="2.20.0", libtpu="0.0.51")
    monkeypatch.delitem(sys.modules, "tensorflow")
    with pytest.raises(ConfigError, match=r"libtpu 0\.0\.51 is too new"):
        import_tensorflow()
    # Beside the plain build any libtpu may lie; `bert-features compile` wants a new one.
    install(monkeypatch, tensorflow="2.20.0", libtpu="0.0.51")
    tpu_installation.refuse_what_aborts()


@pytest.mark.parametrize(
    ("name", "endpoints", "wanted"),
    [
        (None, None, None),
        ("local", None, None),
        ("my-tpu", None, "my-tpu"),
        (None, "grpc://10.0.0.2:8470", "grpc://10.0.0.2:8470"),
    ],
)
def test_a_tpu_over_the_network(monkeypatch, name, endpoints, wanted):
    for key, value in (("TPU_NAME", name), ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", endpoints)):
        if value is not None:
            monkeypatch.setenv(key, value)
    assert tpu_installation.remote_tpu() == wanted


def test_pjrt_is_chosen_where_a_tpu_can_be_used(tmp_path, monkeypatch):
    library = tmp_path / "libtpu" / "libtpu.so"
    monkeypatch.setattr(tpu_installation, "_libtpu_path", lambda: library)
    # What is set below is to be taken back after the test.
    names = ("NEXT_PLUGGABLE_DEVICE_USE_C_API", "TF_PLUGGABLE_DEVICE_LIBRARY_PATH")
    for name in (*names, *tpu_installation._NO_METADATA_QUERIES):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)

    def chosen(device: Device = "auto") -> tuple[str | None, str | None]:
        tpu_installation.choose_pjrt(device)
        names = ("NEXT_PLUGGABLE_DEVICE_USE_C_API", "TF_PLUGGABLE_DEVICE_LIBRARY_PATH")
        return os.environ.get(names[0]), os.environ.get(names[1])

    install(monkeypatch, **WORKS)
    move_to(monkeypatch, tmp_path / "without", GVNIC)
    for device in ("cpu", "auto"):
        assert chosen(device) == (None, None)
        # libtpu is asked nothing, and asks nobody
        assert os.environ.pop("TPU_SKIP_MDS_QUERY") == "1"
    move_to(monkeypatch, tmp_path / "with", V5E, files=("dev/vfio/0",))
    install(monkeypatch, tensorflow="2.20.0", libtpu="0.0.51")
    assert chosen() == (None, None)
    install(monkeypatch, **WORKS)
    assert chosen("cpu") == (None, None)  # the TPU is left to whoever uses it
    assert "TPU_SKIP_MDS_QUERY" not in os.environ
    assert chosen() == ("true", str(library))
    monkeypatch.setenv("NEXT_PLUGGABLE_DEVICE_USE_C_API", "false")
    monkeypatch.delenv("TF_PLUGGABLE_DEVICE_LIBRARY_PATH")
    assert chosen() == ("false", None)


def test_it_imports_nothing_heavy():
    if hardware.tpu_chips():
        pytest.skip("there is a TPU here")
    program = """
        import sys
        from bert_features.machine import hardware, tpu_installation as t
        hardware.tpu_chips(), hardware.nvidia_gpus(), hardware.cores()
        problem = t.device_problem()
        t.choose_pjrt()
        t.refuse_what_aborts()
        print(problem)
        print({"tensorflow", "jax", "keras", "numpy", "libtpu"} & set(sys.modules))
    """
    result = subprocess.run(
        [sys.executable, "-c", "\n".join(line.strip() for line in program.splitlines())],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=600,
    )
    assert (result.stdout, result.stderr) == ("this machine has none\nset()\n", "")

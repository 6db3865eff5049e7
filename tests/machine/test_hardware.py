"""Accelerators and their holders, on made-up machines and in this one's own /proc."""

import os
import subprocess
import sys

import pytest

from bert_features.errors import ConfigError
from bert_features.machine import hardware
from tests.made_up_machine import GVNIC, H100, ITS_SOUND, NVME, V4, V5E, VIRTIO, move_to

X86 = "processor : 0\nvendor_id : A\nmodel name : B 7\nflags : fpu avx2\ncpu MHz : 2596.1\n\n"


@pytest.mark.parametrize(
    ("devices", "files", "chips", "generation", "names"),
    [
        ([], (), 0, None, []),
        # A virtual machine of Google's without TPU; one that hands devices through has /dev/vfio.
        ([GVNIC, NVME, VIRTIO], ("dev/vfio/0",), 0, None, []),
        ([V4] * 4, tuple(f"dev/accel{i}" for i in range(4)), 4, "v4",
         ["accel0", "accel1", "accel2", "accel3"]),
        ([V5E] * 11, ("dev/vfio/vfio", *(f"dev/vfio/{i}" for i in range(11))), 11, "v5e",
         [str(i) for i in range(11)]),
        # The drivers of others: /dev/accel is a folder.
        ([VIRTIO], ("dev/accel/accel0",), 0, None, []),
        ([V5E], (), 1, "v5e", []),  # a container
    ],
)  # fmt: skip
def test_tpu_chips(tmp_path, monkeypatch, devices, files, chips, generation, names):
    move_to(monkeypatch, tmp_path, *devices, files=files)
    assert hardware.tpu_chips() == chips
    assert hardware.tpu_generation() == generation
    assert [path.name for path in hardware.tpu_device_files()] == names


@pytest.mark.parametrize(
    ("devices", "files", "cards", "gpus"),
    [
        ([], (), 0, 0),
        # The second is the sound device of the first.
        ([H100, ITS_SOUND], (), 1, 0),
        ([H100] * 2,
         ("dev/nvidia0", "dev/nvidia1", "dev/nvidiactl", "dev/nvidia-uvm"), 2, 2),
        ([], ("dev/dxg",), 0, 1),
    ],
)  # fmt: skip
def test_nvidia_gpus(tmp_path, monkeypatch, devices, files, cards, gpus):
    move_to(monkeypatch, tmp_path, *devices, files=files)
    assert hardware.nvidia_cards() == cards
    assert hardware.nvidia_gpus() == gpus


def test_the_process_that_holds_a_file_is_found(tmp_path):
    held, free = tmp_path / "held", tmp_path / "free"
    held.touch()
    free.touch()
    program = "import sys; file = open(sys.argv[1]); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(held)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with held.open():  # this process's own do not count
            ((holder, name),) = hardware.holders_of([free, held]).items()
        assert holder == process.pid
        assert name.startswith("python")
        assert hardware.holders_of([free]) == hardware.holders_of([]) == {}
        process.communicate()
    assert hardware.holders_of([held]) == {}


@pytest.mark.parametrize(
    ("worker", "hosts", "wanted"),
    [
        (None, None, None),
        ("0", None, None),
        (None, "localhost", None),
        ("0", "localhost", (0, 1)),
        ("3", "a,b,c,d", (3, 4)),
    ],
)
def test_the_place_in_a_slice(monkeypatch, worker, hosts, wanted):
    for name, value in (("TPU_WORKER_ID", worker), ("TPU_WORKER_HOSTNAMES", hosts)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert hardware.place_among_hosts() == wanted


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"TPU_WORKER_ID": "4", "TPU_WORKER_HOSTNAMES": "a,b,c,d"}, "is 4, of the 4 hosts of"),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, "HOSTNAMES is set and TPU_WORKER_ID is not"),
        ({"TPU_WORKER_ID": "3"}, "ID is set and TPU_WORKER_HOSTNAMES is not"),
        ({"TPU_WORKER_ID": "", "TPU_WORKER_HOSTNAMES": "a,b"}, "TPU_WORKER_ID is ''; allowed"),
        ({"TPU_WORKER_ID": "-1", "TPU_WORKER_HOSTNAMES": "a,b"}, "TPU_WORKER_ID is '-1'; allow"),
        ({"TPU_WORKER_ID": "²", "TPU_WORKER_HOSTNAMES": "a,b"}, "TPU_WORKER_ID is '²'; allowed"),
        ({"JAX_PROCESS_ID": "1"}, "JAX_PROCESS_ID is set and JAX_NUM_PROCESSES is not"),
        ({"JAX_NUM_PROCESSES": "2"}, "JAX_NUM_PROCESSES is set and JAX_PROCESS_ID is not"),
        ({"JAX_PROCESS_ID": "2", "JAX_NUM_PROCESSES": "2"}, "JAX_PROCESS_ID is 2, of the 2 hosts"),
        ({"JAX_PROCESS_ID": "0", "JAX_NUM_PROCESSES": "0"}, "JAX_PROCESS_ID is 0, of the 0 hosts"),
    ],
)
def test_a_place_that_would_lose_or_double_a_share_is_refused(monkeypatch, variables, message):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=message):
        hardware.place_among_hosts()


@pytest.mark.parametrize(
    ("hosts", "kind", "warns"),
    [("a,b", "cpu", True), ("a,b", "tpu", False), ("localhost", "cpu", False)],
)
def test_a_host_of_a_slice_that_computes_on_a_cpu_says_so(monkeypatch, caplog, hosts, kind, warns):
    monkeypatch.setenv("TPU_WORKER_HOSTNAMES", hosts)
    hardware.warn_of_missing_tpu(kind)
    assert ("it computes on the CPU" in caplog.text) is warns


@pytest.mark.parametrize(
    ("limit", "cores"),
    [("max 100000", 4), ("150000 100000", 2), ("1000 100000", 1), ("800000 100000", 4), (None, 4)],
)
def test_cores_are_those_that_the_container_may_use(monkeypatch, tmp_path, limit, cores):
    move_to(monkeypatch, tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)), raising=False)
    if limit is not None:
        (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
        (tmp_path / "sys/fs/cgroup/cpu.max").write_text(f"{limit}\n")
    assert hardware.cores() == cores


def test_a_limit_holds_for_cores_and_for_tensorflow(monkeypatch):
    monkeypatch.setattr(hardware, "_limits", {})
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setattr(hardware, "_container_cores", lambda: None)
    for variable in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        monkeypatch.setenv(variable, "0")
    hardware.limit_cores(9)  # more than there are
    assert (hardware.cores(), os.environ["TF_NUM_INTRAOP_THREADS"]) == (8, "0")
    hardware.limit_cores(3)
    assert hardware.cores() == 3
    assert os.environ["TF_NUM_INTRAOP_THREADS"] == os.environ["TF_NUM_INTEROP_THREADS"] == "3"
    hardware.keep_kernels_on_one_thread()
    assert os.environ["TF_NUM_INTRAOP_THREADS"] == "1"


@pytest.mark.parametrize(
    ("cores", "before", "after"), [(2, None, "1"), (8, None, "1"), (9, None, None), (2, "4", "4")]
)
def test_kernels_have_one_thread_where_each_core_has_a_batch(monkeypatch, cores, before, after):
    monkeypatch.setattr(hardware, "cores", lambda: cores)
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", before or "")  # so that it is restored
    if before is None:
        monkeypatch.delenv("TF_NUM_INTRAOP_THREADS")
    hardware.keep_kernels_on_one_thread()
    assert os.environ.get("TF_NUM_INTRAOP_THREADS") == after


@pytest.fixture
def root(monkeypatch, tmp_path):
    (tmp_path / "proc").mkdir()
    return move_to(monkeypatch, tmp_path)


def test_the_cpu_is_known_by_its_kind_and_not_by_its_clock(root):
    (root / "proc" / "cpuinfo").write_text(X86 + X86)
    assert hardware.processor_models()["cpu"] == [
        "flags: fpu avx2",
        "model name: B 7",
        "vendor_id: A",
    ]
    before = hardware.processor_models()
    (root / "proc" / "cpuinfo").write_text(X86.replace("2596.1", "3000"))
    assert hardware.processor_models() == before
    (root / "proc" / "cpuinfo").write_text(X86.replace("avx2", "avx512f"))
    assert hardware.processor_models() != before


def test_gpus_are_known_by_their_model(root):
    folder = root / "proc" / "driver" / "nvidia" / "gpus" / "0000:00:05.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text("Model: \t\t NVIDIA H100\nIRQ: 5\n")
    assert hardware.processor_models()["gpu"] == ["NVIDIA H100"]

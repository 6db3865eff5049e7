"""What users met on first contact with a TPU, in the words of their threads."""

import pytest

from bert_features.machine.tpu_errors import advice, explain

WHO = "sudo lsof -w /dev/vfio/* /dev/accel*"
UPDATE = "pip install -U 'jax[tpu]'"


@pytest.mark.parametrize(
    ("message", "cause", "cure"),
    [
        (
            "Unable to initialize backend 'tpu': ABORTED: The TPU is already in use by process "
            "with pid 176028. Not attempting to load libtpu.so in this process.",
            "process 176028 holds the TPU",
            "kill 176028",
        ),
        (
            "libtpu.so already in use by another process probably owned by another user. Run "
            '"$ sudo lsof -w /dev/accel0" to figure out which process is using the TPU.',
            "/tmp/libtpu_lockfile",
            WHO,
        ),
        (
            "Internal error when accessing libtpu multi-process lockfile. Run "
            '"$ sudo rm /tmp/libtpu_lockfile".',
            "a lock that this user may not open",
            "sudo rm /tmp/libtpu_lockfile",
        ),
        (
            "Unable to initialize backend 'tpu': UNKNOWN: TPU initialization failed: "
            "open(/dev/vfio/1): Device or resource busy: Device or resource busy; Couldn't open "
            "iommu group /dev/vfio/1",
            "holds /dev/vfio/1; if none is listed, restart the session",
            WHO,
        ),
        (
            "TPU initialization failed: open(/dev/accel2): Operation not permitted",
            "run as root",
            "docker run --privileged …",
        ),
        (
            "Unknown flag in XLA_FLAGS: --xla_tpu_enable_latency_hiding_scheduler=true",
            "belong into LIBTPU_INIT_ARGS",
            "unset XLA_FLAGS",
        ),
        (
            "Unable to initialize backend 'tpu': INVALID_ARGUMENT: Mismatched PJRT plugin PJRT API "
            "version (0.23) and framework PJRT API version 0.40).",
            "libtpu and JAX do not fit",
            UPDATE,
        ),
        (
            "Unable to initialize backend 'tpu': INTERNAL: Failed to open /home/x/.local/lib/"
            "python3.10/site-packages/libtpu/libtpu.so: cannot open shared object file",
            "its file is missing",
            f"pip uninstall -y libtpu libtpu-nightly; {UPDATE}",
        ),
        (
            "INVALID_ARGUMENT: Error: unexpected worker hostname 'WARNING: could not determine TPU "
            "worker hostnames or IP addresses' from env var TPU_WORKER_HOSTNAMES. Expecting a valid"
            " hostname",
            "TPU_WORKER_HOSTNAMES holds no addresses",
            "unset TPU_WORKER_HOSTNAMES TPU_WORKER_ADDRS",
        ),
        (
            "TPU initialization failed: Invalid --2a886c8_slice_builder_worker_addresses "
            "specified. Expected 4 worker addresses, got 1.",
            "variables of another program",
            "unset TPU_PROCESS_ADDRESSES TPU_PROCESS_BOUNDS TPU_CHIPS_PER_PROCESS_BOUNDS "
            "CLOUD_TPU_TASK_ID",
        ),
        (
            "TPU backend initialization is taking more than 60.0 seconds. Did you run your code on "
            "all TPU hosts?",
            "start the program on all hosts",
            "unset TPU_WORKER_HOSTNAMES TPU_WORKER_ID TPU_PROCESS_ADDRESSES",
        ),
    ],
)
def test_each_comes_with_its_cause_and_its_cure(message, cause, cure):
    known = explain(message)
    assert known is not None
    assert cause in known.cause
    assert known.cure == cure
    end = advice(message)
    assert end == f"; {known.cause}: {cure}"
    assert advice(message + end) == ""  # once


def test_other_errors_have_none():
    # https://github.com/jax-ml/jax/issues/22416: of a GPU
    cuda = "Unable to initialize backend 'cuda': INVALID_ARGUMENT: Mismatched PJRT plugin PJRT API"
    for message in ("", "no luck", "open(features.npz): Permission denied", cuda):
        assert explain(message) is None
        assert advice(message) == ""

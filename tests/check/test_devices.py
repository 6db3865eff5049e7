"""Findings about TPUs and GPUs: what the machine shows beside what the runtimes report."""

import pytest

from bert_features.check import devices
from bert_features.check.machine import Accelerators
from bert_features.check.runtimes import Outcome, Runtimes
from tests.check.made_up_site import verdict

CHIP = Accelerators(tpus=("/dev/vfio/0",))
CARD = Accelerators(gpus=("/dev/nvidia0",), gpu_models=("NVIDIA L4",))
TPU_BUILD = "tensorflow-tpu"
CUDA = "pip install 'tensorflow[and-cuda]==2.20.*'"


def runtimes(tensorflow=None, jax=None, build="tensorflow"):
    """What the runtimes reported of devices: a list, or an error message."""

    def outcome(stage, reported):
        if isinstance(reported, str):
            return Outcome(errors={stage: reported})
        return Outcome({stage: {"devices": reported or []}})

    ours = outcome("tpu", tensorflow)
    if isinstance(tensorflow, list) and tensorflow and tensorflow[0].get("platform") == "gpu":
        ours = outcome("gpu", tensorflow)
    return Runtimes(ours, outcome("devices", jax), build)


def test_devices_with_counts_and_memory():
    cores = [{"platform": "tpu", "name": "TPU v5 lite", "memory_bytes": 16_900_000_000}] * 4
    finding = devices.check_tpu(CHIP, runtimes(jax=cores), {})
    assert (finding.status, finding.found) == ("ok", "4 TPU v5 lite with 16.9 GB each by JAX")
    assert len(finding.details["JAX"]) == 4
    card = [{"platform": "gpu", "name": "NVIDIA L4", "memory_bytes": 22_000_000_000}]
    finding = devices.check_gpu(CARD, runtimes(card, card), {})
    reported = "1 NVIDIA L4 with 22.0 GB each by"
    assert (finding.status, finding.found) == ("ok", f"{reported} TensorFlow; {reported} JAX")


@pytest.mark.parametrize(
    ("environment", "remedy"),
    [({"JAX_PLATFORMS": "tpu"}, "unset JAX_PLATFORMS"), ({}, "export JAX_PLATFORMS=cpu")],
)
def test_a_runtime_that_cannot_list_its_devices(environment, remedy):
    dead = Outcome({"tensorflow": {}}, {}, "gpu", "the process died of SIGSEGV")
    reported = Runtimes(dead, Outcome(errors={"devices": "RuntimeError: no tpu"}))
    of_tensorflow, of_jax = devices.check_listing(Accelerators(), reported, environment)
    assert verdict(of_tensorflow) == ("broken", "export CUDA_VISIBLE_DEVICES=-1")
    assert of_tensorflow.found == "the process died of SIGSEGV"
    assert verdict(of_jax) == ("warning", remedy)
    # Other checks report accelerators of this machine.
    assert devices.check_listing(CHIP, reported, environment) == [of_tensorflow]
    waiting = "did not finish within 120 s: Did you run your code on all TPU hosts?"
    reported = Runtimes(jax=Outcome(ended_in="devices", ending=waiting))
    (of_jax,) = devices.check_listing(CHIP, reported, environment)
    assert of_jax.remedy.startswith("unset TPU_WORKER_HOSTNAMES")
    assert of_jax.found.startswith(f"{waiting}: libtpu waits for the other hosts")


NO_TPU = {"tensorflow": "InternalError: no TPU", "jax": "RuntimeError: no libtpu"}
UNUSABLE = (
    "1 chip(s) at /dev/vfio/0, which neither runtime can use "
    "(TensorFlow: InternalError: no TPU; JAX: RuntimeError: no libtpu)"
)
# https://github.com/vllm-project/tpu-inference/pull/2257
BUSY = (
    "RuntimeError: Unable to initialize backend 'tpu': FAILED_PRECONDITION: TPU initialization "
    "failed: open(/dev/vfio/0): Device or resource busy: Device or resource busy; Couldn't open "
    "iommu group /dev/vfio/0 (set JAX_PLATFORMS='' to automatically choose an available backend)"
)
UNSET = "unset TPU_NAME KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS"
HELD = Accelerators(tpus=("/dev/accel0",), tpu_holders={4711: "python3", 4712: "train"})


@pytest.mark.parametrize(
    ("machine", "reported", "environment", "remedy", "found"),
    [
        (Accelerators(), {}, {}, None, "none found"),
        (CHIP, NO_TPU, {}, "pip install -U 'jax[tpu]'", UNUSABLE),
        (CHIP, {**NO_TPU, "build": TPU_BUILD}, {}, "bash scripts/setup_tpu.sh", UNUSABLE),
        (CHIP, NO_TPU, {"JAX_PLATFORMS": "cpu"}, "unset JAX_PLATFORMS", UNUSABLE),
        # The TPU build where there is no TPU.
        (Accelerators(), {"build": TPU_BUILD}, {}, "export TPU_SKIP_MDS_QUERY=1", "none found, "),
        (Accelerators(), {"build": TPU_BUILD}, {"TPU_SKIP_MDS_QUERY": "1"}, None, "none found"),
        (CHIP, {"jax": BUSY}, {}, "sudo lsof -w /dev/vfio/* /dev/accel*", "holds /dev/vfio/0"),
        (CHIP, {"jax": BUSY}, {"JAX_PLATFORMS": "cpu"}, "unset JAX_PLATFORMS", BUSY),
        (HELD, {}, {}, "kill 4711 4712", "held by process 4711 (python3), 4712 (train)"),
        (Accelerators(), {"tensorflow": "x"}, {"TPU_NAME": "mine"}, UNSET, "the TPU mine, which"),
    ],
)
def test_a_tpu_that_no_runtime_can_use(machine, reported, environment, remedy, found):
    finding = devices.check_tpu(machine, runtimes(**reported), environment)
    assert verdict(finding) == ("warning" if remedy else "ok", remedy)
    assert found in finding.found


@pytest.mark.parametrize(
    ("machine", "environment", "remedy", "found"),
    [
        (Accelerators(), {}, None, "none found"),
        (CARD, {}, CUDA, "1 at /dev/nvidia0 (NVIDIA L4), which neither"),
        (CARD, {"CUDA_VISIBLE_DEVICES": "0"}, CUDA, "which neither"),
        (CARD, {"JAX_PLATFORMS": "cpu"}, "unset JAX_PLATFORMS", "which neither"),
        (CARD, {"CUDA_VISIBLE_DEVICES": "-1"}, "unset CUDA_VISIBLE_DEVICES", "which neither"),
    ],
)
def test_a_gpu_that_no_runtime_can_use(machine, environment, remedy, found):
    finding = devices.check_gpu(machine, runtimes(), environment)
    assert verdict(finding) == ("warning" if remedy else "ok", remedy)
    assert found in finding.found

"""Which devices TensorFlow takes, and the reason it gives; TPUs and GPUs are made up."""

import logging
import os
import signal
import socket
import subprocess
import sys

import pytest
import tensorflow as tf

from bert_features.errors import ConfigError
from bert_features.machine import hardware, tpu_installation
from bert_features.machine.names import ABSENT
from bert_features.runtime import tensorflow_devices
from bert_features.runtime.base import resolve
from bert_features.runtime.tensorflow import TensorFlowRuntime
from bert_features.runtime.tensorflow_devices import Devices, resolve_devices
from tests.made_up_machine import H100, V5E, install, move_to

pytestmark = pytest.mark.eight_devices


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch):
    """TPUs are remembered, and the rounding of products is TensorFlow's for the whole process."""
    monkeypatch.setattr(tensorflow_devices, "_strategies", {})
    for name in tpu_installation.REMOTE_TPU_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    rounding = tf.config.experimental.tensor_float_32_execution_enabled()
    yield
    tf.config.experimental.enable_tensor_float_32_execution(rounding)


@pytest.fixture
def v5e(tmp_path, monkeypatch):
    """A machine with eight chips, and what TensorFlow was told to do with them."""
    files = tuple(f"dev/vfio/{i}" for i in range(8))
    move_to(monkeypatch, tmp_path, *[V5E] * 8, files=files)
    install(monkeypatch, tensorflow_tpu="2.20.0", libtpu="0.0.30")
    return told_to_tensorflow(monkeypatch)


def told_to_tensorflow(monkeypatch):
    told = []

    class Resolver:
        def __init__(self, tpu):
            told.append(f"resolve {tpu}")

        def cluster_spec(self):
            return tf.train.ClusterSpec({})

    class Strategy:
        num_replicas_in_sync = 8

        def __init__(self, resolver):
            told.append("share out")

    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", Resolver)
    monkeypatch.setattr(tf.distribute, "TPUStrategy", Strategy)
    monkeypatch.setattr(
        tf.config, "experimental_connect_to_cluster", lambda _: told.append("connect")
    )
    monkeypatch.setattr(
        tf.tpu.experimental, "initialize_tpu_system", lambda _: told.append("initialise")
    )
    return told


def test_the_chips_of_this_machine_are_started_once(v5e, monkeypatch):
    monkeypatch.setenv("TPU_NAME", "a-name-that-the-environment-has-anyway")
    first = resolve_devices()
    assert first.describe() == "running on 8 TPU devices"
    assert v5e == ["resolve local", "connect", "initialise", "share out"]
    # A process forked from this one has its files too.
    monkeypatch.setattr(hardware, "holders_of", lambda files: {4711: "python3"})
    second = resolve_devices("tpu")
    assert second.strategy is first.strategy
    assert len(v5e) == 4


def test_a_tpu_that_the_program_has_started_is_not_started_again(v5e, monkeypatch):
    monkeypatch.setattr(
        tensorflow_devices.tpu_strategy_util, "get_initialized_tpu_systems", lambda: {"local": None}
    )
    assert resolve_devices("tpu").count == 8
    assert v5e == ["resolve local", "share out"]


def test_a_tpu_over_the_network_is_for_machines_without(tmp_path, monkeypatch):
    move_to(monkeypatch, tmp_path)
    monkeypatch.setenv("TPU_NAME", "far")
    told = told_to_tensorflow(monkeypatch)
    assert resolve_devices("tpu").count == 8
    assert told[0] == "resolve far"


@pytest.mark.parametrize("variable", tpu_installation.REMOTE_TPU_VARIABLES)
@pytest.mark.parametrize("port", ["1", "nonsense"])
def test_an_address_without_an_answer_is_no_tpu(tmp_path, monkeypatch, variable, port):
    """TensorFlow would wait for it without end."""
    move_to(monkeypatch, tmp_path)
    monkeypatch.setenv(variable, f"grpc://127.0.0.1:{port}")
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", pytest.fail)
    reason = f"127.0.0.1:{port} does not answer: .*; unset {variable} if there is none"
    with pytest.raises(ConfigError, match=reason):
        resolve_devices("tpu")
    if not hardware.nvidia_gpus():
        devices = resolve_devices("auto")
        assert devices.kind == "cpu"
        assert f"127.0.0.1:{port} does not answer" in devices.reason


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_for_a_host_that_is_no_tpu(tmp_path, minilm_dir, number):
    (tmp_path / "texts.txt").write_text("a text\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        environment = os.environ | {"TPU_NAME": f"grpc://127.0.0.1:{server.getsockname()[1]}"}
        command = [sys.executable, "-m", "bert_features", "extract", str(tmp_path / "texts.txt")]
        with subprocess.Popen(
            [*command, "--checkpoint", str(minilm_dir), "--output", str(tmp_path / "out.jsonl")],
            env=environment,
        ) as process:
            first, second = server.accept()[0], server.accept()[0]  # the question, TensorFlow's
            process.send_signal(number)
            try:
                assert process.wait(5) == -number
            finally:
                process.kill()
                first.close()
                second.close()


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("\nno luck\nand more\nlines", "no luck; pass"),
        ("The TPU is already in use by process with pid 176028. Not", "kill 176028; pass"),
    ],
)
def test_a_tpu_that_does_not_start_is_told_in_one_line(v5e, monkeypatch, message, told):
    def fail(resolver):
        raise tf.errors.UnavailableError(None, None, message)

    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", fail)
    with pytest.raises(ConfigError, match=f"^no TPU: .* did not start: .*{told}"):
        resolve_devices("tpu")


def test_the_wrong_wheel_is_told_and_the_next_kind_taken(v5e, monkeypatch):
    install(monkeypatch, tensorflow="2.20.0", libtpu="0.0.51")
    devices = resolve_devices()
    assert devices.kind == "cpu"
    assert devices.reason.startswith("no TPU: tensorflow 2.20.0 has no TPU support, tensorflow-tpu")
    assert v5e == []


@pytest.mark.parametrize(("kind", "rounds"), [("_tpu", False), ("_gpu", False), ("_cpu", True)])
def test_float32_is_float32(monkeypatch, kind, rounds):
    """Neither TF32 nor bfloat16; scripts/check_tpu_bridge.sh shows it on a TPU."""
    tf.config.experimental.enable_tensor_float_32_execution(True)
    monkeypatch.setattr(tensorflow_devices, kind, lambda: (None, 1))
    resolve_devices(kind[1:])
    assert tf.config.experimental.tensor_float_32_execution_enabled() is rounds


def test_the_best_device_is_taken_and_said_in_one_line(monkeypatch, caplog):
    if hardware.tpu_chips() or hardware.nvidia_gpus():
        pytest.skip("there is an accelerator here")
    strategy = tf.distribute.get_strategy()
    monkeypatch.setattr(tensorflow_devices, "_gpu", lambda: (strategy, 2))
    assert resolve_devices() == Devices("gpu", 2, "", strategy)
    busy = {"tpu": "process 7 holds it", "gpu": ABSENT, "cpu": 1}
    assert resolve("auto", busy.__getitem__) == ("cpu", 1, "no TPU: process 7 holds it")
    with pytest.raises(ConfigError, match="device"):
        resolve("gpu", busy.__getitem__)
    monkeypatch.setattr(tensorflow_devices, "_tpu", lambda: (strategy, 8))
    assert resolve_devices().describe() == "running on 8 TPU devices"
    monkeypatch.undo()
    with caplog.at_level(logging.INFO, "bert_features"):
        TensorFlowRuntime("auto").compile(lambda weights, batch: {}, [])
    assert caplog.messages == ["running on 8 CPU devices"]


@pytest.mark.parametrize(
    ("pci", "files", "visible", "with_cuda", "wheels", "reason"),
    [
        ([], (), None, True, {}, ABSENT),
        ([H100], (), None, True, {}, "an NVIDIA GPU is plugged in, but has no driver here;"),
        ([H100], ("dev/nvidia0",), "", True, {}, "CUDA_VISIBLE_DEVICES='' hides the 1 GPU(s)"),
        ([H100], ("dev/nvidia0",), "-1", True, {}, "CUDA_VISIBLE_DEVICES='-1' hides the 1 GPU(s)"),
        ([H100], ("dev/nvidia0",), "1,0", True, {}, "CUDA_VISIBLE_DEVICES='1,0' hides"),
        ([H100], ("dev/nvidia0",), "0", True, {},
         f"TensorFlow {tf.__version__} finds no CUDA libraries for the 1 GPU(s) here; pip "
         "install "),
        ([H100], ("dev/nvidia0",), None, False, {}, f"this build of TensorFlow {tf.__version__}"),
        ([H100], ("dev/nvidia0",), "GPU-12345678", True, {"nvidia_cudnn_cu12": "9.3"},
         f"TensorFlow {tf.__version__} cannot use the 1 GPU(s) here; nvidia-smi shows"),
    ],
)  # fmt: skip
def test_why_there_is_no_gpu(tmp_path, monkeypatch, pci, files, visible, with_cuda, wheels, reason):
    move_to(monkeypatch, tmp_path, *pci, files=files)
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [])
    monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: with_cuda)
    install(monkeypatch, **wheels)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(ConfigError) as caught:
        resolve_devices("gpu")
    assert str(caught.value).startswith(f"no GPU: {reason}")
    assert str(caught.value).endswith("; pass device='auto' to take what is here")


def test_a_new_libtpu_beside_plain_tensorflow_says_nothing(tmp_path, monkeypatch, capfd):
    """As `bert-features compile` needs it, on a machine without TPU."""
    move_to(monkeypatch, tmp_path)
    install(monkeypatch, tensorflow="2.20.0", libtpu="0.0.51")
    tpu_installation.choose_pjrt()
    assert tensorflow_devices._tpu() == ABSENT
    assert capfd.readouterr() == ("", "")

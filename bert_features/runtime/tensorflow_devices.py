"""The devices that TensorFlow runs on: TPU, GPU or CPU, and why no better kind was taken."""

import contextlib
import os
from collections.abc import Callable

import tensorflow as tf

# The only way to find out whether the program itself has initialised a TPU.
from tensorflow.python.tpu import tpu_strategy_util

from bert_features.errors import extra_requirement, first_line
from bert_features.machine import hardware, tpu_installation
from bert_features.machine.names import ABSENT, Device
from bert_features.machine.tpu_errors import advice
from bert_features.monitor import interruption
from bert_features.runtime.base import Devices as Devices
from bert_features.runtime.base import resolve

_LOCAL = "local"  # TensorFlow's name for the TPU of this machine


_Found = tuple[tf.distribute.Strategy | None, int]


def resolve_devices(device: Device = "auto") -> Devices:
    """Takes the wanted kind of device, or the best there is: TPU, then GPU, then CPU.

    A TPU is initialised by the first call, which must come before the program's first operation;
    later calls return the same strategy. On TPUs and GPUs float32 products are made exact.

    Raises:
      ConfigError: the wanted kind is absent, or is not one of `auto`, `tpu`, `gpu`, `cpu`.
    """
    finders: dict[str, Callable[[], _Found | str]] = {"tpu": _tpu, "gpu": _gpu, "cpu": _cpu}
    kind, (strategy, count), reason = resolve(device, lambda kind: finders[kind]())
    if kind != "cpu":
        keep_float32()
    return Devices(kind, count, reason, strategy)


def keep_float32() -> None:
    """Makes float32 matrix products exact to float32.

    By default the factors are rounded, to 10 bits of mantissa on a GPU (TF32) and to the 7 of
    bfloat16 on a TPU. There, this gives every product `operand_precision={highest,highest}`, which
    XLA computes in several bfloat16 passes. The numbers of bfloat16 products are not affected; on a
    TPU XLA may fuse fewer products (benchmarks/diary.md).
    """
    tf.config.experimental.enable_tensor_float_32_execution(False)


# TPUs.

_strategies: dict[str, tf.distribute.TPUStrategy] = {}  # by TPU name; each is initialised once


def _tpu() -> _Found | str:
    """The TPU of this machine, else the one that the environment names, else why there is none.

    On a slice of several hosts each host takes its own chips and runs the program on its own texts.
    """
    name = _LOCAL if hardware.tpu_chips() else tpu_installation.remote_tpu()
    if name in _strategies:  # other holders are children of this process
        return _strategies[name], _strategies[name].num_replicas_in_sync
    if name is None or name == _LOCAL:
        problem = tpu_installation.device_problem() or tpu_installation.tensorflow_problem()
        if name is None or problem:
            return problem or ""
    try:
        strategy = _start_tpu(name)
    except (tf.errors.OpError, ValueError, RuntimeError, ImportError, OSError) as error:
        problem = f"{_named(name)} did not start: {first_line(error)}{advice(error)}"
        names = [n for n in tpu_installation.REMOTE_TPU_VARIABLES if os.environ.get(n)]
        return problem if name == _LOCAL else f"{problem}; unset {' '.join(names)} if there is none"
    _strategies[name] = strategy
    return strategy, strategy.num_replicas_in_sync


def _start_tpu(name: str) -> tf.distribute.TPUStrategy:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
    # Initialising twice would take the memory from the earlier user in this process.
    if name not in tpu_strategy_util.get_initialized_tpu_systems():
        tpu_installation.refuse_silent_tpu(resolver)
        # A host that answers may still be no TPU, and TensorFlow's wait has no limit.
        with interruption.at_once() if name != _LOCAL else contextlib.nullcontext():
            tf.config.experimental_connect_to_cluster(resolver)
            tf.tpu.experimental.initialize_tpu_system(resolver)
    return tf.distribute.TPUStrategy(resolver)


def _named(name: str) -> str:
    return "the TPU of this machine" if name == _LOCAL else f"the TPU {name!r}"


# GPUs and CPUs.


def _gpu() -> _Found | str:
    gpus = tf.config.list_logical_devices("GPU")
    return _mirrored([gpu.name for gpu in gpus]) if gpus else _gpu_problem()


def _gpu_problem() -> str:
    count = hardware.nvidia_gpus()
    if not count:
        if hardware.nvidia_cards():
            return (
                "an NVIDIA GPU is plugged in, but has no driver here; install one, or start the "
                "container with --gpus all"
            )
        return ABSENT
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and not _shows_any(visible, count):
        return f"CUDA_VISIBLE_DEVICES={visible!r} hides the {count} GPU(s) of this machine"
    if not tf.test.is_built_with_cuda():
        return f"this build of TensorFlow {tf.__version__} has no CUDA, for the {count} GPU(s) here"
    if not any(tpu_installation.installed(f"nvidia-cudnn-cu{cuda}") for cuda in (12, 13)):
        return (
            f"TensorFlow {tf.__version__} finds no CUDA libraries for the {count} GPU(s) here; "
            f"pip install {extra_requirement('gpu')}"
        )
    return (
        f"TensorFlow {tf.__version__} cannot use the {count} GPU(s) here; nvidia-smi shows whether "
        "their driver works and is new enough"
    )


def _shows_any(visible: str, count: int) -> bool:
    """Whether a value of CUDA_VISIBLE_DEVICES leaves a GPU: CUDA stops at the first bad entry."""
    first = visible.split(",")[0].strip()
    if first.isdigit():
        return int(first) < count
    return first.startswith(("GPU-", "MIG-"))


def _cpu() -> _Found:
    return _mirrored([cpu.name for cpu in tf.config.list_logical_devices("CPU")])


def _mirrored(names: list[str]) -> _Found:
    strategy = tf.distribute.MirroredStrategy(names) if len(names) > 1 else None
    return strategy, len(names)

"""What the errors of libtpu and JAX on a TPU mean, and what to do.

The comments name the threads in which users met them; libtpu 0.0.52, jax and jaxlib 0.10.2 have the
words, except for "has no attribute". A machine that is taken away (preempted) takes this process
along and leaves no words; what the next process may meet is "busy".
"""

import re
from typing import NamedTuple


class KnownError(NamedTuple):
    """The cause of an error in one clause, and the command that cures it."""

    cause: str
    cure: str


_UPDATE = "pip install -U 'jax[tpu]'"
_WHO = "sudo lsof -w /dev/vfio/* /dev/accel*"

# A regular expression -> cause and cure, in which {name} is a group of the expression. The first
# that is found counts.
_KNOWN: dict[str, KnownError] = {
    # https://github.com/jax-ml/jax/issues/22070
    r"The TPU is already in use by process with pid (?P<pid>\d+)": KnownError(
        "process {pid} holds the TPU, and each chip serves one process", "kill {pid}"
    ),
    # https://github.com/jax-ml/jax/issues/10192
    r"already in use by another process probably owned by another user": KnownError(
        "another user's process holds the TPU, or if none is listed, left /tmp/libtpu_lockfile, "
        "which you may remove",
        _WHO,
    ),
    # https://github.com/huggingface/diffusers/issues/2745 has the cure
    r"accessing libtpu multi-process lockfile": KnownError(
        "a process has left a lock that this user may not open", "sudo rm /tmp/libtpu_lockfile"
    ),
    # https://github.com/vllm-project/tpu-inference/pull/2257. In a sandbox (gVisor) the first
    # process keeps the chips after its end: https://github.com/google/gvisor/issues/11545. After a
    # preemption: https://github.com/marin-community/marin/issues/4783
    r"open\((?P<file>/dev/[\w/]+)\): Device or resource busy": KnownError(
        "another process, perhaps of another user or container, holds {file}; if none is listed, "
        "restart the session of a notebook, or make the machine again",
        _WHO,
    ),
    # https://github.com/pytorch/xla/issues/9604 and 3165; https://github.com/jax-ml/jax/issues/30834
    # with "mmap"; a container needs --privileged: https://github.com/jax-ml/jax/pull/7261
    r"(/dev/(accel|vfio)\S*|Couldn't mmap):? \(?(Operation not permitted|Permission denied)"
    r"|PERMISSION_DENIED: open\(/dev/": KnownError(
        "this user or this container may not drive the chips; run as root, or give the container "
        "all rights",
        "docker run --privileged …",
    ),
    # https://github.com/jax-ml/jax/issues/20148 and jax-ml/jax/pull/18163
    r"backend 'tpu': .*Mismatched PJRT plugin|'libtpu' has no attribute": KnownError(
        "libtpu and JAX do not fit each other", _UPDATE
    ),
    # https://github.com/jax-ml/jax/issues/24987
    r"Failed to open \S*libtpu\.so": KnownError(
        "libtpu is not installed, or its file is missing",
        f"pip uninstall -y libtpu libtpu-nightly; {_UPDATE}",
    ),
    # https://github.com/ARahim3/kaggle-tpu-lab/issues/6
    r"unexpected worker hostname .* from env var (?P<name>\w+)": KnownError(
        "{name} holds no addresses", "unset {name} TPU_WORKER_ADDRS"
    ),
    # https://github.com/huggingface/transformers/issues/28204
    r"slice_builder_worker_addresses specified\. Expected": KnownError(
        "variables of another program divide the chips among several processes",
        "unset TPU_PROCESS_ADDRESSES TPU_PROCESS_BOUNDS TPU_CHIPS_PER_PROCESS_BOUNDS "
        "CLOUD_TPU_TASK_ID",
    ),
    # https://github.com/jax-ml/jax/issues/19971
    r"Did you run your code on all TPU hosts": KnownError(
        "libtpu waits for the other hosts of the slice; start the program on all hosts, or if this "
        "one is alone, drop what names others",
        "unset TPU_WORKER_HOSTNAMES TPU_WORKER_ID TPU_PROCESS_ADDRESSES",
    ),
    r"Unknown flags? in XLA_FLAGS: ": KnownError(
        "flags of libtpu (xla_tpu_…) belong into LIBTPU_INIT_ARGS", "unset XLA_FLAGS"
    ),
}


def explain(message: str) -> KnownError | None:
    """The cause and the cure of a message; None if it is unknown."""
    for pattern, known in _KNOWN.items():
        if match := re.search(pattern, message):
            names = {name: value for name, value in match.groupdict().items() if value}
            return KnownError(known.cause.format(**names), known.cure.format(**names))
    return None


def advice(message: object) -> str:
    """The cause and the cure as the end of a line, after a semicolon.

    Empty if they are unknown, or if the message has them already.
    """
    known = explain(str(message))
    if known is None or known.cause in str(message):
        return ""
    return f"; {known.cause}: {known.cure}"

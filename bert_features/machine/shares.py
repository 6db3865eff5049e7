"""How several processes share the devices of one machine.

The variables must be in the environment of a process before it starts its runtime.
"""

import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from bert_features.errors import ConfigError
from bert_features.machine.hardware import core_numbers, nvidia_gpus, tpu_chips
from bert_features.machine.names import Device

_GPUS = "CUDA_VISIBLE_DEVICES"
# The newer name first; older releases of libtpu know the other.
_CHIPS = ("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES")
# The chips of a process as a box of the machine's chips, which lie in two rows: from
# https://gist.github.com/skye/f82ba45d2445bb19d53545538754f9a3, by an author of JAX. Not tried on a
# TPU by this project.
_BOUNDS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1"}
_FIRST_PORT = 8476


@dataclass(frozen=True)
class Share:
    """What one of several processes may use.

    Attributes:
      environment: variables to set before it starts.
      cores: the CPU cores it may run on; None for all.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    cores: frozenset[int] | None = None


def share_out(count: int, device: Device = "auto", *, setting: str = "processes") -> list[Share]:
    """Shares the chips, GPUs or cores of this machine out to `count` processes, evenly.

    The setting `device` says which: with `auto` TPU chips, else GPUs, else cores. ConfigError,
    which names `setting`: there are not enough, or they cannot be shared out evenly.
    """
    if device in ("auto", "tpu") and (chips := _visible(_CHIPS, tpu_chips())):
        groups = _groups(chips, count, "TPU chips", setting)
        return [_share_of_chips(group, i) for i, group in enumerate(groups)]
    if device in ("auto", "gpu") and (gpus := _visible((_GPUS,), nvidia_gpus())):
        return [Share({_GPUS: ",".join(group)}) for group in _groups(gpus, count, "GPUs", setting)]
    cores = sorted(core_numbers())
    if count > len(cores):
        raise _wrong_count(setting, count, len(cores), "CPU cores", f"1 to {len(cores)}")
    cuts = [len(cores) * i // count for i in range(count + 1)]
    return [Share(cores=frozenset(cores[a:b])) for a, b in itertools.pairwise(cuts)]


def _share_of_chips(chips: list[str], index: int) -> Share:
    port = str(_FIRST_PORT + index)
    environment = {
        "TPU_CHIPS_PER_PROCESS_BOUNDS": _BOUNDS[len(chips)],
        "TPU_PROCESS_BOUNDS": "1,1,1",
        "TPU_MESH_CONTROLLER_ADDRESS": f"localhost:{port}",
        "TPU_MESH_CONTROLLER_PORT": port,
    }
    return Share(environment | dict.fromkeys(_CHIPS, ",".join(chips)))


def _visible(variables: tuple[str, ...], count: int) -> list[str]:
    """The numbers of the devices that this process may use."""
    for variable in variables:
        if variable in os.environ:
            named = [number.strip() for number in os.environ[variable].split(",")]
            return [number for number in named if number not in ("", "-1")] if count else []
    return [str(number) for number in range(count)]


def _groups(devices: list[str], count: int, what: str, setting: str) -> list[list[str]]:
    """Equal groups of neighbours."""
    size, rest = divmod(len(devices), count)
    allowed = [
        n
        for n in range(1, len(devices) + 1)
        if len(devices) % n == 0 and (n == 1 or what == "GPUs" or len(devices) // n in _BOUNDS)
    ]
    if rest or count not in allowed:
        raise _wrong_count(setting, count, len(devices), what, ", ".join(map(str, allowed)))
    return [devices[i * size : (i + 1) * size] for i in range(count)]


def _wrong_count(setting: str, count: int, devices: int, what: str, allowed: str) -> ConfigError:
    return ConfigError(
        f"{setting} is {count}; this machine has {devices} {what}; allowed: {allowed}"
    )

"""The names of devices and runtimes, as settings have them."""

from typing import Literal

Device = Literal["auto", "tpu", "gpu", "cpu"]
RuntimeName = Literal["auto", "tensorflow", "jax"]

# Why a kind of device is not taken that was never there.
ABSENT = "this machine has none"


def describe_devices(kind: str, count: int) -> str:
    """Devices for a message: `the CPU`, `8 TPU devices`."""
    return f"the {kind.upper()}" if count == 1 else f"{count} {kind.upper()} devices"

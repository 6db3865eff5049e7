"""The names of devices, runtimes and forms of attention, as settings have them."""

from typing import Literal

Device = Literal["auto", "tpu", "gpu", "cpu"]
RuntimeName = Literal["auto", "tensorflow", "jax"]
Attention = Literal["auto", "xla", "pallas"]

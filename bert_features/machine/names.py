"""The names of devices and runtimes, as settings have them."""

from typing import Literal

Device = Literal["auto", "tpu", "gpu", "cpu"]
RuntimeName = Literal["auto", "tensorflow", "jax"]

"""What devices and runtimes are called; importing this imports nothing heavy."""

from typing import Literal

Device = Literal["auto", "tpu", "gpu", "cpu"]
RuntimeName = Literal["auto", "tensorflow", "jax"]

"""What is published about each TPU, and the names of topologies: `v5e:2x2`, `v4:2x2x1`.

Importing this imports neither JAX nor a compiler.
"""

import math
import re
from dataclasses import dataclass

from bert_features.errors import ConfigError


@dataclass(frozen=True)
class Chip:
    """One generation of TPU; all figures are of a chip.

    Attributes:
      compiler_name: what libtpu's compiler calls it.
      tflops: peak of bfloat16 products, 10^12 operations per second.
      hbm_gib: its memory, 2^30 bytes (what the tables call GB).
      hbm_gbps: the memory's bandwidth, 10^9 bytes per second.
      pcie_gbps: towards its host, 10^9 bytes per second.
      example: a topology of it: one host's.
      devices: how many devices JAX sees in it.
      config_name: the compiler's name for how the cores of a chip work together; None for its
        default.
    """

    compiler_name: str
    tflops: float
    hbm_gib: float
    hbm_gbps: float
    pcie_gbps: float
    example: str
    devices: int = 1
    config_name: str | None = None


# Peaks, memories and bandwidths: cloud.google.com/tpu/docs/v2 … /v6e, /tpu7x (of TPU7x half of the
# FP8 peak of 4,614 TFLOP/s); of v4i: Jouppi et al. 2021, "Ten Lessons From Three Generations Shaped
# Google's TPUv4i", table 1. PCIe: "about 16 GB/s per TPU (32 GB/s for Trillium)", "How to Scale
# Your Model", jax-ml.github.io/scaling-book/tpus; TPU7x is taken as Trillium, nothing is published.
CHIPS: dict[str, Chip] = {
    "v2": Chip("v2", 46, 16, 700, 16, "2x2", devices=2),
    "v3": Chip("v3", 123, 32, 900, 16, "2x2", devices=2),
    "v4": Chip("v4", 275, 32, 1228, 16, "2x2x1", config_name="megacore"),
    "v4i": Chip("v4 lite", 138, 8, 614, 16, "2x2"),
    "v5e": Chip("v5e", 197, 16, 819, 16, "2x2"),
    "v5p": Chip("v5p", 459, 95, 2765, 16, "2x2x1"),
    "v6e": Chip("v6e", 918, 32, 1640, 32, "2x2"),
    "tpu7x": Chip("tpu7x", 2307, 192, 7380, 32, "2x2x1", devices=2),
}

# A product of float32 factors to float32's own accuracy is made of six of bfloat16 parts (JAX's
# precision HIGHEST): the peak is a sixth.
PASSES: dict[str, int] = {"bfloat16": 1, "float32": 6}

_TOPOLOGY = re.compile(r"(?P<chip>\w+):(?P<shape>[1-9]\d*(x[1-9]\d*){1,2})")


@dataclass(frozen=True)
class Topology:
    """Chips of one kind in a grid.

    Attributes:
      name: as it was asked for: `v5e:2x2`.
      chip: what each is.
      shape: the grid: `2x2`.
    """

    name: str
    chip: Chip
    shape: str

    @property
    def chips(self) -> int:
        """How many chips there are."""
        return math.prod(int(side) for side in self.shape.split("x"))

    @property
    def compiler_name(self) -> str:
        """The topology as the compiler names it."""
        return f"{self.chip.compiler_name}:{self.shape}"


def parse_topology(name: str) -> Topology:
    """`v5e:2x2` as a chip and a grid.

    Raises:
      ConfigError: it is not of that form, or no chip is called so.
    """
    match = _TOPOLOGY.fullmatch(name)
    if match is None or match["chip"] not in CHIPS:
        raise ConfigError(
            f"unknown topology {name!r}; {accepted()}, or another grid of such chips (of v2, v3, "
            "v4i, v5e and v6e two sides, of the others three)"
        )
    return Topology(name, CHIPS[match["chip"]], match["shape"])


def accepted() -> str:
    """The topologies of one host each, for error messages and help."""
    return "accepted: " + ", ".join(f"{name}:{chip.example}" for name, chip in CHIPS.items())

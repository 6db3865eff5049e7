"""What is reported of a step compiled for a TPU, and the bounds of speed that follow from it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bert_features.tpu.chips import PASSES, Topology

if TYPE_CHECKING:
    from bert_features.encoder.step import Precision


@dataclass(frozen=True)
class ShapeReport:
    """What the compiler makes of the step for one shape; bytes and rows are of a chip.

    Attributes:
      length: S.
      rows: B of a chip.
      compile_seconds: how long it took.
      weight_bytes: of the step's arguments in HBM, the batch left out.
      temporary_bytes: of what lives only while the step runs.
      output_bytes: of the results in HBM.
      largest_rows: the largest batch found that the compiler fits into the chip; None if it was
        not looked for.
      flops_per_token: operations, by the compiler's count.
      bytes_per_token: `cost_analysis()["bytes accessed"]`: operands and results of all kernels, in
        HBM and in VMEM.
      hbm_bytes_per_token: those in HBM, by `tpu_hlo.hbm_bytes`; None where it cannot tell.
      kernels: fusions and custom calls.
      left_bytes_per_token: bytes of results that leave the chip.
      collectives: opcodes by which chips talk to each other; there must be none.
      host_callbacks: opcodes by which the step talks to its host; there must be none.
    """

    length: int
    rows: int
    compile_seconds: float
    weight_bytes: int
    temporary_bytes: int
    output_bytes: int
    largest_rows: int | None
    flops_per_token: float
    bytes_per_token: float
    hbm_bytes_per_token: float | None
    kernels: int
    left_bytes_per_token: float
    collectives: tuple[str, ...]
    host_callbacks: tuple[str, ...]


@dataclass(frozen=True)
class Bounds:
    """What a chip's published figures allow at most, tokens/s of a chip; not a measurement.

    Williams et al. 2009, "Roofline", doi:10.1145/1498765.1498785.

    Attributes:
      intensity: operations for each byte accessed.
      arithmetic: by the peak of products.
      memory: by the bandwidth of HBM, as if all bytes accessed were in it.
      hbm: by that bandwidth, of the bytes that are in it; None where nobody knows them.
      pcie: by the way to the host.
    """

    intensity: float
    arithmetic: float
    memory: float
    hbm: float | None
    pcie: float

    @classmethod
    def of(cls, report: ShapeReport, topology: Topology, precision: "Precision") -> "Bounds":
        """The bounds of one shape on one chip."""
        chip = topology.chip
        peak, bandwidth = chip.tflops * 1e12 / PASSES[precision], chip.hbm_gbps * 1e9
        in_hbm = report.hbm_bytes_per_token
        return cls(
            intensity=report.flops_per_token / report.bytes_per_token,
            arithmetic=peak / report.flops_per_token,
            memory=bandwidth / report.bytes_per_token,
            hbm=bandwidth / in_hbm if in_hbm else None,
            pcie=chip.pcie_gbps * 1e9 / report.left_bytes_per_token,
        )

    @property
    def roofline(self) -> float:
        """The lower of arithmetic and memory; lower than needs be, as VMEM is faster than HBM."""
        return min(self.arithmetic, self.memory)

    @property
    def hbm_roofline(self) -> float | None:
        """The lower of arithmetic and HBM, of which no run can be above."""
        return None if self.hbm is None else min(self.arithmetic, self.hbm)

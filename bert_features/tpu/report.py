"""The report on a step compiled for a TPU, and the bounds of speed that follow from it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bert_features.tpu.chips import PASSES, Topology

if TYPE_CHECKING:
    from bert_features.encoder.step import FloatPrecision


@dataclass(frozen=True)
class ShapeReport:
    """Figures of the compiled step for one shape; rows and bytes are for one chip.

    Attributes:
      length: S.
      rows: B on a chip.
      weight_bytes: bytes of the step's arguments in HBM, without the batch.
      temporary_bytes: bytes in HBM that are in use only while the step runs.
      output_bytes: bytes of the results in HBM.
      largest_rows: rows of the largest batch found to fit into the chip; None if it was not
        searched for.
      flops_per_token: operations, as the compiler counts them, with all passes of loops.
      bytes_per_token: `cost_analysis()["bytes accessed"]`: operands and results of all kernels, in
        HBM and in VMEM.
      hbm_bytes_per_token: the same in HBM alone, by `hlo.hbm_bytes`; None if unknown.
      kernels: number of fusions and custom calls; None if unknown.
      left_bytes_per_token: bytes of results that go to the host.
      collectives: opcodes by which chips exchange data; there must be none. None if unknown.
      host_callbacks: opcodes by which the step calls its host; there must be none. None if unknown.
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
    kernels: int | None
    left_bytes_per_token: float
    collectives: tuple[str, ...] | None
    host_callbacks: tuple[str, ...] | None


@dataclass(frozen=True)
class Bounds:
    """Upper bounds of the speed from published figures, in tokens/s of a chip; not measured.

    Williams et al. 2009, "Roofline", doi:10.1145/1498765.1498785.

    Attributes:
      intensity: operations per byte accessed.
      arithmetic: bound by the peak of products.
      memory: bound by the bandwidth of HBM, as if all bytes accessed were in HBM.
      hbm: bound by the same bandwidth for the bytes that are in HBM; None if they are unknown.
    """

    intensity: float
    arithmetic: float
    memory: float
    hbm: float | None
    pcie: float

    @classmethod
    def of(cls, report: ShapeReport, topology: Topology, precision: "FloatPrecision") -> "Bounds":
        """The bounds of one shape on one chip."""
        chip = topology.chip
        peak, bandwidth = chip.tflops * 1e12 / PASSES[precision], chip.hbm_gbps * 1e9
        hbm_bytes = report.hbm_bytes_per_token
        return cls(
            intensity=report.flops_per_token / report.bytes_per_token,
            arithmetic=peak / report.flops_per_token,
            memory=bandwidth / report.bytes_per_token,
            hbm=bandwidth / hbm_bytes if hbm_bytes else None,
            pcie=chip.pcie_gbps * 1e9 / report.left_bytes_per_token,
        )

    @property
    def roofline(self) -> float:
        """The lower of arithmetic and memory; a cautious bound, because VMEM is faster than HBM."""
        return min(self.arithmetic, self.memory)

    @property
    def hbm_roofline(self) -> float | None:
        """The lower of arithmetic and HBM, which no run can exceed; None if HBM's is unknown."""
        return None if self.hbm is None else min(self.arithmetic, self.hbm)

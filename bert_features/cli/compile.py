"""bert-features compile: compiles the device step for a TPU without having one."""

import dataclasses
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from bert_features.cli.command import command
from bert_features.cli.progress import Heartbeat
from bert_features.cli.settings import takes_settings
from bert_features.cli.tables import table
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.settings import INPUT
from bert_features.machine.quiet_tensorflow import import_tensorflow

if TYPE_CHECKING:
    from bert_features.tpu.job import ChipJob
    from bert_features.tpu.report import Bounds, ShapeReport

    _Bounded = tuple[ShapeReport, Bounds]

_MB = 1e6
# Those that decide what is computed, and how.
_SETTINGS = [
    name
    for name in (*ExtractConfig.names(decides="vectors"), *ExtractConfig.names(decides="digits"))
    if ExtractConfig.marks(name).group != INPUT
]


@command("compile --topology v5e:2x2 --architecture bert-base")
@takes_settings(*_SETTINGS)
def compile(
    topology: Annotated[
        str, typer.Option(help="Kind and grid of the TPU chips: v5e:2x2, v4:2x2x1, v6e:1x1, …")
    ],
    settings: ExtractConfig,
    architecture: Annotated[
        str | None,
        typer.Option(
            help="Published name of an architecture (bert-base, bert-large, …) to compile instead "
            "of a checkpoint. Only its shapes are needed."
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(min=1, help="Number of rows on each chip, instead of --batch-size."),
    ] = None,
    largest: Annotated[
        bool, typer.Option(help="Search for the largest batch that fits (not with attention).")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Compiles the device step for a TPU without having one.

    Shows the memory that it takes, its memory traffic and upper bounds of its speed. Takes the
    settings of `extract` except those of input and output files.
    """
    from bert_features.tpu.chips import parse_topology
    from bert_features.tpu.compile import TpuCompiler, prepare_process
    from bert_features.tpu.job import plan_job
    from bert_features.tpu.report import Bounds

    parse_topology(topology)  # fail before anything slow
    prepare_process()
    job = plan_job(settings, topology, architecture=architecture, rows=batch)
    with Heartbeat("starting the compiler") as heartbeat:
        import_tensorflow()
        reports: list[ShapeReport] = []
        pending = TpuCompiler(job).reports(largest=largest)
        for number, (rows, length) in enumerate(job.shapes, start=1):
            heartbeat.doing = f"compiling {rows} x {length}, {number} of {len(job.shapes)} shapes"
            reports.append(next(pending))
    bounded = [(report, Bounds.of(report, job.topology, job.precision)) for report in reports]
    print(_as_json(job, bounded) if as_json else "\n".join(_table(job, bounded)))


def _as_json(job: "ChipJob", bounded: "list[_Bounded]") -> str:
    shapes = []
    for report, bounds in bounded:
        figures = {
            **dataclasses.asdict(bounds),
            "roofline": bounds.roofline,
            "hbm_roofline": bounds.hbm_roofline,
        }
        shapes.append({**dataclasses.asdict(report), "bounds_not_measured": figures})
    return json.dumps(
        {
            "topology": job.topology.name,
            "chips": job.topology.chips,
            "chip": dataclasses.asdict(job.topology.chip),
            "model": job.name,
            "precision": job.precision,
            "packing": job.packed,
            "outputs": [
                {"name": o.name, "level": o.level, "width": o.width, "dtype": o.dtype}
                for o in job.outputs
            ],
            "shapes": shapes,
        },
        indent=2,
    )


def _listed(opcodes: tuple[str, ...] | None) -> str:
    return "unknown" if opcodes is None else ", ".join(opcodes) or "none"


# Name of each line of the table -> its text for a shape.
_LINES: dict[str, Callable[["ShapeReport", "Bounds"], str]] = {
    "compile time, s": lambda r, b: f"{r.compile_seconds:.1f}",
    "HBM: weights, MB": lambda r, b: f"{r.weight_bytes / _MB:,.1f}",
    "HBM: temporaries, MB": lambda r, b: f"{r.temporary_bytes / _MB:,.1f}",
    "HBM: outputs, MB": lambda r, b: f"{r.output_bytes / _MB:,.1f}",
    "largest batch that fits": lambda r, b: (
        "not searched" if r.largest_rows is None else f"{r.largest_rows:,}"
    ),
    "kernels": lambda r, b: "unknown" if r.kernels is None else f"{r.kernels}",
    "Mflop/token": lambda r, b: f"{r.flops_per_token / 1e6:,.1f}",
    "bytes accessed, kB/token": lambda r, b: f"{r.bytes_per_token / 1e3:,.1f}",
    "  in HBM, kB/token": lambda r, b: (
        "unknown" if r.hbm_bytes_per_token is None else f"{r.hbm_bytes_per_token / 1e3:,.1f}"
    ),
    "flop/byte accessed": lambda r, b: f"{b.intensity:,.0f}",
    "roofline, tokens/s": lambda r, b: f"{b.roofline:,.0f}",
    "  bound by": lambda r, b: "arithmetic" if b.arithmetic <= b.memory else "memory",
    "  with HBM traffic alone": lambda r, b: (
        "unknown" if b.hbm_roofline is None else f"{b.hbm_roofline:,.0f}"
    ),
    "output to host, B/token": lambda r, b: f"{r.left_bytes_per_token:,.0f}",
    "  over PCIe, ns/token": lambda r, b: f"{1e9 / b.pcie:,.1f}",
    "  PCIe bound, tokens/s": lambda r, b: f"{b.pcie:,.0f}",
    "collectives": lambda r, b: _listed(r.collectives),
    "host callbacks": lambda r, b: _listed(r.host_callbacks),
}


def _table(job: "ChipJob", bounded: "list[_Bounded]") -> list[str]:
    topology, chip = job.topology, job.topology.chip
    rows = [[name, *(line(*each) for each in bounded)] for name, line in _LINES.items()]
    head = ["shape on a chip", *(f"{report.rows} x {report.length}" for report, _ in bounded)]
    outputs = ", ".join(f"{o.name} ({o.level}, {o.width} of {o.dtype})" for o in job.outputs)
    return [
        f"{job.name} in {job.precision} for {topology.name}: {topology.chips} chips, each with "
        f"{chip.tflops:,g} TFLOP/s, {chip.hbm_gib:g} GiB of HBM at {chip.hbm_gbps:,g} GB/s, PCIe "
        f"at {chip.pcie_gbps:g} GB/s",
        f"outputs: {outputs}",
        *(["Texts share rows; --no-packing gives each a row of its own."] if job.packed else []),
        "",
        table(rows, head=head, right=range(1, len(head))),
        "",
        "Figures are for one chip. Nothing ran on a TPU: bounds follow from published peaks.",
    ]

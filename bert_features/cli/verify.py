"""bert-features verify: checks the numbers that this device computes."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bert_features.cli.command import command, device_option
from bert_features.cli.settings import takes_settings
from bert_features.cli.tables import table
from bert_features.config.bert_config import CheckpointOptions
from bert_features.config.extract_config import ExtractConfig
from bert_features.files import check_target, real_target, write_whole
from bert_features.files.reporting import describe_size
from bert_features.machine.names import describe_devices
from bert_features.machine.quiet_tensorflow import import_tensorflow

if TYPE_CHECKING:
    from bert_features.verify.report import Check, Report, Timing

# Wide enough for every value, so that each row can be printed as soon as it is known.
_COLUMNS = {"check": 13, "precision": 9, "result": 7, "measured": 8, "allowed": 8, "compared": 0}
_SIGNS = {"deviation": "<=", "cosine": ">="}


@command("verify minilm --device cpu")
@takes_settings(
    *CheckpointOptions.__annotations__, "do_lower_case", "device", "runtime", config=False
)
def verify(
    settings: ExtractConfig,
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="Checkpoint to check with: as for extract.")
    ] = "minilm",
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        device_option(help="Precision of the arithmetic; auto checks float32, then bfloat16."),
    ] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="JSON file to write, for an issue: the checks, versions, devices and the speed, "
            "which it measures for a minute or more.",
        ),
    ] = None,
) -> None:
    """Checks that this device computes the right numbers.

    Computes every layer of a few texts. Compares them with stored values (of the embedded model),
    with an encoder in plain NumPy, with the same texts in other batches, in other lengths and on
    each device, and with the other runtime. On a TPU with JAX it also times both forms of
    attention. With --report it also measures tokens/s of the device alone, of the host alone, and
    of extract, and the share of a TPU's peak that they use. The exit status is 1 if a check fails.

    In float32 a value may differ by 1e-5 plus 2e-6 times the largest value of its vector; between
    programs 1e-5 times. The table shows differences divided by what the second part adds.
    """
    from bert_features.checkpoints.find import find_without_tensorflow

    if report:
        check_target(real_target(report), overwrite=True)
    files = settings.checkpoint_options()
    # Refuses at once: importing TensorFlow takes seconds.
    find_without_tensorflow(checkpoint, **files)
    import_tensorflow(settings.runtime, settings.device)

    head = tuple(_COLUMNS)

    def show(check: "Check") -> None:
        """Prints its row as soon as a check is done: on a TPU each check compiles for a while."""
        nonlocal head
        print(table([_row(check)], head=head, widths=[*_COLUMNS.values()]), flush=True)
        head = ()

    from bert_features.verify.run import PRECISIONS
    from bert_features.verify.run import verify as run

    found = run(
        checkpoint,
        precisions=PRECISIONS if precision == "auto" else (precision,),
        device=settings.device,
        runtime=settings.runtime,
        do_lower_case=settings.do_lower_case,
        progress=None if as_json else show,
        speed=report is not None,
        **files,
    )
    values = json.dumps(found.as_dict(), indent=1)
    if report:
        write_whole(report, values + "\n")
    if as_json:
        print(values)
    else:
        print("\n".join(["", *_speeds(found), *_surroundings(found), _summary(found)]))
    if not found.passed:
        raise typer.Exit(1)


def _row(check: "Check") -> tuple[str, ...]:
    measured = allowed = "-"
    if check.measured is not None:
        digits = ".1e" if check.measure == "deviation" else ".6f"
        measured = f"{check.measured:{digits}}"
        allowed = f"{_SIGNS[check.measure]} {check.limit:g}"
    return check.name, check.precision, check.outcome, measured, allowed, check.compared


def _speeds(report: "Report") -> list[str]:
    """The lines about both forms of attention; none where they were not timed."""
    if not report.timings:
        return []
    head = ["length", *report.timings[0].seconds]
    speeds = table(list(map(_speeds_of, report.timings)), head=head, right=range(len(head)))
    return ["tokens/s by form of attention:", speeds, _advice(report), ""]


def _speeds_of(timing: "Timing") -> list[str]:
    speeds = [timing.tokens_per_second(form) for form in timing.seconds]
    return [str(timing.length), *("failed" if s is None else f"{s:,.0f}" for s in speeds)]


def _surroundings(report: "Report") -> list[str]:
    """The lines about the machine and its speed; none where it was not measured."""
    found = report.surroundings
    if found is None:
        return []
    chips = [
        f"{count} x {kind}" + (f", {describe_size(memory)} each" if memory else "")
        for (kind, memory), count in Counter(
            (chip["kind"], chip["memory_bytes"]) for chip in found.chips
        ).items()
    ]
    versions = ", ".join(f"{name} {v}" for name, v in found.versions.items() if v)
    rows = [
        (
            speed.part,
            str(speed.length),
            speed.problem or f"{speed.tokens_per_second:,.0f}",
            "-" if speed.utilisation is None else f"{speed.utilisation:.1%}",
        )
        for speed in found.speeds
    ]
    head = ("part", "length", "tokens/s", "of peak")
    return [
        f"versions: {versions}",
        f"devices: {'; '.join(chips)}",
        f"speed in {found.precision}, the mean of each row:",
        table(rows, head=head, right=(1, 2, 3)),
        "",
    ]


def _advice(report: "Report") -> str:
    """Which form of attention is faster here, and how to ask for it."""
    if any(check.name == "attention" and check.outcome == "fail" for check in report.checks):
        return "attention by pallas is wrong here: in extract keep --attention xla, the default"
    gains = {t.length: t.gain for t in report.timings if t.gain is not None}
    faster = {length: gain for length, gain in gains.items() if gain > 1}
    if not gains:
        return "attention by pallas does not run here: in extract keep --attention xla, the default"
    if not faster:
        return "xla is faster, and is the default: there is nothing to set"
    lengths = ", ".join(map(str, faster))
    return (
        f"pallas is faster for rows of {lengths} tokens, up to {max(faster.values()):.2f} times: "
        "pass --attention pallas to extract for them"
    )


def _summary(report: "Report") -> str:
    counts = Counter[str](check.outcome for check in report.checks)
    words = {"pass": "passed", "fail": "failed", "skipped": "skipped"}
    results = ", ".join(f"{counts[o]} {word}" for o, word in words.items() if counts[o])
    devices = describe_devices(report.device, report.device_count)
    return f"{report.checkpoint} on {devices}, {report.runtime} runtime: {results}"

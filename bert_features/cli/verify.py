"""bert-features verify: whether the device at hand computes what it should."""

import json
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bert_features.cli.command import (
    CasingOption,
    ConfigFileOption,
    DebugOption,
    HiddenActOption,
    VocabFileOption,
    command,
)
from bert_features.machine.quiet_tensorflow import import_tensorflow

if TYPE_CHECKING:
    from bert_features.verify.checks import Check, Report

# Wide enough for whatever stands in them, so that a row can be printed when it is done.
_COLUMNS = {
    "check": 13,
    "precision": 9,
    "result": 7,
    "measured": 8,
    "allowed": 8,
    "compared": 0,
}
_SIGNS = {"deviation": "<=", "cosine": ">="}


@command
def verify(
    checkpoint: Annotated[
        str, typer.Argument(metavar="[CHECKPOINT]", help="Whatever --checkpoint takes.")
    ] = "minilm",
    device: Annotated[
        Literal["auto", "tpu", "gpu", "cpu"],
        typer.Option(help="Where to run; auto takes TPU, GPU or CPU, in that order."),
    ] = "auto",
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        typer.Option(help="Of the arithmetic; auto checks float32, then bfloat16."),
    ] = "auto",
    runtime: Annotated[
        Literal["auto", "tensorflow", "jax"],
        typer.Option(help="What to run on; it is compared with the other one."),
    ] = "auto",
    config_file: ConfigFileOption = None,
    vocab_file: VocabFileOption = None,
    hidden_act: HiddenActOption = None,
    uncased: CasingOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON in place of a table.")
    ] = False,
    debug: DebugOption = False,
) -> None:
    """Checks that the device computes the right numbers, whatever the batch, padding and runtime.

    Compares every layer of a few texts with stored values (of the embedded model), with an encoder
    in plain NumPy, with themselves in other batches, lengths and on each device, and with the other
    runtime. The exit status is 1 if a check fails.
    """
    import_tensorflow(runtime, device)
    from bert_features.verify.checks import PRECISIONS
    from bert_features.verify.checks import verify as run

    report = run(
        checkpoint,
        precisions=PRECISIONS if precision == "auto" else (precision,),
        device=device,
        runtime=runtime,
        config_file=config_file,
        vocab_file=vocab_file,
        hidden_act=hidden_act,
        do_lower_case=uncased,
        progress=None if as_json else _Table().add,
    )
    print(json.dumps(report.as_dict(), indent=1) if as_json else f"\n{_summary(report)}")
    if not report.passed:
        raise typer.Exit(1)


class _Table:
    """Prints a row for each check, at once: on a TPU each takes a while to compile."""

    def __init__(self) -> None:
        self._begun = False

    def add(self, check: "Check") -> None:
        """A row, below the head if it is the first."""
        if not self._begun:
            self._print(tuple(_COLUMNS))
        self._begun = True
        self._print(_row(check))

    def _print(self, cells: tuple[str, ...]) -> None:
        padded = (cell.ljust(width) for cell, width in zip(cells, _COLUMNS.values(), strict=True))
        print("  ".join(padded), flush=True)


def _row(check: "Check") -> tuple[str, ...]:
    measured = allowed = "-"
    if check.measured is not None:
        digits = ".1e" if check.measure == "deviation" else ".6f"
        measured = f"{check.measured:{digits}}"
        allowed = f"{_SIGNS[check.measure]} {check.limit:g}"
    return check.name, check.precision, check.outcome, measured, allowed, check.compared


def _summary(report: "Report") -> str:
    outcomes = [check.outcome for check in report.checks]
    counts = {
        "passed": outcomes.count("pass"),
        "failed": outcomes.count("fail"),
        "skipped": outcomes.count("skipped"),
    }
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    devices = f"{report.device_count} {report.device.upper()} device(s)"
    return f"{report.checkpoint} on {devices}, {report.runtime} runtime: {told}"

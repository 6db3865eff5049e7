"""bert-features verify: checks the numbers that this device computes."""

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
    from bert_features.verify.report import Check, Report

# Wide enough for every value, so that each row can be printed as soon as it is known.
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
        str,
        typer.Argument(
            metavar="CHECKPOINT", help="Checkpoint to check with: any value of --checkpoint."
        ),
    ] = "minilm",
    device: Annotated[
        Literal["auto", "tpu", "gpu", "cpu"],
        typer.Option(help="Device to check; auto takes a TPU, a GPU or the CPU, in that order."),
    ] = "auto",
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        typer.Option(help="Precision of the arithmetic; auto checks float32, then bfloat16."),
    ] = "auto",
    runtime: Annotated[
        Literal["auto", "tensorflow", "jax"],
        typer.Option(help="Runtime to check; it is compared with the other one."),
    ] = "auto",
    config_file: ConfigFileOption = None,
    vocab_file: VocabFileOption = None,
    hidden_act: HiddenActOption = None,
    uncased: CasingOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    debug: DebugOption = False,
) -> None:
    """Checks that this device computes the right numbers.

    Computes every layer of a few texts. Compares them with stored values (of the embedded model),
    with an encoder in plain NumPy, with the same texts in other batches, in other lengths and on
    each device, and with the other runtime. The exit status is 1 if a check fails.

    In float32 a value may differ by 1e-5, and by 2e-6 of the largest value of its vector; between
    programs, by 1e-5 of that. The table shows differences divided by what the second part adds.
    """
    from bert_features.checkpoints.find import find_without_tensorflow

    find_without_tensorflow(  # refuses at once: importing TensorFlow takes seconds
        checkpoint,
        config_file=config_file,
        vocab_file=vocab_file,
        hidden_act=hidden_act,
        network=False,
    )
    import_tensorflow(runtime, device)
    from bert_features.verify.run import PRECISIONS
    from bert_features.verify.run import verify as run

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
    """Prints a row as soon as its check is done: on a TPU each check compiles for a while."""

    def __init__(self) -> None:
        self._begun = False

    def add(self, check: "Check") -> None:
        """Prints a row; the first one comes below the head of the table."""
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
    results = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    devices = f"{report.device_count} {report.device.upper()} device(s)"
    return f"{report.checkpoint} on {devices}, {report.runtime} runtime: {results}"

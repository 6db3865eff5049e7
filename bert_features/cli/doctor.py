"""bert-features doctor: finds what is wrong here and prints the commands that fix it."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bert_features import __version__
from bert_features.check.examination import IMPORT_SECONDS, examine, is_broken
from bert_features.check.finding import Finding
from bert_features.cli.command import command, device_option
from bert_features.cli.settings import as_option, takes_settings
from bert_features.cli.tables import table
from bert_features.config.bert_config import CheckpointOptions
from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import ConfigError
from bert_features.machine.quiet_tensorflow import import_tensorflow

_COLOURS = {"ok": "green", "note": "cyan", "warning": "yellow", "broken": "red"}
# Wide enough for every check, so that each row can be printed as soon as it is known.
_WIDTHS = (7, 23)


@command(
    "doctor --output features/",
    "doctor --numbers minilm --device cpu",
    "doctor --numbers bert-base-uncased --tutorials",
)
@takes_settings(
    *CheckpointOptions.__annotations__, "do_lower_case", "device", "runtime", config=False
)
def doctor(
    settings: ExtractConfig,
    checkpoint: Annotated[
        str | None,
        typer.Argument(
            metavar="[CHECKPOINT]",
            help="Checkpoint for --numbers: as for extract. [default: minilm]",
        ),
    ] = None,
    numbers: Annotated[
        bool,
        typer.Option("--numbers", help="Also check that this device computes the right numbers."),
    ] = False,
    tutorials: Annotated[
        bool,
        typer.Option(
            "--tutorials",
            help="With --numbers: also compare with what tutorials print for bert-base-uncased.",
        ),
    ] = False,
    precision: Annotated[
        Literal["float32", "bfloat16"] | None,
        device_option(help="Precision of the arithmetic for --numbers. Default: both."),
    ] = None,
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder that features will be written to.")
    ] = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    timeout: Annotated[
        float, typer.Option(min=1, help="Time limit of an import, in seconds.")
    ] = IMPORT_SECONDS,
) -> None:
    """Finds problems of this installation and the commands that fix them.

    Imports TensorFlow and JAX in separate processes, so that an import that aborts is reported.
    `note` means that something optional is absent. `warning` means that runs work, but not as well
    as they could. `broken` means that no run works; the exit status is then 1.

    If nothing is broken, --numbers computes every layer of a few texts on this device. It compares
    them with stored values (of the embedded model), with an encoder in plain NumPy, and with the
    same texts in other batches, in other lengths and on each device. `broken` then means that a
    number is wrong. In float32 a value may differ by 1e-5 plus 2e-6 times the largest value of its
    vector; between programs 1e-5 times. The table shows differences divided by what the second
    part adds.

    --tutorials also shows the pieces, vectors and cosines that the BERT tutorials print, beside
    those of this checkpoint, with segment ids 1 and 0. `broken` then means that a checkpoint of
    BERT-Base's size agrees with no edition.
    """
    if not numbers:
        _refuse_options_of_numbers(settings, checkpoint, precision, tutorials=tutorials)
    findings = examine(output, seconds=timeout)
    if not as_json:
        print(_rows(findings), flush=True)
    if numbers and not is_broken(findings):
        for finding in _numbers(checkpoint or "minilm", precision, settings, tutorials=tutorials):
            findings.append(finding)
            if not as_json:  # on a TPU each check compiles for a while
                print(_rows([finding]), flush=True)
    if as_json:
        report = {
            "bert_features": __version__,
            "broken": is_broken(findings),
            "findings": [dataclasses.asdict(finding) for finding in findings],
        }
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        print(_summary(findings))
    if is_broken(findings):
        raise typer.Exit(1)


def _refuse_options_of_numbers(
    settings: ExtractConfig, checkpoint: str | None, precision: str | None, *, tutorials: bool
) -> None:
    options = {"CHECKPOINT": checkpoint, "--precision": precision, "--tutorials": tutorials or None}
    names = [name for name, value in options.items() if value is not None]
    names += map(as_option, sorted(settings.model_fields_set))
    if names:
        raise ConfigError(f"{', '.join(names)} without --numbers: only that check uses it")


def _numbers(
    checkpoint: str,
    precision: Literal["float32", "bfloat16"] | None,
    settings: ExtractConfig,
    *,
    tutorials: bool,
) -> Iterator[Finding]:
    from bert_features.checkpoints.find import find_without_tensorflow

    files = settings.checkpoint_options()
    # Refuses at once: importing TensorFlow takes seconds.
    find_without_tensorflow(checkpoint, **files)
    import_tensorflow(settings.runtime, settings.device)
    from bert_features.check.numbers import PRECISIONS, check_numbers

    how: dict[str, Any] = {
        "device": settings.device,
        "runtime": settings.runtime,
        "do_lower_case": settings.do_lower_case,
        **files,
    }
    precisions = (precision,) if precision else PRECISIONS
    yield from check_numbers(checkpoint, precisions=precisions, **how)
    if tutorials:
        from bert_features.check.tutorials import check_tutorials

        yield from check_tutorials(checkpoint, **how)


def _rows(findings: list[Finding]) -> str:
    """One line for each check, and below it the remedy alone, so that it can be copied."""
    from rich.text import Text

    rows: list[tuple[str | Text, str, str]] = []
    for finding in findings:
        status = Text(finding.status, style=_COLOURS[finding.status])
        rows.append((status, finding.check, finding.found))
        rows += [("", "", finding.remedy)] if finding.remedy else []
    return table(rows, widths=_WIDTHS)


def _summary(findings: list[Finding]) -> str:
    counts = {s: sum(finding.status == s for finding in findings) for s in ("broken", "warning")}
    return f"{counts['broken']} broken, {counts['warning']} warnings"

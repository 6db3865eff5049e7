"""bert-features doctor: finds what is wrong here and prints the commands that fix it."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from bert_features import __version__
from bert_features.cli.command import command
from bert_features.cli.tables import table
from bert_features.doctor.examination import IMPORT_SECONDS, examine, is_broken
from bert_features.doctor.finding import Finding

_COLOURS = {"ok": "green", "note": "cyan", "warning": "yellow", "broken": "red"}


@command("doctor --output features/")
def doctor(
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
    """
    findings = examine(output, seconds=timeout)
    print(_json(findings) if as_json else _table(findings))
    if is_broken(findings):
        raise typer.Exit(1)


def _json(findings: list[Finding]) -> str:
    report = {
        "bert_features": __version__,
        "broken": is_broken(findings),
        "findings": [dataclasses.asdict(finding) for finding in findings],
    }
    return json.dumps(report, indent=2, ensure_ascii=False)


def _table(findings: list[Finding]) -> str:
    """One line for each check, and below it the remedy alone, so that it can be copied.

    The last line counts the problems.
    """
    from rich.text import Text

    rows: list[tuple[str | Text, str, str]] = []
    for finding in findings:
        status = Text(finding.status, style=_COLOURS[finding.status])
        rows.append((status, finding.check, finding.found))
        rows += [("", "", finding.remedy)] if finding.remedy else []
    counts = {s: sum(finding.status == s for finding in findings) for s in ("broken", "warning")}
    return f"{table(rows)}\n{counts['broken']} broken, {counts['warning']} warnings"

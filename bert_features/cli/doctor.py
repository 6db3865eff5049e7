"""bert-features doctor: what is wrong here, and the commands that mend it."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from bert_features import __version__
from bert_features.cli.command import DebugOption, command
from bert_features.doctor import IMPORT_SECONDS, Finding, examine, is_broken

_COLOURS = {"ok": "green", "warning": "yellow", "broken": "red"}


@command
def doctor(
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder that features are to be written to.")
    ] = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
    timeout: Annotated[
        float, typer.Option(min=1, help="Seconds after which an import counts as hanging.")
    ] = IMPORT_SECONDS,
    debug: DebugOption = False,
) -> None:
    """Checks the installation and the machine, and tells the commands that mend what is wrong.

    TensorFlow and JAX are imported in processes of their own, so that one that aborts is reported.
    `warning`: runs work, though not as well as they could. `broken`: something stops every run, and
    the exit status is 1.
    """
    findings = examine(output, seconds=timeout)
    # Not print: this leaves colours out where no terminal is.
    typer.echo(_json(findings) if as_json else "\n".join(_lines(findings)))
    if is_broken(findings):
        raise typer.Exit(1)


def _json(findings: list[Finding]) -> str:
    report = {
        "bert_features": __version__,
        "broken": is_broken(findings),
        "findings": [dataclasses.asdict(finding) for finding in findings],
    }
    return json.dumps(report, indent=2, ensure_ascii=False)


def _lines(findings: list[Finding]) -> list[str]:
    """One line for each check and, below it, whole and alone, so that it can be copied, a command.

    The last line counts.
    """
    width = max(len(finding.check) for finding in findings)
    lines = []
    for finding in findings:
        status = typer.style(f"{finding.status:<8}", fg=_COLOURS[finding.status])
        lines.append(f"{status} {finding.check:<{width}}  {finding.found}")
        if finding.remedy:
            lines.append(f"{'':8} {'':{width}}  {finding.remedy}")
    counts = {s: sum(finding.status == s for finding in findings) for s in ("broken", "warning")}
    return [*lines, f"{counts['broken']} broken, {counts['warning']} warnings"]

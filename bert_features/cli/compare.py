"""bert-features compare: whether the vectors of two files, services or models may be compared."""

import json
import os
from dataclasses import asdict
from typing import Annotated

import typer

from bert_features.cli.command import command
from bert_features.config.serve_settings import TOKEN

_SIDE = (
    "Features file or folder, address of a service (http://...), export, TOML file of settings, or "
    "checkpoint. A checkpoint takes the settings of a features file or TOML file on the other side."
)


@command(
    "compare old.parquet new.parquet",
    "compare features/ http://127.0.0.1:8000",
    "compare features/ path/to/checkpoint --json",
)
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help=_SIDE)],
    b: Annotated[str, typer.Argument(metavar="B", help="The other side, as A.")],
    feature: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Compare this feature alone; NAME=NAME for two names."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Says whether the vectors of two files, services or models may be compared.

    Compares how the vectors were made, and the vectors of eight fixed texts that each side has.
    Prints a line for each feature: same, rounded or other. The exit status is 1 if one is other.
    The token of a service is in the variable BERT_FEATURES_TOKEN.
    """
    from bert_features.serving.compare import compare as compare_sides

    rows = compare_sides(a, b, feature=feature, token=os.environ.get(TOKEN) or None)
    if as_json:
        print(json.dumps({"a": a, "b": b, "features": [asdict(each) for each in rows]}, indent=2))
    else:
        for each in rows:
            names = each.feature + f" = {each.other}" * (each.other != each.feature)
            print(each if len(rows) == 1 and each.other == each.feature else f"{names}: {each}")
    if not all(each.may_be_compared for each in rows):
        raise typer.Exit(1)

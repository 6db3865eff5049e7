"""Options that several kinds of `bert-features plot` share."""

from typing import Annotated

import typer

from bert_features.config.settings import FILES, INPUT, OUTPUTS

# Not a Path, which would make one slash of the two in an address.
OutputOption = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        help="File to write: .png, .svg, or .html for an interactive report in a single file.",
        rich_help_panel=FILES,
    ),
]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace an existing file.", rich_help_panel=FILES)
]
LayerOption = Annotated[
    str | None,
    typer.Option(
        "--layer",
        help="Layer to show: -L to L-1, or embeddings; by default the last, in a histogram all. An "
        ".html file has all, and begins with this one.",
        show_default=False,
        rich_help_panel=OUTPUTS,
    ),
]
LayersOption = Annotated[
    str | None,
    typer.Option(
        "--layers",
        help="Layers to compare, as --layers=embeddings,0,-1; by default all.",
        show_default=False,
        rich_help_panel=OUTPUTS,
    ),
]
LabelFieldOption = Annotated[
    str | None,
    typer.Option(
        "--label-field",
        help="Column or JSON field of the labels.",
        show_default=False,
        rich_help_panel=INPUT,
    ),
]
InputArgument = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="File of labelled texts: csv, tsv, jsonl or Parquet.",
        show_default=False,
    ),
]

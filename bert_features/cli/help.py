"""The help of a command: its options in groups, and examples below them."""

import copy
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from bert_features.config.settings import DEVICES, FILES, INPUT, LIMITS, LONG_TEXTS, MODEL, OUTPUTS

OTHER = "Other options"
# The groups of options, in their order; a command shows those that it has.
GROUPS = ("Arguments", FILES, INPUT, MODEL, OUTPUTS, LONG_TEXTS, DEVICES, LIMITS, OTHER)

# Command -> lines that can be copied.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "check": (
        "bert-features check features.parquet",
        "bert-features check features/ --repair",
    ),
    "compile": ("bert-features compile --topology v5e:2x2 --architecture bert-base",),
    "convert": ("bert-features convert bert-tiny bert-tiny-safetensors --to safetensors",),
    "doctor": ("bert-features doctor --output features/",),
    "download": ("bert-features download bert-tiny", "bert-features download --list"),
    "export": (
        "bert-features export --to exported --signature text --output-spec "
        '\'name = "s", level = "sequence", pooling = "mean"\'',
    ),
    "extract": (
        "bert-features extract texts.txt -o features.parquet",
        "bert-features extract texts.csv -o vectors.npz --layers=-1 --level sequence "
        "--long-text window",
        "bert-features extract 'data/*.txt' --output features/",
        "bert-features extract 'data/*.txt' --output features/ --ray local",
    ),
    "inspect": ("bert-features inspect minilm",),
    "neighbors": (
        "bert-features neighbors vectors.npz --query 'A cat sat' --texts texts.csv",
        "bert-features neighbors tokens.arrow --query 'the bank of the river' --token bank",
    ),
    "plan": ("bert-features plan texts.txt --max-seq-length 256",),
    "plot": (
        "bert-features plot histogram 'They sat by the river bank.' --token bank -o bank.png",
        "bert-features plot similarity 'A dog barked.' 'The cat ran off.' -o tokens.html",
        "bert-features plot word bank lines.tsv --label-field sense -o bank.svg",
        "bert-features plot scatter labelled.csv --label-field topic -o topics.png",
        "bert-features plot probe labelled.csv --label-field topic -o probe.html",
    ),
    "serve": (
        "bert-features serve --port 8000",
        "bert-features serve --checkpoint bert-base-uncased --replicas 2 --token-file token.txt",
    ),
    "status": ("bert-features status features/",),
    "tokenize": (
        "bert-features tokenize texts.txt --format ids",
        "bert-features tokenize texts.csv --special-tokens --format jsonl",
    ),
    "verify": ("bert-features verify minilm --device cpu",),
}


_ALL = "bert_features.cli.help.all"  # key of the context: whether hidden options are shown


class GroupedCommand(TyperCommand):
    """A command whose help shows options in `GROUPS`, by their `rich_help_panel`.

    With hidden options it has two helps: `--help` for what most people need, and `--help-all`.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes each group as a section."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in GROUPS}
        left_out = 0
        parameter: Any
        for parameter in self.get_params(ctx):
            if getattr(parameter, "hidden", False):
                if not ctx.meta.get(_ALL):
                    left_out += 1
                    continue
                parameter = copy.copy(parameter)
                parameter.hidden = False
            record = parameter.get_help_record(ctx)
            if record is not None:
                groups[_group(parameter)].append(record)
        for name, records in groups.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)
        if left_out:
            formatter.write_paragraph()
            formatter.write(f"{left_out} more options: {ctx.command_path} --help-all\n")

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Writes the examples, each on a line of its own however long it is."""
        write_examples(formatter, EXAMPLES.get(self.name or "", ()))


def write_examples(formatter: Any, examples: tuple[str, ...]) -> None:
    """Writes examples as the last section of a help."""
    if examples:
        with formatter.section("Examples"):
            for example in examples:
                formatter.write(f"{'':{formatter.current_indent}}{example}\n")


def _show_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        context.meta[_ALL] = True
        print(context.get_help())
        raise typer.Exit


HelpAllOption = Annotated[
    bool,
    typer.Option(
        "--help-all",
        callback=_show_all,
        is_eager=True,
        help="Show this message with all options and exit.",
    ),
]


def _group(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return "Arguments"
    panel = getattr(parameter, "rich_help_panel", None)
    return panel if panel in GROUPS else OTHER

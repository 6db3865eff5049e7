"""The help of a command: its options in groups, and examples below them."""

import copy
import itertools
import re
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from bert_features.cli.settings import as_options
from bert_features.config.other_names import hint_of
from bert_features.config.settings import DEVICES, FILES, INPUT, LIMITS, LONG_TEXTS, MODEL, OUTPUTS

OTHER = "Other options"
# The groups of options, in their order; a command shows those that it has.
GROUPS = ("Arguments", FILES, OUTPUTS, INPUT, MODEL, LONG_TEXTS, DEVICES, LIMITS, OTHER)

# The commands, each the name of its module, by heads of the help. Few people need the last ones.
_RARE = "rare"
_HEADS = {
    "Features of texts": ("extract", "plan", "status", "check", "tokenize"),
    "What features are for": ("neighbors", "compare", "plot", "shuffle", "serve"),
    "Checkpoints": ("inspect", "convert", "export"),
    "This machine": ("doctor",),
    _RARE: ("compile",),
}
COMMANDS = tuple(itertools.chain.from_iterable(_HEADS.values()))
_EXAMPLES = """\
bert-features extract texts.txt -o features.parquet
bert-features neighbors features.parquet --query 'river bank' --token bank
bert-features serve --checkpoint bert-base-uncased"""

_WHOLE = 1000  # characters of a sentence, which click would cut at the end of the line
_ALL = "bert_features.cli.help.all"  # key of the context: whether hidden options are shown


class GroupedCommand(TyperCommand):
    """A command whose help shows options in `GROUPS`, by their `rich_help_panel`.

    With hidden options it has two helps: `--help` for what most people need, and `--help-all`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the command line; the error for an argument given as an option says so."""
        parsed: list[str]
        try:
            parsed = super().parse_args(ctx, args)
        except Exception as raised:  # its class is click's, or that of typer's copy of click
            error: Any = raised
            name = getattr(error, "option_name", "").lstrip("-").upper()
            if hint := as_options(hint_of(name.lower().replace("-", "_"))):
                error.possibilities = None
                error.message += f"; {hint}"
            arguments = [p for p in self.get_params(ctx) if p.param_type_name == "argument"]
            if any(name in re.findall(r"\w+", each.metavar or "") for each in arguments):
                error.possibilities = None
                error.message += f"; {name} is an argument: pass its value alone"
            raise
        return parsed

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
        """Writes the examples."""
        write_examples([self.epilog], formatter)


class CommandGroup(TyperGroup):
    """A group whose help has commands under heads, each with a whole sentence, and examples."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands; those of a group within are in the order of its module."""
        names = super().list_commands(ctx)
        return names if ctx.parent else sorted(names, key=COMMANDS.index)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the commands."""
        heads = {"Commands": self.list_commands(ctx)} if ctx.parent else _HEADS
        for head, names in heads.items():
            if head == _RARE:
                formatter.write_paragraph()
                formatter.write(f"Also, with a help of its own: {', '.join(names)}\n")
                continue
            with formatter.section(head):
                formatter.write_dl(
                    (name, self.commands[name].get_short_help_str(limit=_WHOLE)) for name in names
                )

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Writes examples: for a group within those of its commands."""
        epilogs = [each.epilog for each in self.commands.values()] if ctx.parent else [_EXAMPLES]
        write_examples(epilogs, formatter)


def write_examples(epilogs: Iterable[str | None], formatter: Any) -> None:
    """Writes the examples of commands, each on a line of its own however long it is."""
    examples = [line for epilog in epilogs if epilog for line in epilog.splitlines()]
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

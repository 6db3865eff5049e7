"""Parts that commands share: the app, the decorator that registers a command, common options."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args

import typer

from bert_features import __version__
from bert_features.cli.edge import guard
from bert_features.cli.help import CommandGroup, GroupedCommand, HelpAllOption
from bert_features.cli.logs import LOG_JSON, log_form, set_up_logging
from bert_features.cli.settings import option, set_signature
from bert_features.config.extract_config import FileFormat
from bert_features.config.settings import DEVICES, FILES, INPUT, OUTPUTS

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help: boxes cut option names at 80 columns, and rich reads [defaults] as markup.
    rich_markup_mode=None,
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]}
    # `--kind masked-lm` is `--kind masked_lm`, and `--batch_size` is `--batch-size`.
    | {"token_normalize_func": lambda token: token.replace("_", "-")},
    help="Contextual features from BERT checkpoints: text in, hidden layers out.",
)

# Options in a group of the help.
file_option = functools.partial(typer.Option, rich_help_panel=FILES)
input_option = functools.partial(typer.Option, rich_help_panel=INPUT)
output_option = functools.partial(typer.Option, rich_help_panel=OUTPUTS)
device_option = functools.partial(typer.Option, rich_help_panel=DEVICES)

InputArgument = Annotated[
    str,
    typer.Argument(
        metavar="INPUT",
        help="File of examples, or its address (gs://, s3://); - reads standard input.",
    ),
]
_FEATURES = "Features file or folder of shards; a folder may be an address (gs://, s3://)."
FeaturesArgument = Annotated[str, typer.Argument(metavar="FEATURES", help=_FEATURES)]
SeveralFeaturesArgument = Annotated[list[str], typer.Argument(metavar="FILE...", help=_FEATURES)]
FileFormatOption = Annotated[
    FileFormat | None,
    typer.Option("--format", help="Format of the file. Default: the suffix decides."),
]
AcceptOption = Annotated[
    bool,
    typer.Option(
        "--accept-new-numbers",
        help="Go on with a folder though this machine has other versions or computes other numbers "
        "than its run began with; its manifest records both.",
        hidden=True,
    ),
]
DebugOption = Annotated[
    bool, typer.Option("--debug", help="Show the traceback if the command fails.")
]
LogJsonOption = Annotated[
    bool, typer.Option(LOG_JSON, help="Write log lines and errors as JSON, one object a line.")
]


def command(
    *examples: str, group: typer.Typer = app
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Registers a command; its errors become one line and an exit status.

    It gets `--debug` and `--log-json`, and if it has hidden options `--help-all`. The examples are
    command lines, without `bert-features`, for the end of its help.
    """
    epilog = "\n".join(f"bert-features {example}" for example in examples)

    def register(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function)
        takes_debug = "debug" in signature.parameters

        @functools.wraps(function)
        def run(*, debug: bool, log_json: bool, help_all: bool = False, **given: Any) -> None:
            set_up_logging()
            with log_form(as_json=log_json), guard(debug=debug):
                function(**given, **({"debug": debug} if takes_debug else {}))

        options = {"debug": DebugOption, "log_json": LogJsonOption}
        if any(map(_is_hidden, signature.parameters.values())):
            options["help_all"] = HelpAllOption
        own = [each for each in signature.parameters.values() if each.name != "debug"]
        shared = [option(name, annotation, False) for name, annotation in options.items()]
        set_signature(run, [*own, *shared])
        group.command(cls=GroupedCommand, epilog=epilog)(run)
        return run

    return register


def _is_hidden(parameter: inspect.Parameter) -> bool:
    return any(getattr(part, "hidden", False) for part in get_args(parameter.annotation)[1:])


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"bert-features {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass

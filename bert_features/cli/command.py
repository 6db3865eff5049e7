"""Parts that commands share: the app, the decorator that registers a command, common options."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args

import typer

from bert_features import __version__
from bert_features.cli.edge import guard
from bert_features.cli.help import GroupedCommand, HelpAllOption
from bert_features.cli.logs import LOG_JSON, log_form, set_up_logging
from bert_features.cli.settings import setting_help
from bert_features.config.settings import MODEL

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help: boxes cut option names at 80 columns, and rich reads [defaults] as markup.
    rich_markup_mode=None,
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
    help="Contextual features from BERT checkpoints: text in, hidden layers out.",
)

InputArgument = Annotated[
    str,
    typer.Argument(
        metavar="INPUT",
        help="File of examples, or its address (gs://, s3://); - reads standard input.",
    ),
]
DebugOption = Annotated[
    bool, typer.Option("--debug", help="Show the traceback if the command fails.")
]
LogJsonOption = Annotated[
    bool,
    typer.Option(LOG_JSON, help="Write log lines and errors as JSON, one object a line."),
]
CheckpointOption = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        help=setting_help("checkpoint"),
        show_default=False,
        rich_help_panel=MODEL,
    ),
]
CasingOption = Annotated[
    bool | None,
    typer.Option(
        "--uncased/--cased",
        help=setting_help("do_lower_case"),
        show_default=False,
        rich_help_panel=MODEL,
    ),
]
ConfigFileOption = Annotated[
    str | None, typer.Option(help=setting_help("config_file"), rich_help_panel=MODEL)
]
VocabFileOption = Annotated[
    str | None, typer.Option(help=setting_help("vocab_file"), rich_help_panel=MODEL)
]
HiddenActOption = Annotated[
    Literal["gelu_erf", "gelu_tanh"] | None,
    typer.Option(help=setting_help("hidden_act"), rich_help_panel=MODEL),
]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Registers a command; its errors become one line and an exit status.

    It gets the option `--log-json`, of which the function knows nothing.
    """
    run = with_one_line_errors(function)
    app.command(cls=GroupedCommand)(run)
    return run


def with_one_line_errors(function: Callable[..., None]) -> Callable[..., None]:
    """The function of a command, with `--log-json`, and errors as one line and an exit status.

    If it has hidden options, it gets `--help-all` too.
    """

    @functools.wraps(function)
    def run(*args: Any, log_json: bool, help_all: bool = False, **kwargs: Any) -> None:
        set_up_logging()
        with log_form(as_json=log_json), guard(debug=kwargs["debug"]):
            function(*args, **kwargs)

    signature = inspect.signature(function)
    option = inspect.Parameter(
        "log_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=LogJsonOption
    )
    parameters = [*signature.parameters.values(), option]
    if any(_is_hidden(parameter) for parameter in parameters):
        parameters.append(option.replace(name="help_all", annotation=HelpAllOption))
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


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


def describe_size(count: float) -> str:
    """A number of bytes in a readable unit, as `1.2 MB`."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.2f} GB"

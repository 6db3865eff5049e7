"""What the commands share: the app, the decorator that registers one, and common options."""

import functools
import logging
import sys
import traceback
from collections.abc import Callable
from typing import Annotated, Any, Literal, NoReturn

import typer

from bert_features import __version__
from bert_features.errors import BertFeaturesError, ConfigError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help: the boxed kind cuts option names at 80 columns and takes [defaults] for markup.
    rich_markup_mode=None,
    context_settings={"max_content_width": 100},
    help="Contextual features from BERT checkpoints: text in, hidden layers out.",
)

# TensorFlow's, and JAX's now and before 0.5; by name, as neither is to be imported for this.
_DEVICE_ERRORS = {"OpError", "JaxRuntimeError", "XlaRuntimeError"}

InputArgument = Annotated[
    str, typer.Argument(metavar="INPUT", help="The file of examples; - for standard input.")
]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
CheckpointOption = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        help="`minilm` (the embedded all-MiniLM-L6-v2), a directory or file of a checkpoint, "
        "a published name (bert-base-uncased) or a Hugging Face repository.",
    ),
]
CasingOption = Annotated[
    bool | None,
    typer.Option(
        "--uncased/--cased",
        help="Lower-case and strip accents, or not; by default what the checkpoint says.",
        show_default=False,
    ),
]
ConfigFileOption = Annotated[
    str | None, typer.Option(help="bert_config.json or config.json, if not beside the weights.")
]
VocabFileOption = Annotated[str | None, typer.Option(help="vocab.txt, if not beside the weights.")]
HiddenActOption = Annotated[
    Literal["gelu_erf", "gelu_tanh"] | None,
    typer.Option(help="The form of GELU, if not the one of the checkpoint's family."),
]
EncodingErrorsOption = Annotated[
    Literal["strict", "replace"] | None,
    typer.Option(help="What to do with input that is not UTF-8. [default: strict]"),
]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Registers a command whose errors become one line and an exit status."""

    @app.command()
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        logging.basicConfig(format="%(message)s", level=logging.WARNING, stream=sys.stderr)
        logging.getLogger("bert_features").setLevel(logging.INFO)
        try:
            function(*args, **kwargs)
        except BertFeaturesError as error:
            _fail(str(error), 2 if isinstance(error, ConfigError) else 1, debug=kwargs["debug"])
        except KeyboardInterrupt:
            _fail("interrupted", 1, debug=kwargs["debug"])
        except Exception as error:
            if not _is_of_a_device(error):
                raise
            _fail(f"the device failed: {_first_line(error)}", 1, debug=kwargs["debug"])

    return run


def _is_of_a_device(error: Exception) -> bool:
    """Whether TensorFlow or XLA raised it: memory that another process has, a chip that is lost."""
    return not _DEVICE_ERRORS.isdisjoint(kind.__name__ for kind in type(error).__mro__)


def _first_line(error: Exception) -> str:
    said = next(iter(str(error).strip().splitlines()), "no message")
    return f"{type(error).__name__}: {said}"


def _fail(message: str, status: int, *, debug: bool) -> NoReturn:
    if debug:
        traceback.print_exc()
    print(f"bert-features: {message}", file=sys.stderr)
    raise typer.Exit(status)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"bert-features {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


def describe_size(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.2f} GB"

"""Options for the settings of `ExtractConfig`, made from its fields so that none is missing."""

import functools
import inspect
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Options with another name than their setting.
_FLAGS: dict[str, tuple[str, ...]] = {
    "do_lower_case": ("--uncased/--cased",),
    "vocab_file": ("--vocab-file", "--vocab"),
    "outputs": ("--output-spec",),
}
# How to write a value on the command line, where it differs from TOML.
_HELP: dict[str, str] = {
    "layers": "Write them as --layers=-1,-2.",
    "outputs": "Write each as the inside of a TOML table: --output-spec "
    '\'name = "s", level = "sequence", pooling = "mean"\'. May be given several times.',
}
_NO_DEFAULT = {"do_lower_case", "outputs"}  # their descriptions say what happens without them


def takes_settings(function: Callable[..., None]) -> Callable[..., None]:
    """Gives a command an option for each setting, and `--config`.

    The function receives them as its parameter `settings: ExtractConfig`.
    """
    return _with_options(function, tuple(ExtractConfig.model_fields))


def takes_settings_of(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Like `takes_settings`, with options for these settings alone; `--config` may set others."""
    return functools.partial(_with_options, names=names)


def _with_options(function: Callable[..., None], names: Sequence[str]) -> Callable[..., None]:
    parameters = dict(inspect.signature(function).parameters)
    at = list(parameters).index("settings")
    own = [parameter for name, parameter in parameters.items() if name != "settings"]
    options = [_config_option(), *map(_option, names)]
    signature = inspect.Signature(
        [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in [*own[:at], *options, *own[at:]]]
    )

    @functools.wraps(function)
    def run(**given: Any) -> None:
        values = {name: given.pop(name) for name in names}
        function(settings=_settings(given.pop("config"), values), **given)

    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    return run


def _config_option() -> inspect.Parameter:
    option = typer.Option(help="TOML file of settings. Options of the command line override it.")
    return _parameter("config", Annotated[Path | None, option])


def _option(name: str) -> inspect.Parameter:
    setting = ExtractConfig.model_fields[name]
    flags = _FLAGS.get(name, (_flag(name, setting),))
    option = typer.Option(*flags, help=setting_help(name), show_default=False)
    kind = list[str] | None if name == "outputs" else _type(setting.annotation)
    return _parameter(name, Annotated[kind, option])


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=None, annotation=annotation)


def _flag(name: str, setting: FieldInfo) -> str:
    flag = "--" + name.replace("_", "-")
    return f"{flag}/--no-{flag[2:]}" if bool in _members(setting.annotation) else flag


def setting_help(name: str) -> str:
    """The help of the option for a setting: its description and its default."""
    setting = ExtractConfig.model_fields[name]
    default = "" if setting.default is None or name in _NO_DEFAULT else _text(setting.default)
    parts = [setting.description, _HELP.get(name), f"[default: {default}]" if default else None]
    return " ".join(part for part in parts if part)


def _text(default: Any) -> str:
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return {True: "yes", False: "no"}.get(default, str(default))


def _members(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, without `Annotated`; any other type alone."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) is Literal or not get_args(annotation):
        return (annotation,)
    if get_origin(annotation) is tuple:
        return (tuple,)
    return tuple(member for part in get_args(annotation) for member in _members(part))


def _type(annotation: Any) -> Any:
    """The type that typer parses; lists arrive as text, which `_value` splits."""
    (member,) = (m for m in _members(annotation) if m is not type(None))
    return (str if member is tuple else member) | None


def _settings(path: Path | None, values: "Mapping[str, Any]") -> ExtractConfig:
    given = {k: _value(k, v) for k, v in values.items() if v is not None and v != []}
    return ExtractConfig.of(given) if path is None else ExtractConfig.load(path, **given)


def _value(name: str, value: Any) -> Any:
    if name == "outputs":
        return [parse_output(text) for text in value]
    if tuple in _members(ExtractConfig.model_fields[name].annotation):
        return parse_entries(_flag(name, ExtractConfig.model_fields[name]), value)
    return value


def parse_output(text: str) -> dict[str, Any]:
    """Parses `name = "s", layers = [-1]` into a dict."""
    try:
        table: dict[str, Any] = tomllib.loads(f"output = {{ {text} }}")["output"]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"--output-spec {text!r} is not the inside of a TOML table ({error}); write it like "
            '\'name = "s", layers = [-1, -2], combine = "sum"\''
        ) from error
    return table


def parse_entries(option: str, text: str) -> list[int | float | str]:
    """Parses `-1,-2,embeddings` into a list; words stay text, which the config checks."""
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise ConfigError(f"{option} is {text!r}; separate the entries with single commas")
    return [_number(word) for word in words]


def _number(word: str) -> int | float | str:
    if re.fullmatch(r"[+-]?\d+", word):
        return int(word)
    try:
        return float(word)
    except ValueError:
        return word

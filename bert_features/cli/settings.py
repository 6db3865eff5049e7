"""The settings of `ExtractConfig` as options: made from its fields, so that none is forgotten."""

import functools
import inspect
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Where an option is not called as its setting is.
_FLAGS: dict[str, tuple[str, ...]] = {
    "do_lower_case": ("--uncased/--cased",),
    "vocab_file": ("--vocab-file", "--vocab"),
    "outputs": ("--output-spec",),
}
# What the option's value looks like where it is not what the setting's description says.
_HELP: dict[str, str] = {
    "layers": "as in --layers=-1,-2",
    "outputs": "a TOML inline table without its braces, as in --output-spec "
    '\'name = "s", level = "sequence", pooling = "mean"\'; may be given several times',
}
_NO_DEFAULT = {"do_lower_case", "outputs"}  # their descriptions say it


def takes_settings(function: Callable[..., None]) -> Callable[..., None]:
    """Gives a command an option for each setting, and `--config`.

    The function's parameter `settings: ExtractConfig` is what they make together.
    """
    parameters = dict(inspect.signature(function).parameters)
    at = list(parameters).index("settings")
    own = [parameter for name, parameter in parameters.items() if name != "settings"]
    options = [_config_option(), *map(_option, ExtractConfig.model_fields)]
    signature = inspect.Signature(
        [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in [*own[:at], *options, *own[at:]]]
    )

    @functools.wraps(function)
    def run(**given: Any) -> None:
        values = {name: given.pop(name) for name in ExtractConfig.model_fields}
        function(settings=_settings(given.pop("config"), values), **given)

    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    return run


def _config_option() -> inspect.Parameter:
    option = typer.Option(help="A TOML file of settings; options here override it.")
    return _parameter("config", Annotated[Path | None, option])


def _option(name: str) -> inspect.Parameter:
    setting = ExtractConfig.model_fields[name]
    flags = _FLAGS.get(name, (_flag(name, setting),))
    option = typer.Option(*flags, help=_help(name, setting), show_default=False)
    kind = list[str] | None if name == "outputs" else _type(setting.annotation)
    return _parameter(name, Annotated[kind, option])


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=None, annotation=annotation)


def _flag(name: str, setting: FieldInfo) -> str:
    flag = "--" + name.replace("_", "-")
    return f"{flag}/--no-{flag[2:]}" if bool in _members(setting.annotation) else flag


def _help(name: str, setting: FieldInfo) -> str:
    text = (setting.description or "").replace("`", "")
    more = f"; {_HELP[name]}" if name in _HELP else ""
    default = "" if setting.default is None or name in _NO_DEFAULT else _text(setting.default)
    if text.split()[0].isalpha():  # not a file's name
        text = text[0].upper() + text[1:]
    return f"{text}{more}." + (f" [default: {default}]" if default else "")


def _text(default: Any) -> str:
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return {True: "yes", False: "no"}.get(default, str(default)) if default is not None else ""


def _members(annotation: Any) -> tuple[Any, ...]:
    """The types of a union, Annotated taken off; of another type, itself."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) is Literal or not get_args(annotation):
        return (annotation,)
    if get_origin(annotation) is tuple:
        return (tuple,)
    return tuple(member for part in get_args(annotation) for member in _members(part))


def _type(annotation: Any) -> Any:
    """What typer shall read; lists come as text, the parts of which `_value` tells."""
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
    """`name = "s", layers = [-1]` as a dict."""
    try:
        table: dict[str, Any] = tomllib.loads(f"output = {{ {text} }}")["output"]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"--output-spec {text!r} is not the inside of a TOML table ({error}); write it as in "
            '\'name = "s", layers = [-1, -2], combine = "sum"\''
        ) from error
    return table


def parse_entries(option: str, text: str) -> list[int | float | str]:
    """`-1,-2,embeddings` as a list; what is not a number stays a word, for the config to judge."""
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise ConfigError(f"{option} is {text!r}; separate the entries by single commas")
    return [_number(word) for word in words]


def _number(word: str) -> int | float | str:
    if re.fullmatch(r"[+-]?\d+", word):
        return int(word)
    try:
        return float(word)
    except ValueError:
        return word

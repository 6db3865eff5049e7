"""Options for the settings of `ExtractConfig`, made from its fields so that none is missing."""

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from bert_features.config.config_files import preset_names
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.kinds import level_for
from bert_features.config.outputs import OutputConfig
from bert_features.config.outputs import parse_output as check_output
from bert_features.config.serve_settings import Limits
from bert_features.config.settings import FILES, read_toml, shown
from bert_features.errors import ConfigError

# Options for keywords of `extract` that are no settings.
_KEYWORDS = {"ledger_path": "--ledger", "output_path": "--output"}
_CONFIG = Annotated[
    Path | None,
    typer.Option(
        help="TOML file of settings, or the name of one that comes with the package: "
        f"{', '.join(preset_names())}. Options of the command line override it.",
        rich_help_panel=FILES,
    ),
]
# The settings that errors name and `ExtractConfig` does not have.
_OTHERS = (
    *("accept_new_numbers", "ledger_path", "output_path", "overwrite", "processes", "ray"),
    *("ray_actors", "ray_resources", "allowed_hosts", "drain_seconds", "label_field", "signature"),
    "feature",
    *(f"max_{each.name}" for each in dataclasses.fields(Limits)),
)
_SETTING_OR_QUOTED = re.compile(
    r"""(?<!\w)'(?:[^'\\]|\\.|'(?=\w))*'|(?<!\w)"(?:[^"\\]|\\.)*"|"""
    rf"""(?<!: )(?<![\w./-])(?P<name>{"|".join((*ExtractConfig.known(), *_OTHERS))})"""
    r"""(?:=(?P<value>'[^']*'|[\w.]+)|(?![./=-]?\w))"""
)
_TYPES = get_type_hints(OutputConfig) | get_type_hints(ExtractConfig)
_NO_DEFAULT = {"do_lower_case", "outputs"}  # their descriptions say what happens without them


def takes_settings(
    *names: str,
    config: bool = True,
    kinds: Mapping[str, Any] | None = None,
    shown: Collection[str] = (),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command an option for each setting, and `--config`.

    The function receives them as its parameter `settings: ExtractConfig`.

    Args:
      *names: the settings; by default all.
      config: whether `--config` may set others. Without it the short help shows all of these.
      kinds: types of settings that have fewer values in this command.
      shown: settings that the short help of this command shows, beside those of all commands.
    """
    names = names or tuple(ExtractConfig.known())
    options = [option("config", _CONFIG)] if config else []
    kinds = kinds or {}
    options += [
        _option(name, kinds.get(name, _kind(name)), shown=not config or name in shown)
        for name in names
    ]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        def run(**given: Any) -> None:
            values = {name: given.pop(name) for name in names}
            if "level" not in names:
                values["level"] = level_for(n for n, value in values.items() if value is not None)
            settings = _settings(given.pop("config", None), values)
            function(settings=settings, **given)

        return _with_options(function, run, "settings", options)

    return decorate


def takes_fields_of(
    kind: type[Any], *, prefix: str = ""
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command an option for each field of a dataclass that has a help.

    The function receives their values by name, as its parameter of the name of the class in small
    letters. The name of each option begins with the prefix.
    """
    parameter = kind.__name__.lower()
    fields = {prefix + each.name: each for each in dataclasses.fields(kind) if each.metadata}
    options = []
    for name, each in fields.items():
        default: Any = each.default
        size = f", {default >> 20} MiB" if name.endswith("_bytes") else ""
        help = f"{each.metadata['help']} [default: {_text(default)}{size}]"
        panel = each.metadata["group"]
        hidden = not each.metadata["common"]
        declared = typer.Option(help=help, show_default=False, rich_help_panel=panel, hidden=hidden)
        options.append(option(name, Annotated[each.type, declared], each.default))

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        def run(**given: Any) -> None:
            values = {each.name: given.pop(name) for name, each in fields.items()}
            function(**given, **{parameter: values})

        return _with_options(function, run, parameter, options)

    return decorate


def _with_options(
    function: Callable[..., None],
    run: Callable[..., None],
    parameter: str,
    options: Sequence[inspect.Parameter],
) -> Callable[..., None]:
    """Gives `run`, which calls a function, its parameters, with options in the place of one."""
    parameters = list(inspect.signature(function).parameters.values())
    at = [each.name for each in parameters].index(parameter)
    functools.update_wrapper(run, function)
    set_signature(run, [*parameters[:at], *options, *parameters[at + 1 :]])
    return run


def set_signature(function: Callable[..., None], parameters: Sequence[inspect.Parameter]) -> None:
    """Makes typer see these parameters, each by keyword, as those of a function."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    signature = inspect.Signature([p.replace(kind=keyword) for p in parameters])
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in parameters}


def option(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    """A parameter of a command."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _option(name: str, kind: Any, *, shown: bool) -> inspect.Parameter:
    marks = ExtractConfig.marks(name)
    declared = typer.Option(
        *_flags(name),
        help=setting_help(name),
        rich_help_panel=marks.group,
        hidden=not (shown or marks.common),
    )
    text = list[str] if name == "outputs" else str  # `_value` parses it
    return option(name, Annotated[(text if get_origin(kind) is tuple else kind) | None, declared])


def _flags(name: str) -> tuple[str, ...]:
    """The names of an option, the usual one first."""
    flag = _KEYWORDS.get(name, "--" + name.replace("_", "-"))
    if name not in ExtractConfig.known():
        return (flag,)
    switch = f"{flag}/--no-{flag[2:]}" if _kind(name) is bool else flag
    return ExtractConfig.marks(name).flags or (switch,)


def _kind(name: str) -> Any:
    """The type of a setting, without None."""
    kind = _TYPES[name]
    return get_args(kind)[0] if type(None) in get_args(kind) else kind


def setting_help(name: str) -> str:
    """The help of the option for a setting: its description and its default."""
    setting = ExtractConfig.known()[name]
    default = "" if setting.default is None or name in _NO_DEFAULT else _text(setting.default)
    usage = ExtractConfig.marks(name).usage
    parts = [setting.description, usage, f"[default: {default}]" if default else None]
    return " ".join(part for part in parts if part)


def as_option(name: str, value: str = "") -> str:
    """A setting as the command line writes it: `--long-text window`, `--uncased`.

    The value is as Python writes it; empty for the name alone.
    """
    on, _, off = _flags(name)[0].partition("/")
    if value in ("", "True"):
        return on
    if value == "False":
        return off
    plain = value.strip("'\"") or "''"
    return f"{on}={plain}" if plain.startswith("-") else f"{on} {plain}"


def as_options(message: str) -> str:
    """A message whose settings Python writes, as `long_text='window'`, with options instead.

    Quoted values and keys of files, as in `x.json: hidden_act is 1`, stay. So do names of one word
    alone, as `layers`, which are words of English too.
    """

    def write(match: re.Match[str]) -> str:
        name, value = match["name"], match["value"] or ""
        return as_option(name, value) if value or "_" in (name or "") else match[0]

    return _SETTING_OR_QUOTED.sub(write, message)


def describe_cures(cures: Mapping[str, str]) -> str:
    """What to pass so that truncation cuts less off, as the end of a sentence.

    The cures are settings with their values as in Python.
    """
    options = " or ".join(as_option(*cure) for cure in cures.items())
    return f"; to keep more, pass {options}" if options else ""


def _text(default: Any) -> str:
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    if isinstance(default, bool):
        return "yes" if default else "no"
    return f"{default:.10g}" if isinstance(default, float) else str(default) or "none"


def _settings(path: Path | None, values: Mapping[str, Any]) -> ExtractConfig:
    changes = {k: _value(k, v) for k, v in values.items() if v is not None and v != []}
    return ExtractConfig.of(changes) if path is None else ExtractConfig.load(path, **changes)


def _value(name: str, value: Any) -> Any:
    if name == "outputs":
        return [parse_output(text) for text in value]
    if get_origin(_kind(name)) is tuple:
        return parse_entries(as_option(name), value)
    return value


def parse_output(text: str) -> OutputConfig:
    """Parses the value of --output-spec, as `name = "s", layers = [-1]`.

    Raises ConfigError if it is not the inside of a TOML table, or a setting is not allowed.
    """
    source = f"--output-spec {shown(text)}"
    try:
        table = read_toml(f"output = {{ {text} }}", source)["output"]
    except ConfigError as error:
        raise ConfigError(
            f"{error}; write the inside of a TOML table, as "
            '\'name = "s", layers = [-1, -2], combine = "sum"\''
        ) from error
    return check_output(table, source=source)


def parse_entries(option: str, text: str) -> list[int | float | str]:
    """Parses `-1,-2,embeddings` into a list; words stay text, which the config checks."""
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise ConfigError(f"{option} is {shown(text)}; separate the entries with single commas")
    return [_number(word) for word in words]


def _number(word: str) -> int | float | str:
    try:
        return int(word) if re.fullmatch(r"[+-]?\d+", word) else float(word)
    except ValueError:
        return word

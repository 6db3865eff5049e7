"""Settings: the base of the settings classes. Values are checked once and then frozen.

Whatever is known of a setting stands at its field: its type and bounds, its help, and its marks.
"""

import difflib
import reprlib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from bert_features.config.other_names import hint_of
from bert_features.errors import ConfigError

# NumPy and TensorFlow count rows and tokens in int32.
MAX_INT = 2**31 - 1
Positive = Annotated[int, Field(ge=1, le=MAX_INT)]
PathText = Annotated[
    str, BeforeValidator(lambda v: str(v) if isinstance(v, Path) else v), Field(min_length=1)
]

# What a setting decides: where vectors lie, or their digits alone (by its value or by what it
# resolves to); or only the bytes of a file, as its format and its texts do; or nothing.
# `config.recipe` says what has to agree for which use.
Decides = Literal["vectors", "digits", "bytes", "nothing"]
# Groups of settings, as a help shows them, and what their settings usually decide.
MODEL, OUTPUTS, LONG_TEXTS = "Model", "Outputs", "Long texts"
INPUT, DEVICES, FILES, LIMITS = "Input", "Devices and batches", "Files", "Limits"
_DECIDES: dict[str, Decides] = {
    **{MODEL: "vectors", OUTPUTS: "vectors", LONG_TEXTS: "vectors"},
    **{INPUT: "bytes", DEVICES: "digits", FILES: "bytes"},
}


@dataclass(frozen=True)
class Marks:
    """What a setting is, beside its type and its help.

    Attributes:
      common: whether the short help shows its option.
      served: whether the service takes it.
      flags: names of its option, if not its own.
      usage: how to write its value on the command line, where that differs from TOML.
      allowed: allowed values, where its type does not say them.
      reads: the part in a run of the file that it names; empty if it names none.
    """

    group: str
    decides: Decides
    common: bool = False
    served: bool = False
    flags: tuple[str, ...] = ()
    usage: str = ""
    allowed: str = ""
    reads: str = ""

    @classmethod
    def of(cls, field: FieldInfo) -> Self:
        """The marks of a field that `setting` made."""
        return cls(**field.json_schema_extra)  # type: ignore[arg-type]  # as `setting` made it


def setting(
    default: Any, help: str, group: str, *, min_length: int | None = None, **marks: Any
) -> Any:
    """A field of settings.

    Args:
      default: its default.
      help: one sentence or more.
      group: its group in a help; what it decides follows from it, if no mark says so.
      min_length: least length of a list or a text.
      **marks: see `Marks`. By default the service takes the settings that decide vectors or their
        digits.
    """
    decides = marks.pop("decides", _DECIDES[group])
    made = Marks(group, decides, **{"served": decides in ("vectors", "digits"), **marks})
    return Field(
        default=default, description=help, min_length=min_length, json_schema_extra=asdict(made)
    )


def describe_allowed(field: FieldInfo) -> str:
    """The values that a field allows, in words: by its marks, else by its type."""
    return Marks.of(field).allowed or _describe(field.annotation, field.metadata)


_TYPES = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}
_BOUNDS = {"ge": " of at least {}", "gt": " above {}", "min_length": " that is not empty"}


def _describe(kind: Any, bounds: Sequence[Any]) -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        fields = [each for each in arguments[1:] if isinstance(each, FieldInfo)]
        return _describe(arguments[0], [bound for each in fields for bound in each.metadata])
    if origin in (Union, UnionType):  # of a type and None
        return _describe(arguments[0], bounds)
    if origin is Literal:
        *others, last = map(repr, arguments)
        return f"{', '.join(others)} or {last}"
    names = (*_BOUNDS, "le")
    known = {name: getattr(b, name) for b in bounds for name in names if hasattr(b, name)}
    text = _TYPES[kind]
    if known.get("le", MAX_INT) != MAX_INT:
        return f"{text} from {known['ge']} to {known['le']}"
    return text + "".join(phrase.format(known[n]) for n, phrase in _BOUNDS.items() if n in known)


_MAX_NAMES, _FEW = 20, 4  # settings that an error lists: all, or the first of too many

_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = _shown.maxlong = 200
_shown.maxlist = _shown.maxtuple = _shown.maxdict = 20
_shown.maxlevel = 1


def shown(value: Any) -> str:
    """A received value for an error, cut in the middle if it is long."""
    try:
        return _shown.repr(value)
    except ValueError:  # an integer of more digits than Python writes
        return f"a number of {value.bit_length()} bits"


def did_you_mean(name: str, known: Mapping[str, str], count: int = 3, likeness: float = 0.6) -> str:
    """`did you mean A or B? `, of known names (-> as shown); empty if none is similar."""
    close = difflib.get_close_matches(name, known, n=count, cutoff=likeness)
    return f"did you mean {' or '.join(known[one] for one in close)}? " if close else ""


def problem_of(detail: ErrorDetails) -> str:
    """What pydantic found, in the words of our own check where one has failed."""
    raised = detail.get("ctx", {}).get("error")
    return str(raised) if isinstance(raised, ValueError) else detail["msg"]


def read_toml(text: str, source: str) -> dict[str, Any]:
    """Reads TOML from a source.

    Raises ConfigError if it is not TOML, or has values that no setting takes.
    """
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ConfigError(
            f"{source} has too many brackets inside each other; leave some out"
        ) from error
    except ValueError as error:  # also of an integer with thousands of digits
        raise ConfigError(f"{source} is not TOML: {_reason(error)}") from error


def _reason(error: ValueError) -> str:
    if isinstance(error, tomllib.TOMLDecodeError):
        return str(error)
    return "an integer has thousands of digits"


class Settings(BaseModel):
    """A group of settings; `setting` makes each field."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @classmethod
    def known(cls) -> Mapping[str, FieldInfo]:
        """The settings that a user may write, by name."""
        return cls.model_fields

    @classmethod
    def marks(cls, name: str) -> Marks:
        """The marks of a setting."""
        return Marks.of(cls.known()[name])

    @classmethod
    def names(cls, *, decides: Decides | None = None, group: str | None = None) -> tuple[str, ...]:
        """The settings that decide something, and are of a group."""
        marks = {name: Marks.of(field) for name, field in cls.known().items()}
        return tuple(
            name
            for name, mark in marks.items()
            if decides in (None, mark.decides) and group in (None, mark.group)
        )

    @field_validator("*")
    @classmethod
    def _text_has_no_nul(cls, value: Any) -> Any:
        if isinstance(value, str) and "\0" in value:  # no file name holds one
            raise ValueError("text without NUL characters")
        return value

    def __init__(self, /, **values: Any) -> None:
        """Checks settings and freezes them; lists become tuples, which TOML does not have.

        ConfigError: one error with every unknown key and every value that is not allowed.
        """
        values = {k: self._plain(k, v) for k, v in values.items()}
        try:
            super().__init__(**values)
        except ValidationError as error:
            problems = dict.fromkeys(self._problem(each, values) for each in error.errors())
            raise ConfigError("; ".join(problems)) from error

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with some fields replaced, which are not checked; ConfigError: no such field."""
        if unknown := {*(update or ())} - {*type(self).model_fields}:
            names = ", ".join(sorted(unknown))
            raise ConfigError(f"{type(self).__name__} has no field {names}; make new settings")
        return super().model_copy(update=update, deep=deep)

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """The settings that were set; the others have their defaults."""
        return (
            (n, getattr(self, n)) for n in type(self).model_fields if n in self.model_fields_set
        )

    @classmethod
    def of(cls, values: Mapping[str, Any], *, source: str = "") -> Self:
        """Makes settings of a table; ConfigError names `source`, where they come from."""
        where = f"{source}: " if source else ""
        if not isinstance(values, Mapping):
            raise ConfigError(
                f"{where}{shown(values)} is not a table of settings; write key = value"
            )
        try:
            return cls(**{str(k): v for k, v in values.items()})
        except ConfigError as error:
            raise ConfigError(f"{where}{error}") from error

    @classmethod
    def _plain(cls, name: str, value: Any) -> Any:
        """A value in its usual form: a tuple for a list, `masked_lm` for `masked-lm`."""
        if isinstance(value, list):
            return tuple(value)
        plain = value.replace("-", "_") if isinstance(value, str) else value
        if plain == value or name not in cls.model_fields:
            return value
        return plain if repr(plain) in describe_allowed(cls.model_fields[name]) else value

    @classmethod
    def _problem(cls, detail: ErrorDetails, values: Mapping[str, Any]) -> str:
        raised = detail.get("ctx", {}).get("error")  # what a validator raised
        if isinstance(raised, ConfigError):
            return str(raised)
        key = str(detail["loc"][0])
        if key not in cls.known():
            names = [*map(repr, cls.known())]
            hint = did_you_mean(key, dict(zip(cls.known(), names, strict=True)), count=1)
            if len(names) > _MAX_NAMES:
                names[_FEW:] = ["…; bert-features extract --help-all lists all"]
            known = hint_of(key) or hint.strip() or f"allowed: {', '.join(names)}"
            return f"unknown setting {shown(key)}; {known}"
        received = values[key]
        received = list(received) if isinstance(received, tuple) else received
        allowed = describe_allowed(cls.model_fields[key])
        if detail["type"] == "less_than_equal" and "from" not in allowed:
            allowed = f"{allowed}, at most {detail['ctx']['le']}"
        elif raised is not None:
            allowed = str(raised)
        return f"{key} is {shown(received)}; allowed: {allowed}"

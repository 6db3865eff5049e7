"""Settings: the base of the settings classes. Values are checked once and then frozen."""

import difflib
import reprlib
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from pydantic_core import ErrorDetails

from bert_features.errors import ConfigError

# NumPy and TensorFlow count rows and tokens in int32.
MAX_INT = 2**31 - 1

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


def read_toml(text: str, source: str) -> dict[str, Any]:
    """Reads TOML.

    Args:
      text: the TOML.
      source: where it comes from, for the error message.

    Raises:
      ConfigError: it is not TOML, or has values that no setting takes.
    """
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ConfigError(f"{source} has too many brackets inside each other") from error
    except ValueError as error:  # also of an integer with thousands of digits
        raise ConfigError(f"{source} is not TOML: {_reason(error)}") from error


def _reason(error: ValueError) -> str:
    if isinstance(error, tomllib.TOMLDecodeError):
        return str(error)
    return "an integer has thousands of digits"


class Settings(BaseModel):
    """A group of settings.

    A field's description is its help; its `allowed` names the allowed values.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _text_has_no_nul(cls, value: Any) -> Any:
        if isinstance(value, str) and "\0" in value:  # no file name holds one
            raise ValueError("text without NUL characters")
        return value

    def __init__(self, /, **values: Any) -> None:
        """Checks settings as `of` does, with the same errors."""
        self.__setstate__(type(self).of(values).__getstate__())

    # As BaseModel marks its own: checking a dict does not call `__init__`, which calls the check.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """The settings that were set; the others have their defaults."""
        return (
            (n, getattr(self, n)) for n in type(self).model_fields if n in self.model_fields_set
        )

    @classmethod
    def of(cls, values: Mapping[str, Any], *, source: str = "") -> Self:
        """Checks settings and freezes them.

        Args:
          values: setting -> value; lists become tuples, which TOML does not have.
          source: where they come from, for error messages.

        Raises:
          ConfigError: one error with every unknown key and every value that is not allowed.
        """
        where = f"{source}: " if source else ""
        if not isinstance(values, Mapping):
            raise ConfigError(f"{where}{shown(values)} is not a table of settings")
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            problems = {str(p): p for p in (cls._problem(d, values) for d in error.errors())}
            parts = {f"problem_{i}": problem for i, problem in enumerate(problems.values())}
            template = "{where}" + "; ".join(f"{{{part}}}" for part in parts)
            raise ConfigError.naming(template, where=where, **parts) from error

    @classmethod
    def _problem(cls, detail: ErrorDetails, values: Mapping[str, Any]) -> ConfigError:
        raised = detail.get("ctx", {}).get("error")  # what a validator raised
        if isinstance(raised, ConfigError):
            return raised
        key = str(detail["loc"][0])
        if key not in cls.model_fields:
            close = difflib.get_close_matches(key, cls.model_fields, n=1)
            hint = f"did you mean '{close[0]}'? " if close else ""
            allowed = ", ".join(cls.model_fields)
            return ConfigError(f"unknown setting {shown(key)}; {hint}allowed: {allowed}")
        received = values[key]
        received = list(received) if isinstance(received, tuple) else received
        extra = cls.model_fields[key].json_schema_extra
        allowed = str(extra["allowed"]) if isinstance(extra, dict) else ""
        if detail["type"] == "less_than_equal":
            allowed = f"{allowed}, at most {detail['ctx']['le']}"
        elif raised is not None:
            allowed = str(raised)
        return ConfigError.naming(
            f"{{{key}}} is {{received}}; allowed: {{allowed}}",
            received=shown(received),
            allowed=allowed,
        )

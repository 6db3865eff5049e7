"""Settings: the base of the settings classes. Values are checked once and then frozen."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from bert_features.errors import ConfigError


class Settings(BaseModel):
    """A group of settings.

    A field's description is its help; its `allowed` names the allowed values.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

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
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            problems = dict.fromkeys(cls._problem(detail, values) for detail in error.errors())
            where = f"{source}: " if source else ""
            raise ConfigError(where + "; ".join(problems)) from error

    @classmethod
    def _problem(cls, detail: ErrorDetails, values: Mapping[str, Any]) -> str:
        if not detail["loc"]:  # from a validator of several settings
            return detail["msg"].removeprefix("Value error, ")
        key = str(detail["loc"][0])
        if key not in cls.model_fields:
            close = difflib.get_close_matches(key, cls.model_fields, n=1)
            hint = f"did you mean '{close[0]}'? " if close else ""
            return f"unknown setting '{key}'; {hint}allowed: {', '.join(cls.model_fields)}"
        received = values[key]
        received = list(received) if isinstance(received, tuple) else received
        extra = cls.model_fields[key].json_schema_extra
        allowed = extra["allowed"] if isinstance(extra, dict) else ""
        return f"{key} is {received!r}; allowed: {allowed}"

"""How a run uses a Ray cluster: its address, how many actors, what each of them needs."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from bert_features.config.settings import shown
from bert_features.errors import ConfigError

LOCAL = "local"
_ACTORS = re.compile(r"([1-9]\d{0,5})(?::([1-9]\d{0,5}))?", re.ASCII)


@dataclass(frozen=True)
class RaySettings:
    """How a run uses Ray.

    Attributes:
      address: `local` for a Ray of this machine's own, which ends with the run; else `HOST:PORT`,
        `auto` or `ray://HOST:PORT`.
      min_actors: actors that the cluster is asked for at once.
      max_actors: the most actors; None for no bound.
      resources: amounts that each actor needs, by Ray's names; None for what fits the device.
    """

    address: str
    min_actors: int = 1
    max_actors: int | None = None
    resources: Mapping[str, float] | None = None

    @classmethod
    def parse(
        cls,
        address: str,
        actors: str | int | None = None,
        resources: str | Mapping[str, float] | None = None,
    ) -> Self:
        """Checks the settings of a user.

        Args:
          address: see the class.
          actors: `MIN:MAX`, or one number for both; by default at least one and no bound.
          resources: as `CPU=8` or `{"CPU": 8}`.

        Raises:
          ConfigError: a setting is not of that form.
        """
        if not address.strip():
            raise ConfigError("ray is empty; allowed: local, auto, HOST:PORT or ray://HOST:PORT")
        least, most = (1, None) if actors is None else _parse_actors(str(actors))
        return cls(
            address.strip(), least, most, None if resources is None else _parse_resources(resources)
        )


def _parse_actors(text: str) -> tuple[int, int]:
    match = _ACTORS.fullmatch(text)
    least, most = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if least > most:
        raise ConfigError(
            f"ray_actors is {shown(text)}; allowed: a number of actors, or MIN:MAX with 1 or more "
            "and MIN at most MAX"
        )
    return least, most


def _parse_resources(value: str | Mapping[str, float]) -> dict[str, float]:
    try:
        if isinstance(value, str):
            pairs = (part.split("=") for part in value.split(","))
            value = {name.strip(): float(amount) for name, amount in pairs}
        if value and all(value) and all(map(_is_amount, value.values())):
            return dict(value)
    except ValueError:  # no pair, or no number
        pass
    raise ConfigError(
        f"ray_resources is {shown(value)}; allowed: amounts of Ray's resources for each actor, as "
        "CPU=8, GPU=1 or TPU=4, several separated by commas"
    )


def _is_amount(amount: object) -> bool:
    """Whether it is what Ray takes: a positive number, and a whole one from 1 on."""
    if not isinstance(amount, int | float) or isinstance(amount, bool):
        return False
    return math.isfinite(amount) and amount > 0 and (amount < 1 or amount == int(amount))

"""ServeSettings: where the service listens, and how much it takes on."""

import contextlib
import hashlib
import ipaddress
import math
import re
import socket
import sys
from dataclasses import dataclass, field
from typing import Any, Self

from bert_features.config.settings import DEVICES, LIMITS, shown
from bert_features.errors import ConfigError

# The variable of the environment that may hold the token.
TOKEN = "BERT_FEATURES_TOKEN"
_MAX_PORT = 65535
# The names of this machine for itself: no page of another address can have one of them.
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_PORT = re.compile(r":\d*$")
_HOST = re.compile(r"\*|[\w.-]+|\[[0-9a-fA-F:.]+\]")
# A header can hold printable ASCII (RFC 6750, section 2.1, allows fewer characters).
_TOKEN = re.compile(r"[\x21-\x7e]{8,512}")


def _option(default: Any, help: str, group: str = "", *, common: bool = True) -> Any:
    """A field that `bert-features serve` has an option for, in this group of its help.

    One that is not common is in `--help-all` alone.
    """
    return field(default=default, metadata={"help": help, "group": group, "common": common})


@dataclass(frozen=True)
class Limits:
    """What the service takes on; a request beyond a limit is refused at once."""

    body_bytes: int = _option(8 << 20, "Bytes of a request.", LIMITS)
    texts: int = _option(2048, "Texts of a request.", LIMITS)
    tokens: int = _option(1 << 16, "Tokens of a request, before anything is cut off.", LIMITS)
    answer_bytes: int = _option(
        64 << 20, "Bytes of the vectors of an answer.", LIMITS, common=False
    )
    requests: int = _option(1024, "Requests that a replica answers at the same time.", LIMITS)
    queued_tokens: int = _option(1 << 18, "Tokens that wait in a replica.", LIMITS, common=False)
    seconds: float = _option(60.0, "Seconds that a request may take.", LIMITS)

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < math.inf:
                raise ConfigError(f"max_{name} is {value}; allowed: a number above 0")


@dataclass(frozen=True)
class ServeSettings:
    """How the service runs.

    Attributes:
      token_digest: SHA-256 of the token that requests must have, in hexadecimal; None for no token.
        The token itself is kept nowhere.
    """

    host: str = _option("127.0.0.1", "Address to listen on; 0.0.0.0 for all addresses.")
    port: int = _option(8000, "Port to listen on.")
    allowed_hosts: str = _option(
        "",
        "Host names that requests may use, separated by commas, besides localhost, 127.0.0.1 and "
        "[::1]; * for any.",
    )
    replicas: int = _option(
        1, "Processes that compute, each with the model in memory; they share the cores.", DEVICES
    )
    drain_seconds: float = _option(30.0, "Seconds that running requests get when it stops.")
    limits: Limits = Limits()
    token_digest: str | None = None

    @classmethod
    def of(
        cls, *, token: str | None = None, limits: Limits | None = None, **values: object
    ) -> Self:
        """The settings of a user: the attributes, and the token instead of its digest.

        Raises ConfigError for a value that is not allowed.
        """
        digest = None if token is None else digest_of(check_token(token))
        settings = cls(limits=limits or Limits(), token_digest=digest, **values)  # type: ignore[arg-type]
        for name, low, high, allowed in (
            ("port", 1, _MAX_PORT, f"1 to {_MAX_PORT}"),
            ("replicas", 1, math.inf, "1 or more"),
            ("drain_seconds", 0, sys.float_info.max, "a number of 0 or more"),
        ):
            if not low <= (value := getattr(settings, name)) <= high:
                raise ConfigError(f"{name} is {value}; allowed: {allowed}")
        for name in settings._allowed_hosts:
            if not _HOST.fullmatch(name):
                raise ConfigError(
                    f"allowed_hosts has {shown(name)}; allowed: names without scheme and port, as "
                    "example.com, separated by commas, or *"
                )
        return settings

    @property
    def url(self) -> str:
        """The address of the service."""
        return f"http://{self._host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether it listens for programs of this machine alone."""
        with contextlib.suppress(OSError, ValueError):  # `serving.run` refuses unknown names
            host = self.host if ":" in self.host else socket.gethostbyname(self.host)
            return ipaddress.ip_address(host).is_loopback
        return False

    def hosts(self) -> tuple[str, ...] | None:
        """The names that requests may have as `Host`, in small letters; None for any.

        A page on the web can give its own name the address 127.0.0.1 (DNS rebinding). A browser
        then lets it read the service, but sends the name of the page.
        """
        if "*" in self._allowed_hosts or not (self._allowed_hosts or self.is_loopback):
            return None
        return tuple(dict.fromkeys((*_LOOPBACK, self._host.lower(), *self._allowed_hosts)))

    @property
    def _allowed_hosts(self) -> list[str]:
        names = self.allowed_hosts.lower().split(",")
        return [name.strip() for name in names if name.strip()]

    @property
    def _host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def is_for(hosts: tuple[str, ...] | None, header: str) -> bool:
    """Whether a header `Host` has one of the names that `ServeSettings.hosts` gave."""
    return hosts is None or _PORT.sub("", header).lower() in hosts


def check_token(token: str) -> str:
    """Refuses a token that no header can hold, or that is too short to keep anyone out.

    Raises ConfigError.
    """
    if not _TOKEN.fullmatch(token):
        raise ConfigError(
            f"the token has {len(token)} characters or some that are not allowed; allowed: 8 to "
            "512 printable ASCII characters without blanks"
        )
    return token


def digest_of(token: str) -> str:
    """SHA-256 of a token, in hexadecimal."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()

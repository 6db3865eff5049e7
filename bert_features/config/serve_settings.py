"""ServeSettings: where the service listens, and how much it takes on."""

import hashlib
import math
import re
from dataclasses import dataclass
from typing import Self

from bert_features.errors import ConfigError

# The variable of the environment that may hold the token.
TOKEN = "BERT_FEATURES_TOKEN"
_MAX_PORT = 65535
# Of printable ASCII, which a header can hold (RFC 6750, section 2.1, allows fewer characters).
_TOKEN = re.compile(r"[\x21-\x7e]{8,512}")


@dataclass(frozen=True)
class Limits:
    """What the service takes on; a request beyond a limit is refused at once.

    Attributes:
      body_bytes: maximum bytes of the body of a request.
      texts: maximum texts of a request.
      tokens: maximum tokens of a request, [CLS] and [SEP] included, before anything is cut off.
      answer_bytes: maximum bytes of the vectors of an answer, in the dtype of the outputs.
      requests: maximum requests that one replica answers at the same time.
      queued_tokens: maximum tokens that wait in one replica.
      seconds: maximum seconds that a request may take.
    """

    body_bytes: int = 8 << 20
    texts: int = 2048
    tokens: int = 1 << 16
    answer_bytes: int = 64 << 20
    requests: int = 1024
    queued_tokens: int = 1 << 18
    seconds: float = 60.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < math.inf:
                raise ConfigError.naming(
                    f"{{max_{name}}} is {{value}}; allowed: a number above 0", value=value
                )


@dataclass(frozen=True)
class ServeSettings:
    """How the service runs.

    Attributes:
      host: the address that it listens on.
      port: the port.
      replicas: number of processes that compute, each with the model in memory.
      limits: what it takes on.
      drain_seconds: how long it waits for running requests when it is stopped.
      token_digest: SHA-256 of the token that requests must have, in hexadecimal; None for no token.
        The token itself is kept nowhere.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    replicas: int = 1
    limits: Limits = Limits()
    drain_seconds: float = 30.0
    token_digest: str | None = None

    @classmethod
    def of(
        cls, *, token: str | None = None, limits: Limits | None = None, **values: object
    ) -> Self:
        """Checks the settings of a user.

        Args:
          token: what requests must have; None for no token.
          limits: what the service takes on.
          **values: the attributes.

        Raises:
          ConfigError: a value is not allowed.
        """
        digest = None if token is None else digest_of(check_token(token))
        settings = cls(limits=limits or Limits(), token_digest=digest, **values)  # type: ignore[arg-type]
        if not 0 < settings.port <= _MAX_PORT:
            raise ConfigError.naming(
                "{port} is {value}; allowed: 1 to {limit}", value=settings.port, limit=_MAX_PORT
            )
        if settings.replicas < 1:
            raise ConfigError.naming(
                "{replicas} is {value}; allowed: 1 or more", value=settings.replicas
            )
        if not 0 <= settings.drain_seconds < math.inf:
            raise ConfigError.naming(
                "{drain_seconds} is {value}; allowed: a number of 0 or more",
                value=settings.drain_seconds,
            )
        return settings

    @property
    def url(self) -> str:
        """The address of the service."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def check_token(token: str) -> str:
    """Refuses a token that no header can hold, or that is too short to keep anyone out.

    Raises:
      ConfigError: it is not allowed.
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

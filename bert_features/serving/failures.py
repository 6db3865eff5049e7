"""Failures of requests: each has a status of HTTP, a type and a message."""

from dataclasses import dataclass, field

# Type of an error -> its status.
STATUSES = {
    "bad_request": 400,
    "unauthorized": 401,
    "not_found": 404,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "too_large": 413,
    "unsupported_media_type": 415,
    "invalid_request": 422,
    "overloaded": 429,
    "internal": 500,
    "unavailable": 503,
    "timeout": 504,
}
TYPES = {status: kind for kind, status in STATUSES.items()}


@dataclass
class RequestError(Exception):
    """A request that is refused or has failed.

    Attributes:
      type: a key of `STATUSES`.
      message: what was wrong, what was received, what is allowed.
      param: the part of the request that is wrong, as `texts[3]`; None if it is not one part.
      headers: headers of the answer.
    """

    type: str
    message: str
    param: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def status(self) -> int:
        """The status of the answer."""
        return STATUSES[self.type]

    def body(self) -> dict[str, dict[str, str | None]]:
        """The body of the answer, in the shape of OpenAI's errors."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": None}
        return {"error": error}


def retry_after(seconds: float) -> dict[str, str]:
    """The header that says when to try again, in whole seconds of at least 1."""
    return {"Retry-After": str(max(1, round(seconds)))}

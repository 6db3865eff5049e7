"""Failures of requests: each has a status of HTTP, a type and a message."""

from collections.abc import Mapping

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response

# Type of an error -> its status.
STATUSES = {
    "bad_request": 400,
    "unauthorized": 401,
    "not_found": 404,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "too_large": 413,
    "unsupported_media_type": 415,
    "misdirected_request": 421,
    "invalid_request": 422,
    "overloaded": 429,
    "headers_too_large": 431,
    "internal": 500,
    "timeout": 504,
}
# A browser takes no answer for another type than it says.
NO_SNIFF = {"X-Content-Type-Options": "nosniff"}
TYPES = {status: kind for kind, status in STATUSES.items()}


class RequestError(HTTPException):
    """A request that is refused or has failed.

    Args:
      type: a key of `STATUSES`.
      message: what was wrong, what was received, what is allowed.
      param: the part of the request that is wrong, as `texts[3]`; None if it is not one part.
      headers: headers of the answer.
    """

    def __init__(
        self,
        type: str,
        message: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(STATUSES[type], message, headers)
        self.type = type
        self.message = message
        self.param = param

    def to_response(self) -> Response:
        """The answer, in the shape of OpenAI's errors."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": None}
        headers = {**(self.headers or {}), **NO_SNIFF}
        return Response(
            orjson.dumps({"error": error}), self.status_code, headers, "application/json"
        )


def internal_error() -> RequestError:
    """A failure of the service itself, of which a client learns no more."""
    return RequestError("internal", "the service failed; its log says more")

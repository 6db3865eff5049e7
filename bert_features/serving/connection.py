"""Requests to a service: connections that are used again, time limits, retries, clear errors."""

import contextlib
import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import urllib3
from urllib3 import exceptions

from bert_features import __version__
from bert_features.config.serve_settings import check_token
from bert_features.errors import ConfigError, ServiceError

# A machine that is there answers a connection within this.
CONNECT_SECONDS = 5.0
# The wait after a failure, which doubles with each further one; and the longest wait.
FIRST_PAUSE_SECONDS = 0.25
MAX_PAUSE_SECONDS = 30.0

_BLOCK_BYTES = 1 << 16
_MAX_ERROR_BYTES = 1 << 20
_MAX_SHOWN = 300
_REDIRECTS = range(300, 400)
_BUSY = (429, 503)


@dataclass(frozen=True)
class Reply:
    """An answer of a service.

    Attributes:
      status: its status, as 200.
      kind: its media type, as `application/json`.
      retry_after: seconds that the service asks to wait; 0 if it does not ask.
      location: where it redirects to, or empty.
      body: its bytes.
    """

    status: int
    kind: str
    retry_after: float
    location: str
    body: bytes


class _ConnectionLostError(Exception):
    """A connection that broke off before the whole answer was there."""


class Connection:
    """Sends requests to one service; several threads may share it.

    Args:
      url: the address of the service, as `http://127.0.0.1:8000`.
      token: its token, if it has one.
      timeout: seconds for one attempt at a request, from the connection to the last byte.
      retries: how often a request is sent again after a lost connection, or if the service is busy.
      connections: how many are open at a time.

    Attributes:
      url: the address.

    Raises:
      ConfigError: an argument is not allowed.
    """

    def __init__(
        self, url: str, *, token: str | None, timeout: float, retries: int, connections: int
    ) -> None:
        self.url = _check_url(url)
        if not timeout > 0:
            raise ConfigError(f"timeout is {timeout}; allowed: seconds above 0")
        if retries < 0:
            raise ConfigError(f"retries is {retries}; allowed: 0 or more")
        self._timeout, self._retries = timeout, retries
        self._headers = {"User-Agent": f"bert_features/{__version__}"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {check_token(token)}"
        self._pool = urllib3.PoolManager(num_pools=1, maxsize=connections)
        # Not the pool's own bound, for which a request would wait within its time limit.
        self._slots = threading.BoundedSemaphore(connections)
        self._has_answered = False

    def request(
        self,
        method: str,
        path: str,
        *,
        accept: str,
        body: bytes | None = None,
        stop: threading.Event | None = None,
    ) -> bytes:
        """The body of the answer to a request.

        Args:
          method: `GET` or `POST`.
          path: the path, as `/v1/info`.
          accept: the media type that the answer must have.
          body: JSON to send.
          stop: once set, the request is given up before its next attempt.

        Raises:
          ServiceError: there is no answer in time, or it is a refusal or not that of a service.
        """
        headers = {**self._headers, "Accept": accept}
        if body is not None:
            headers["Content-Type"] = "application/json"
        stop = stop or threading.Event()
        for attempt in range(self._retries + 1):
            is_last = attempt == self._retries
            pause = min(FIRST_PAUSE_SECONDS * 2**attempt, MAX_PAUSE_SECONDS)
            try:
                with self._slots:
                    if stop.is_set():
                        break
                    reply = self._attempt(method, path, headers, body)
            except _ConnectionLostError as error:
                if is_last:
                    raise ServiceError(
                        f"the connection to {self.url} was lost {attempt + 1} times ({error}); "
                        "look at the log of the service"
                    ) from error
            else:
                self._has_answered = True
                pause = max(pause, reply.retry_after)
                if reply.status not in _BUSY or is_last or pause > MAX_PAUSE_SECONDS:
                    return self._check(reply, f"{method} {path}", accept)
            if stop.wait(pause):
                break
        raise ServiceError(f"the request to {self.url} was given up")

    def close(self) -> None:
        """Closes the connections."""
        self._pool.clear()

    def _attempt(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None
    ) -> Reply:
        deadline = time.monotonic() + self._timeout
        connect = min(CONNECT_SECONDS, self._timeout)
        with self._clear_errors():
            response = self._pool.request(
                method,
                self.url + path,
                body=body,
                headers=headers,
                timeout=urllib3.Timeout(connect=connect, read=self._timeout),
                retries=False,
                redirect=False,
                preload_content=False,
            )
            try:
                content = self._read(response, deadline)
            except BaseException:
                response.close()
                raise
            response.release_conn()
        found = response.headers
        return Reply(
            response.status,
            found.get("Content-Type", "").partition(";")[0].strip().lower(),
            _seconds(found.get("Retry-After", "")),
            found.get("Location", ""),
            content,
        )

    def _read(self, response: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
        """The body; each read returns what is there, so that a slow server is noticed."""
        parts, size = [], 0
        while part := response.read1(_BLOCK_BYTES):
            parts.append(part)
            size += len(part)
            if response.status != 200 and size > _MAX_ERROR_BYTES:
                raise ServiceError(
                    f"{self.url} answered with status {response.status} and more than "
                    f"{_MAX_ERROR_BYTES} bytes; is this the address of `bert-features serve`?"
                )
            if time.monotonic() > deadline:
                raise self._late()
        return b"".join(parts)

    @contextlib.contextmanager
    def _clear_errors(self) -> Iterator[None]:
        try:
            yield
        except exceptions.ConnectTimeoutError as error:
            if isinstance(error, exceptions.NewConnectionError):
                self._not_there(error)
            raise ServiceError(
                f"{self.url} does not answer within {min(CONNECT_SECONDS, self._timeout):g} "
                "seconds; check the address, and that no firewall is in between"
            ) from error
        except exceptions.NewConnectionError as error:
            self._not_there(error)
        except exceptions.ReadTimeoutError as error:
            raise self._late() from error
        except exceptions.SSLError as error:
            raise ServiceError(
                f"no secure connection to {self.url}: {_short(error)}; `bert-features serve` "
                "itself speaks http"
            ) from error
        except (exceptions.HTTPError, OSError) as error:
            raise _ConnectionLostError(_short(error)) from error

    def _not_there(self, error: Exception) -> NoReturn:
        if self._has_answered:  # it may be starting again
            raise _ConnectionLostError("nothing answers any more") from error
        if isinstance(error, exceptions.NameResolutionError):
            raise ServiceError(f"the host of {self.url} is unknown; check the address") from error
        raise ServiceError(
            f"nothing answers at {self.url}; start it with `bert-features serve`"
        ) from error

    def _late(self) -> ServiceError:
        return ServiceError(
            f"{self.url} did not answer within {self._timeout:g} seconds; pass a longer timeout, "
            "or fewer texts"
        )

    def _check(self, reply: Reply, request: str, accept: str) -> bytes:
        """The body, if it is what was asked for."""
        if reply.status == 200 and reply.kind == accept:
            return reply.body
        error = self._explain(reply, request)
        error.status = reply.status
        raise error

    def _explain(self, reply: Reply, request: str) -> ServiceError:
        if reply.status in _REDIRECTS:
            return ServiceError(
                f"{self.url} redirects to {reply.location[:_MAX_SHOWN]!r}; pass the address of "
                "the service itself"
            )
        message = _message(reply)
        if message is None:
            return ServiceError(
                f"what answers at {self.url} is not `bert-features serve`: {request} gave status "
                f"{reply.status} and {reply.kind or 'no media type'}; check the address"
            )
        if reply.status == 401:
            return ServiceError(f"{self.url} refuses the request: {message}; pass token=")
        return ServiceError(f"{self.url} answered {reply.status}: {message}")


def _check_url(url: str) -> str:
    """The address without a slash at its end."""
    try:
        parsed = urllib3.util.parse_url(url)
    except exceptions.LocationParseError:
        parsed = urllib3.util.Url()
    if parsed.auth:
        raise ConfigError("the URL holds a name or a password; pass the token as token=")
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.query or parsed.fragment:
        raise ConfigError(f"the URL is {url!r}; allowed: an address such as http://127.0.0.1:8000")
    return url.rstrip("/")


def _seconds(value: str) -> float:
    """The seconds of a header Retry-After; its other form, a date, counts as none."""
    return float(value) if re.fullmatch(r"\d{1,9}", value.strip()) else 0.0


def _message(reply: Reply) -> str | None:
    """The message of an error of a service; None if the answer is none."""
    try:
        error: Any = json.loads(reply.body)["error"]
        return str(error["message"])
    except (ValueError, KeyError, TypeError):
        return None


def _short(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:_MAX_SHOWN]

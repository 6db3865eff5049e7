"""Requests to a service: connections that are used again, deadlines, retries, clear errors."""

import contextlib
import json
import re
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, ParamSpec, TypeVar

from urllib3.exceptions import LocationParseError
from urllib3.util import Url, parse_url, wait_for_read

from bert_features import __version__
from bert_features.config.serve_settings import check_token
from bert_features.errors import ConfigError, ServiceError, printable

_P = ParamSpec("_P")
_T = TypeVar("_T")
# A machine that is there answers a connection within this.
CONNECT_SECONDS = 5.0
# The wait after a failure, which doubles with each further one; and the longest wait.
FIRST_PAUSE_SECONDS = 0.25
MAX_PAUSE_SECONDS = 30.0

_MAX_ERROR_BYTES = 1 << 20
_MAX_SHOWN = 1000
_BUSY = (429, 503)
_OF_PROXIES = (500, 502, 504)


@dataclass(frozen=True)
class _Reply:
    """An answer to a request such as `GET /v1/info`."""

    request: str
    status: int
    headers: Message
    body: bytes

    @property
    def kind(self) -> str:
        """The media type, as `application/json`."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def retry_after(self) -> float:
        """Seconds that the service asks to wait; 0 if it does not, or names a date."""
        value = self.headers.get("Retry-After", "").strip()
        return float(value) if re.fullmatch(r"\d{1,9}", value) else 0.0

    @property
    def message(self) -> str | None:
        """The message of an error of a service; None if the answer is none."""
        try:
            return _printable(json.loads(self.body)["error"]["message"])
        except (ValueError, KeyError, TypeError):
            return None


class _LostError(Exception):
    """A connection that broke off before the whole answer was there."""


class Connection:
    """Sends requests to one service; several threads may share it.

    At most `connections` are open at a time; the other arguments are those of `Client`. `is_closed`
    is true once `close` was called. Raises ConfigError for an argument that is not allowed.
    """

    def __init__(
        self, url: str, *, token: str | None, timeout: float, retries: int, connections: int
    ) -> None:
        self._parts = _parse(url)
        self.url = url.rstrip("/")
        if not timeout > 0:
            raise ConfigError(f"timeout is {timeout}; allowed: seconds above 0")
        if retries < 0:
            raise ConfigError(f"retries is {retries}; allowed: 0 or more")
        self._timeout, self._retries = timeout, retries
        self._headers = {"User-Agent": f"bert_features/{__version__}"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {check_token(token)}"
        self._prefix = (self._parts.path or "").rstrip("/")
        self._idle: list[HTTPConnection] = []
        self._slots = threading.BoundedSemaphore(connections)
        self._has_answered = False  # the service, not only a proxy
        self.is_closed = False

    def request(
        self,
        path: str,
        *,
        accept: str,
        max_bytes: int,
        body: bytes | None = None,
        stop: threading.Event | None = None,
    ) -> bytes:
        """The body of the answer to a request.

        Args:
          path: the path, as `/v1/info`.
          accept: the media type that the answer must have.
          max_bytes: the most bytes that it may have.
          body: JSON to send by POST; by default the request is a GET.
          stop: once set, the request is given up before its next attempt.

        Raises:
          ServiceError: there is no answer in time, or it is a refusal, or no service sent it.
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
                    reply = self._attempt(path, headers, body, max_bytes)
                    # A proxy answers for a service that is gone, as Ray's for a lost replica.
                    is_of_proxy = reply.status in _OF_PROXIES and reply.message is None
                    if is_of_proxy and self._has_answered:
                        raise _LostError(f"a proxy answered with status {reply.status}")
            except _LostError as error:
                if is_last:
                    raise ServiceError(
                        f"the connection to {self.url} was lost {attempt + 1} times ({error}); "
                        "look at the log of the service"
                    ) from error
            else:
                pause = max(pause, reply.retry_after)
                if reply.status not in _BUSY or is_last or pause > MAX_PAUSE_SECONDS:
                    return self._check(reply, accept)
            if stop.wait(pause):
                break
        raise ServiceError(f"the request to {self.url} was given up; another one has failed")

    def close(self) -> None:
        """Closes the connections; one that a request still uses is closed after the request."""
        self.is_closed = True
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _attempt(
        self, path: str, headers: dict[str, str], body: bytes | None, max_bytes: int
    ) -> _Reply:
        connection, opened = self._take(), list[socket.socket]()
        exchange = in_thread(self._exchange, connection, opened, path, headers, body, max_bytes)
        try:
            reply = exchange.result(self._timeout)
        except TimeoutError as error:
            for sock in opened:  # whatever the service sends meanwhile
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            raise ServiceError(
                f"{self.url} did not answer within {self._timeout:g} seconds; pass a longer "
                "timeout, or fewer texts"
            ) from error
        except (OSError, HTTPException) as error:
            raise _LostError(_printable(str(error) or type(error).__name__)) from error
        return reply

    def _exchange(
        self,
        connection: HTTPConnection,
        opened: list[socket.socket],
        path: str,
        headers: dict[str, str],
        body: bytes | None,
        max_bytes: int,
    ) -> _Reply:
        """Sends a request and reads its answer; notes the socket, for the end of the time."""
        try:
            if connection.sock is None:
                self._open(connection)
            opened.append(connection.sock)  # the connection may hand it over to the response
            method = "GET" if body is None else "POST"
            connection.request(method, self._prefix + path, body, headers)
            with connection.getresponse() as response:
                limit = max_bytes if response.status == 200 else _MAX_ERROR_BYTES
                content = response.read(limit + 1)
                rest = response.length
            if len(content) > limit:
                raise ServiceError(
                    f"{self.url} answered with status {response.status} and more than {limit} "
                    "bytes; is this the address of `bert-features serve`?"
                )
            if rest:
                raise _LostError("the answer is not whole")
        except BaseException:
            connection.close()
            raise
        if connection.sock is not None:
            self._idle.append(connection)
            if self.is_closed:
                self.close()
        return _Reply(f"{method} {path}", response.status, response.headers, content)

    def _take(self) -> HTTPConnection:
        """A connection that is open still, or a new one, which is not open yet."""
        with contextlib.suppress(IndexError):
            while True:
                connection = self._idle.pop()
                if not wait_for_read(connection.sock, timeout=0):
                    return connection
                connection.close()  # the service has closed it
        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        host = (self._parts.host or "").strip("[]")
        seconds = min(CONNECT_SECONDS, self._timeout)
        return kind(host, self._parts.port, timeout=seconds)

    def _open(self, connection: HTTPConnection) -> None:
        try:
            connection.connect()
        except TimeoutError as error:
            raise ServiceError(
                f"{self.url} does not answer within {connection.timeout:g} seconds; check the "
                "address, and that no firewall is in between"
            ) from error
        except ssl.SSLError as error:
            raise ServiceError(
                f"no secure connection to {self.url}: {_printable(error)}; `bert-features "
                "serve` itself speaks http"
            ) from error
        except OSError as error:
            if self._has_answered:  # it may be starting again
                raise _LostError("nothing answers any more") from error
            if isinstance(error, socket.gaierror):
                raise ServiceError(
                    f"the host of {self.url} is unknown; check the address"
                ) from error
            raise ServiceError(
                f"nothing answers at {self.url}; start it with `bert-features serve`"
            ) from error
        connection.sock.settimeout(self._timeout)

    def _check(self, reply: _Reply, accept: str) -> bytes:
        """The body, if it is what was asked for."""
        if reply.status == 200 and reply.kind == accept:
            self._has_answered = True
            return reply.body
        error = ServiceError(self._explain(reply))
        error.status = reply.status
        raise error

    def _explain(self, reply: _Reply) -> str:
        if reply.status in range(300, 400):
            place = reply.headers.get("Location", "")[:_MAX_SHOWN]
            return f"{self.url} redirects to {place!r}; pass the address of the service itself"
        if reply.message is None:
            kind = _printable(reply.kind) or "no media type"
            return (
                f"what answers at {self.url} is not `bert-features serve`: {reply.request} gave "
                f"status {reply.status} and {kind}; check the address"
            )
        if reply.status == 401:
            return f"{self.url} refuses the request: {reply.message}; pass token="
        return f"{self.url} answered {reply.status}: {reply.message}"


def _parse(url: str) -> Url:
    try:
        parsed = parse_url(url)
    except (LocationParseError, TypeError):  # or it is no text
        parsed = Url()
    if parsed.auth:
        raise ConfigError("the URL holds a name or a password; pass the token as token=")
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.query or parsed.fragment:
        raise ConfigError(f"the URL is {url!r}; allowed: an address such as http://127.0.0.1:8000")
    return parsed


def _printable(text: Any) -> str:
    """The beginning of a text that came over the network, with control characters escaped."""
    return printable(str(text)[:_MAX_SHOWN])


def in_thread(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
    """Calls a function in a thread, which does not keep Python from ending, as a pool's would."""
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(function(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="bert_features request", daemon=True).start()
    return future

"""What stands before every request: `Host`, the token, the size of the body, counts, failures."""

import asyncio
import hmac
import logging
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bert_features.config.serve_settings import digest_of, is_for
from bert_features.serving.failures import NO_SNIFF, RequestError, internal_error
from bert_features.serving.service import Service

logger = logging.getLogger("bert_features")

# Paths that need the token, if there is one.
_GUARDED = ("/v1/", "/metrics")
_BEARER = "bearer "
_BLOCK_BYTES = 1 << 16


class Guard:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp, service: Service, paths: frozenset[str]) -> None:
        self._app = app
        self._service = service
        self._paths = paths
        self._running = 0
        self._hosts = service.settings.hosts()

    @property
    def is_alive(self) -> bool:
        """Whether requests are computed."""
        return self._service.is_alive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # a GET, of whose answer the server omits the body
            scope = {**scope, "method": "GET"}
        sent = _Sent(send, self._service.settings.limits.seconds)
        metrics, began = self._service.metrics, time.monotonic()
        self._running += 1
        metrics.running.inc()
        try:
            await self._answer(scope, receive, sent)
        finally:
            self._running -= 1
            metrics.running.dec()
            path = scope["path"] if scope["path"] in self._paths else "other"
            metrics.note_request(path, sent.status, time.monotonic() - began)

    async def _answer(self, scope: Scope, receive: Receive, sent: "_Sent") -> None:
        try:
            self._check(scope, Headers(scope=scope))
            await self._app(scope, self._bounded(receive), sent)
            return
        except RequestError as error:
            failure = error
        except _StalledError:
            logger.warning("a client did not take its answer; its connection is closed")
            # uvicorn would wait until the client has taken what was sent.
            scope.get("state", {}).get("abort", lambda: None)()
            return
        except asyncio.CancelledError:
            logger.warning("a request was not answered in time when the service stopped")
            raise
        except Exception as error:
            logger.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
            failure = internal_error()
        if not sent.status:
            await failure.to_response()(scope, receive, sent)

    def _check(self, scope: Scope, headers: Headers) -> None:
        for host in headers.getlist("host"):
            if self._hosts is not None and not is_for(self._hosts, host):
                raise RequestError(
                    "misdirected_request",
                    f"Host is {host[:100]!r}; allowed: {', '.join(self._hosts)}. To allow another "
                    "name, start the service with --allowed-hosts NAME",
                )
        if scope["path"].startswith(_GUARDED):
            self._check_token(headers.get("authorization", ""))
        if scope["path"].startswith("/v1/") and scope["method"] == "POST":
            if self._running > self._service.settings.limits.requests:
                raise self._service.overloaded("too many requests are being answered")
            self._check_body(headers)

    def _check_token(self, authorization: str) -> None:
        digest = self._service.settings.token_digest
        if digest is None:
            return
        token = ""
        if authorization.lower().startswith(_BEARER):
            token = authorization[len(_BEARER) :].strip()
        if not hmac.compare_digest(digest_of(token), digest):
            problem = "is wrong" if token else "is missing"
            raise RequestError(
                "unauthorized",
                f"the token {problem}; send it as a header, Authorization: Bearer TOKEN",
                headers={"WWW-Authenticate": "Bearer"},
            )

    def _check_body(self, headers: Headers) -> None:
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise RequestError(
                "unsupported_media_type",
                f"Content-Type is {kind[:100]!r}; allowed: application/json",
            )
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self._service.settings.limits.body_bytes:
            raise self._too_large()

    def _bounded(self, receive: Receive) -> Receive:
        limits = self._service.settings.limits
        received, commas, is_whole = 0, 0, False
        end = asyncio.get_running_loop().time() + limits.seconds

        async def bounded() -> Message:
            nonlocal received, commas, is_whole
            try:
                async with asyncio.timeout_at(None if is_whole else end):
                    message = await receive()
            except TimeoutError as error:
                raise RequestError(
                    "timeout",
                    f"the body did not arrive within {limits.seconds:g} seconds",
                    headers={"Connection": "close"},  # the rest may come for ever
                ) from error
            received += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if received > limits.body_bytes:
                raise self._too_large()
            # A comma of a text is a token, and one between texts has a token on each side.
            commas += message.get("body", b"").count(b",")
            if commas > limits.tokens:
                raise RequestError(
                    "too_large",
                    f"the body has more than {limits.tokens} commas, so more tokens than allowed: "
                    f"at most {limits.tokens}",
                )
            return message

        return bounded

    def _too_large(self) -> RequestError:
        limit = self._service.settings.limits.body_bytes
        return RequestError("too_large", f"the body has more than {limit} bytes, the limit")


class _StalledError(Exception):
    """A client that takes no more of its answer."""


class _Sent:
    """Sends messages on in blocks, each when the client has taken the last; knows the status.

    A body in one piece would be in the memory of the server until the client has taken it, and the
    request would count as answered meanwhile. A client may take `seconds` for a block.
    """

    def __init__(self, send: Send, seconds: float) -> None:
        self._send = send
        self._seconds = seconds
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message).update(NO_SNIFF)
        body = message.get("body", b"")
        if len(body) <= _BLOCK_BYTES:
            await self._send_in_time(message)
            return
        for start in range(0, len(body), _BLOCK_BYTES):
            block = {"body": body[start : start + _BLOCK_BYTES], "more_body": True}
            await self._send_in_time({**message, **block})
        await self._send_in_time({**message, "body": b""})

    async def _send_in_time(self, message: Message) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await self._send(message)
        except TimeoutError as error:
            raise _StalledError from error

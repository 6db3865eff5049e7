"""Http: HTTP/1.1 on one connection, by uvicorn and h11, with bounds until a request begins."""

import asyncio
import sys
from http import HTTPStatus

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from bert_features.serving.failures import STATUSES, RequestError

# The URL and the headers; h11 refuses more.
MAX_HEAD_BYTES = 1 << 16
# Between two looks whether a client that sends no more is still there.
_LOOK_SECONDS = 0.5


class Http(H11Protocol):
    """A connection. It is closed if no whole request has begun `timeout_keep_alive` after the last.

    uvicorn's own has no limit before the first request, and none after the first byte of a request.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for the first request."""
        super().connection_made(transport)
        self.app_state = {"abort": transport.abort}
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def data_received(self, data: bytes) -> None:
        """Keeps waiting, unless the data complete the head of a request."""
        waiting, self.timeout_keep_alive_task = self.timeout_keep_alive_task, None
        before = self.cycle
        super().data_received(data)
        if self.cycle is before:
            self.timeout_keep_alive_task = waiting
        elif waiting is not None:
            waiting.cancel()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keeps the connection if a request is whole: its client may have closed one direction."""
        cycle = self.cycle
        if cycle is None or cycle.more_body or cycle.response_complete:
            return False
        if cycle.scope["http_version"] != "1.1":  # knows no interim answers
            return False
        cycle.keep_alive = False
        self.loop.call_later(_LOOK_SECONDS, self._look_for_client, cycle)
        return True

    def _look_for_client(self, cycle: RequestResponseCycle) -> None:
        """Sends an interim answer now and then, which clients skip: one that has left resets."""
        if not (cycle.response_started or self.transport.is_closing()):
            event = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            self.transport.write(self.conn.send(event) or b"")
            self.loop.call_later(_LOOK_SECONDS, self._look_for_client, cycle)

    def send_400_response(self, msg: str) -> None:
        """Refuses what is not a request; called while h11's error is handled."""
        error = sys.exception()
        failure = RequestError(
            "bad_request", f"this is not an HTTP/1.1 request: {str(error or msg)[:100]}"
        )
        if getattr(error, "error_status_hint", 0) == STATUSES["headers_too_large"]:
            failure = RequestError(
                "headers_too_large",
                f"the URL and the headers have more than {MAX_HEAD_BYTES} bytes, the limit",
            )
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = failure.to_response()
            answer.headers["Connection"] = "close"
            status = HTTPStatus(answer.status_code)
            for event in (
                h11.Response(status_code=status, headers=answer.raw_headers, reason=status.phrase),
                h11.Data(data=answer.body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

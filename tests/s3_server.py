"""An S3 server on this machine, moto's, that counts its requests and fails as it is told to."""

import socket
import threading
from collections.abc import Callable

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

# The answer of S3: status, code, message.
BUSY = ("503 Slow Down", "ServiceUnavailable", "Please reduce your rate")
DENIED = ("403 Forbidden", "AccessDenied", "Access Denied")
BREAK = "break the connection off in the middle of the body"


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, *arguments, **options):
        pass


class S3Server:
    """The server; `with` starts and stops it.

    Attributes:
      url: its address.
      requests: method and path of each request so far.
      fail: called with method and path; gives how that request fails, or None.
      seen: called with method and path of each request that was answered.
    """

    fail: Callable
    seen: Callable

    def __init__(self):
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self, threaded=True, request_handler=_Quiet)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.reset()

    def reset(self):
        """Forgets the requests and the failures."""
        self.requests = []
        self.fail = self.seen = lambda method, path: None

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __call__(self, environ, start_response):
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self.requests.append((method, path))
        failure = self.fail(method, path)
        if failure == BREAK:
            environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]) // 2)
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            return []
        if failure is not None:
            status, code, message = failure
            text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
            headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(text)))]
            start_response(status, [*headers, ("Connection", "close")])
            return [] if method == "HEAD" else [text]
        answer = list(self._app(environ, start_response))
        self.seen(method, path)
        return answer

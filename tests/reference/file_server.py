"""A web server of a few files that misbehaves on demand, and remembers what it was asked for."""

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FileServer:
    """Serves `files` (path -> bytes).

    `script` holds what the next answers do instead: functions of (handler, body), used up one by
    one. `asked` holds the headers of each request.
    """

    def __init__(self):
        self.files = {}
        self.script = []
        self.asked = []
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            server_version = "toy"

            def do_GET(self):
                body = outer.files.get(self.path)
                with outer._lock:
                    outer.asked.append(dict(self.headers))
                    answer = outer.script.pop(0) if outer.script else serve
                self.close_connection = True
                if body is None:
                    self.head(404, Content_Length=0)
                else:
                    # A client that hangs up, having had enough, is no failure of the server.
                    with contextlib.suppress(ConnectionError):
                        answer(self, body)

            def head(self, code, **headers):
                self.send_response(code)
                for name, value in {"Connection": "close", **headers}.items():
                    self.send_header(name.replace("_", "-"), str(value))
                self.end_headers()

            def send(self, body):
                self.wfile.write(body)
                self.wfile.flush()

            def log_message(self, *arguments):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/models"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def serve(handler, body):
    handler.head(200, Content_Length=len(body))
    handler.send(body)


def breaks_off_after(count):
    """Announces all of the file, sends `count` bytes of it and hangs up."""

    def answer(handler, body):
        handler.head(200, Content_Length=len(body))
        handler.send(body[:count])

    return answer


def stalls_after(count, go_on):
    """Sends `count` bytes, then nothing until the event `go_on`."""

    def answer(handler, body):
        handler.head(200, Content_Length=len(body))
        handler.send(body[:count])
        go_on.wait(60)
        try:
            handler.send(body[count:])
        except OSError:  # nobody listens any more
            handler.close_connection = True

    return answer

"""A stand-in for a service: it answers as a test says, and notes what it was asked."""

import io
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pyarrow as pa

from bert_features.formats.arrow_layout import METADATA_KEY, convert_to_arrow, schema_of
from bert_features.formats.records import Feature, FeatureBatch

ARROW = "application/vnd.apache.arrow.stream"
WIDTH = 3
FEATURES = {
    name: Feature(name, (-1,), "none", WIDTH, "float32", "sequence", "mean")
    for name in ("embedding", "other")
}
LIMITS = {
    "body_bytes": 1 << 20, "texts": 100, "tokens": 10000, "answer_bytes": 1 << 20,
    "queued_tokens": 10000, "seconds": 5.0,
}  # fmt: skip


def make_info(**changes: Any) -> dict[str, Any]:
    described = ("name", "level", "width", "dtype", "layers", "pooling")
    return {
        "model": "toy", "description": "a toy", "layers": 2, "hidden_size": WIDTH,
        "max_seq_length": 16, "long_text": "truncate",
        "outputs": [
            {
                "name": name,
                "features": [
                    {key: getattr(feature, key) for key in described}
                    | {"layers": list(feature.layers)}
                ],
                "max_seq_length": 16,
            }
            for name, feature in FEATURES.items()
        ],
        "prompts": [], "recipe": {}, "limits": LIMITS, "replicas": 1, "device": "cpu",
        "version": "0.1.0", **changes,
    }  # fmt: skip


def vector_of(text: Any) -> list[float]:
    """What the stand-in computes: numbers that show which text they are of."""
    joined = " ".join(text)
    return [len(joined), sum(map(ord, joined)) % 1000, 1]


def answer(
    body: dict[str, Any], *, count: int | None = None, values: pa.Array | None = None
) -> bytes:
    """The Arrow stream for a request; of another number of texts, or with other values.

    A text that holds `long` has lost 3 tokens.
    """
    (kind,) = {"texts", "pairs", "words"} & set(body)
    vectors = np.array([vector_of(text) for text in body[kind][:count]], np.float32)
    features = tuple(FEATURES[name] for name in body["outputs"])
    columns = {feature.name: vectors.reshape(-1, WIDTH) for feature in features}
    batch = FeatureBatch(np.arange(len(vectors)), columns)
    metadata = {"model": "toy", "features": [feature.to_metadata() for feature in features]}
    schema = schema_of(features, "int").with_metadata({METADATA_KEY: json.dumps(metadata)})
    table = pa.Table.from_batches([convert_to_arrow(batch, features, schema)])
    if values is not None:
        table = table.set_column(table.column_names.index("embedding"), "embedding", values)
    lost = [3 * ("long" in text) for text in body[kind][:count]]
    table = table.append_column("tokens_lost", pa.array(lost, pa.int32()))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


class StandIn(ThreadingHTTPServer):
    """The stand-in.

    Attributes:
      handlers: for each further POST what to do instead of an answer; None for an answer.
      info: the answer to GET /v1/info, or what to do instead of it.
      bodies: the bodies of the POSTs.
      headers: the headers of all requests.
      connections: number of connections so far.
      most_running: most requests that were under way at a time.
      pause: called in each POST before the answer.
    """

    daemon_threads = True
    # Of requests that hang, closing would wait for the end.
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.handlers: list[Callable[[_Handler], None] | None] = []
        self.info: dict[str, Any] | Callable[[_Handler], None] = make_info()
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[Any] = []
        self.connections = self.running = self.most_running = 0
        self.pause: Callable[[dict[str, Any]], None] = lambda body: None
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: StandIn

    def setup(self) -> None:
        super().setup()
        with self.server.lock:
            self.server.connections += 1

    def log_message(self, *arguments: Any) -> None:
        """Nothing goes to the terminal."""

    def do_GET(self) -> None:
        self.server.headers.append(self.headers)
        if callable(self.server.info):
            self.server.info(self)
        else:
            self.reply(200, json.dumps(self.server.info).encode())

    def do_POST(self) -> None:
        self.body = body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.headers.append(self.headers)
            self.server.bodies.append(body)
            handler = self.server.handlers.pop(0) if self.server.handlers else None
            self.server.running += 1
            self.server.most_running = max(self.server.most_running, self.server.running)
        self.server.pause(body)
        with self.server.lock:
            self.server.running -= 1
        if handler is not None:
            handler(self)
        else:
            self.answer()

    def answer(self) -> None:
        self.reply(200, answer(self.body), ARROW)

    def reply(
        self, status: int, body: bytes, kind: str = "application/json", **headers: str
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def fail(self, status: int, message: str, **headers: str) -> None:
        """An error, in the form of the service."""
        error = {"message": message, "type": "x", "param": None, "code": None}
        self.reply(status, json.dumps({"error": error}).encode(), **headers)

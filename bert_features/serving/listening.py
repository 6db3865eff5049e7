"""Replicas that listen themselves, all on one port: the kernel shares the connections out.

A request that passes Ray Serve's proxy costs two processes and three copies more, some 10 ms on two
CPU cores. Where all replicas are on one machine the proxy is not needed.
"""

import socket
import threading
from collections.abc import Callable
from typing import Any

from bert_features.serving.asgi import App

# Connections that are not used are closed after this; behind a proxy longer than its own time.
IDLE_SECONDS = 75
_BACKLOG = 2048


def open_port(host: str, port: int, *, shared: bool = False, reused: bool = True) -> socket.socket:
    """A socket that is bound to a port.

    Args:
      host: the address of this machine.
      port: the port.
      shared: whether other shared sockets may be bound to the same port.
      reused: whether a port that another process has bound, but does not listen on, will do.

    Raises:
      OSError: the port is in use, or the address is not one of this machine.
    """
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        if reused:  # as servers do: a port that a server left a moment ago is free
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound


class ListeningReplica:
    """A deployment of Ray Serve, which starts it, asks for its health and replaces it.

    Args:
      build: loads the model and makes the application.
      host: the address to listen on.
      port: the port.
    """

    def __init__(self, build: Callable[[], App], host: str, port: int) -> None:
        import uvicorn

        self._application: Any = build()
        config = uvicorn.Config(
            self._application,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=IDLE_SECONDS,
            backlog=_BACKLOG,
            callback_notify=self._close_if_drained,
            timeout_notify=0,  # at each turn of the server, ten times a second
        )
        self._server = uvicorn.Server(config)
        bound = open_port(host, port, shared=True)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [bound]}, name="http", daemon=True
        )
        self._thread.start()

    async def _close_if_drained(self) -> None:
        """Ends the server as uvicorn does: answers are sent, connections closed, none is taken."""
        if self._application.is_drained:
            self._server.should_exit = True

    def check_health(self) -> None:
        """Raises if it listens no more; Ray Serve calls it."""
        if self._application.is_drained:
            return
        if not self._thread.is_alive():
            raise RuntimeError("the HTTP server of this replica has ended")
        if not self._application.is_alive:
            raise RuntimeError("a thread that computes has ended in this replica")

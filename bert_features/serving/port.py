"""The port of the service: each of its processes has a socket, and the kernel shares them out."""

import socket

from bert_features.config.serve_settings import ServeSettings
from bert_features.errors import OutputError


def hold_port(settings: ServeSettings) -> socket.socket:
    """A socket that keeps other services from the port; those of `open_port` may join it.

    Raises OutputError if the port is in use, or the address is not one of this machine.
    """
    # Alone, to notice other services; and as servers do: a port that one left a moment ago is free.
    _bind(settings, socket.SO_REUSEADDR).close()
    return _bind(settings, socket.SO_REUSEPORT)


class SharedPort:
    """Becomes a socket of its own on the port in each process that it is sent to.

    One of several processes with the same socket may take a whole burst of connections. The kernel
    spreads connections evenly over several sockets, and forgets the socket of a process that died.
    """

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings

    def __reduce__(self) -> tuple[object, ...]:
        return open_port, (self._settings,)


def open_port(settings: ServeSettings) -> socket.socket:
    """A socket that shares the port with others of `open_port`; OutputError if it is in use."""
    return _bind(settings, socket.SO_REUSEADDR, socket.SO_REUSEPORT)


def _bind(settings: ServeSettings, *options: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    try:
        for option in options:
            bound.setsockopt(socket.SOL_SOCKET, option, 1)
        bound.bind((settings.host, settings.port))
    except OSError as error:
        bound.close()
        raise OutputError.naming(
            "cannot listen on {host_port}: {reason}; pass another {port}, or an address of "
            "this machine to {host}",
            host_port=settings.url.removeprefix("http://"),
            reason=error.strerror or error,
        ) from error
    return bound

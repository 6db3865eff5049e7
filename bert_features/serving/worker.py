"""One process of the service: it loads the model, opens the port and answers requests."""

import contextlib
import logging
import math
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.serve_settings import ServeSettings
from bert_features.errors import DeviceError, OutputError
from bert_features.machine.hardware import cores
from bert_features.machine.quiet_tensorflow import import_tensorflow

if TYPE_CHECKING:
    import uvicorn

    from bert_features.serving.guard import Guard

logger = logging.getLogger("bert_features.serve")

# Connections that are not used are closed after this; behind a proxy longer than its own time.
_IDLE_SECONDS = 75
# Up to this number of cores each kernel has one thread: 1.2 times as many texts, and a long text
# alone takes 1.3 times as long (benchmarks/diary.md). With more cores it would take longer yet.
_FEW_CORES = 2


def load_app(config: ExtractConfig, settings: ServeSettings) -> "Guard":
    """Loads the model, and makes the ASGI application that serves it; raises BertFeaturesError."""
    # Each combination of outputs would log the device that it runs on.
    logging.getLogger("bert_features").setLevel(logging.WARNING)
    logger.setLevel(logging.INFO)
    import_tensorflow(config.runtime, config.device, many_batches=cores() <= _FEW_CORES)
    from bert_features.extraction.pipeline import Pipeline
    from bert_features.serving.app import make_app
    from bert_features.serving.service import Service

    return make_app(Service(Pipeline(config), settings))


def serve_here(
    config: ExtractConfig,
    settings: ServeSettings,
    *,
    listening: Callable[[], None],
    stopping: Callable[[], None],
    tick: Callable[[], None] = lambda: None,
) -> None:
    """Serves in this process until SIGINT, SIGTERM or SIGHUP; answers first what it has begun.

    Args:
      config: what `check_service` returned.
      settings: the settings of the service.
      listening: called once, when requests are taken.
      stopping: called at each of these signals.
      tick: called once a second.

    Raises:
      OutputError: the port is in use, or the address is not one of this machine.
      BertFeaturesError: the model cannot be loaded, or a thread that computes has ended.
    """
    import uvicorn

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            stopping()
            super().handle_exit(sig, frame)

    # uvicorn's lines stay off the terminal; this package logs starts, failures and ends.
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
    app = load_app(config, settings)

    async def notify() -> None:
        tick()
        if not app.is_alive:
            signal.raise_signal(signal.SIGTERM)

    server = Server(settings_of_uvicorn(settings, app=app, callback_notify=notify))
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as under nohup
        signal.signal(signal.SIGHUP, server.handle_exit)
    # Replicas share the port. Each has a socket of its own: one of several processes with the same
    # socket may take a whole burst of connections, and the kernel forgets the socket of a process
    # that died.
    port = bind(settings, socket.SO_REUSEADDR, socket.SO_REUSEPORT)
    port.listen()
    listening()
    # uvicorn raises the signal that stopped it once more.
    with contextlib.suppress(KeyboardInterrupt):
        server.run([port])
    if not app.is_alive:
        raise DeviceError("a thread that computes has ended; the log says more")


def log_stop() -> None:
    """Logs that the service stops."""
    logger.info("stopping; a second Ctrl-C does not wait for running requests")


def bind(settings: ServeSettings, *options: int) -> socket.socket:
    """A socket on the port of the service, with these options; raises OutputError."""
    bound = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    try:
        for option in options:
            bound.setsockopt(socket.SOL_SOCKET, option, 1)
        bound.bind((settings.host, settings.port))
    except OSError as error:
        bound.close()
        host_port = settings.url.removeprefix("http://")
        reason = error.strerror or error
        raise OutputError(
            f"cannot listen on {host_port}: {reason}; pass another port, or an address of this "
            "machine as host"
        ) from error
    return bound


def settings_of_uvicorn(settings: ServeSettings, **values: Any) -> "uvicorn.Config":
    """How uvicorn serves the application `values["app"]`."""
    import uvicorn

    from bert_features.serving.protocol import MAX_HEAD_BYTES, Http

    return uvicorn.Config(
        **values,
        http=Http,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=math.ceil(settings.drain_seconds),
        timeout_notify=0,  # once a second
    )

"""Runs the service on this machine: in this process, or in several that uvicorn watches."""

import contextlib
import logging
import math
import pickle
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TYPE_CHECKING, Any

from bert_features.checkpoints.find import find_checkpoint
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.kinds import KINDS
from bert_features.config.outputs import check_floats
from bert_features.config.serve_settings import ServeSettings
from bert_features.errors import ConfigError, DeviceError, MissingExtraError, OutputError
from bert_features.extraction.forks import process_context
from bert_features.extraction.prompts import Prompts
from bert_features.formats.checks import check_name
from bert_features.machine.shares import Share, share_out
from bert_features.serving.worker import (
    FAILURE,
    LISTENS,
    STILL_SECONDS,
    Worker,
    load_app,
    log_stop,
    silence_uvicorn,
    stop_if_dead,
)

if TYPE_CHECKING:
    import uvicorn
    from uvicorn.supervisors import Multiprocess

logger = logging.getLogger("bert_features.serve")

_PACKAGES = ("fastapi_offline", "orjson", "prometheus_client", "starlette", "uvicorn")
# Connections that are not used are closed after this; behind a proxy longer than its own time.
_IDLE_SECONDS = 75
_LOOK_SECONDS = 0.2


def check_service(config: ExtractConfig, settings: ServeSettings) -> ExtractConfig:
    """Refuses what cannot be served, before anything slow; gives `config_with_outputs`.

    Raises:
      CheckpointError: the checkpoint is not usable.
      ConfigError: a setting does not fit.
      MissingExtraError: a package is not installed.
    """
    if not all(map(find_spec, _PACKAGES)):
        raise MissingExtraError("the web server", "serve")
    _shares(config, settings)
    return config_with_outputs(config)


def config_with_outputs(config: ExtractConfig) -> ExtractConfig:
    """The settings with outputs that each have a name.

    Raises CheckpointError if the checkpoint is not usable, ConfigError if the outputs do not fit
    it, or each other.
    """
    from bert_features.checkpoints.pooling import auto_pooling
    from bert_features.serving.catalog import config_to_serve  # imports packages of the extra

    for kind in (KINDS[output.kind] for output in config.outputs):
        if kind.unserved:
            raise ConfigError(
                f"kind is '{kind.name}', and {kind.unserved}; use extract, or FeatureExtractor in "
                "Python"
            )
    check_floats((o.dtype for o in config.outputs), "the service")
    checkpoint = find_checkpoint(config.checkpoint, **config.checkpoint_options())
    served = config_to_serve(config, checkpoint.config)
    outputs = served.plan_outputs(checkpoint.config, auto_pooling(checkpoint, served.outputs))
    for output in outputs:
        check_name(output.name)  # they become columns of Arrow tables
    prompts = Prompts(served, checkpoint, tokenizer_lower_cases=True)
    model = PurePath(checkpoint.name).name
    models = [f"{model}/{name}" for name, text in prompts.named.items() if text]
    if models and served.prompt is None and not prompts.metadata():
        logger.warning(
            "%s has prompts, and texts get none by default, which makes vectors worse: ask for the "
            "models %s of /v1/embeddings, pass prompt_name to /v1/features, or start with --prompt",
            *(model, ", ".join(models)),
        )
    return served


def _shares(config: ExtractConfig, settings: ServeSettings) -> list[Share]:
    if settings.replicas == 1:
        return [Share()]
    return share_out(settings.replicas, config.device, setting="replicas")


def serve(
    config: ExtractConfig,
    settings: ServeSettings,
    *,
    listening: Callable[[], None],
    set_up_logging: Callable[[], None],
) -> None:
    """Serves until SIGINT or SIGTERM; requests that are being answered then are answered first.

    Args:
      config: what `check_service` returned.
      settings: the settings of the service.
      listening: called once, when requests are taken.
      set_up_logging: prepares the log of a further process.

    Raises:
      OutputError: the port is in use, or the address is not one of this machine.
      BertFeaturesError: the model cannot be loaded, or a process ends while it loads it.
    """
    silence_uvicorn()
    # Alone, to notice other services; and as servers do: a port that one left a moment ago is free.
    _bind(settings, socket.SO_REUSEADDR).close()
    with _bind(settings, socket.SO_REUSEPORT):  # keeps other services from the port
        if settings.replicas == 1:
            _serve_here(config, settings, listening)
            return
        with TemporaryDirectory(prefix="bert_features_serve_") as name:
            shares = _shares(config, settings)
            supervise(Worker(config, settings, shares, Path(name), set_up_logging), listening)


def _serve_here(
    config: ExtractConfig, settings: ServeSettings, listening: Callable[[], None]
) -> None:
    import uvicorn

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            log_stop()
            super().handle_exit(sig, frame)

    app = load_app(config, settings)

    async def tick() -> None:
        stop_if_dead(app)

    server = Server(settings_of_uvicorn(settings, app=app, callback_notify=tick))
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as under nohup
        signal.signal(signal.SIGHUP, server.handle_exit)
    port = _open_port(settings)
    port.listen()
    listening()
    # uvicorn raises the signal that stopped it once more.
    with contextlib.suppress(KeyboardInterrupt):
        server.run([port])
    if not app.is_alive:
        raise DeviceError("a thread that computes has ended; the log says more")


def supervise(worker: Worker, listening: Callable[[], None]) -> None:
    """Runs the processes of the service, which uvicorn watches and replaces, until a signal.

    `listening` is called once, when all of them listen. BertFeaturesError: one could not load the
    model.
    """
    has_listened, has_ended = threading.Event(), threading.Event()

    def wait_for_processes() -> None:
        while not has_ended.wait(_LOOK_SECONDS):
            if len(list(worker.folder.glob(f"*{LISTENS}"))) == worker.settings.replicas:
                has_listened.set()
                listening()
                return

    waiting = threading.Thread(target=wait_for_processes)
    with _supervisor(worker, has_listened) as (supervisor, received):
        waiting.start()
        supervisor.run()
        has_ended.set()
        waiting.join()
    if not received:  # then a process could not start
        raise pickle.loads((worker.folder / FAILURE).read_bytes())
    if not has_listened.is_set():
        signal.raise_signal(received[0])


@contextlib.contextmanager
def _supervisor(
    worker: Worker, has_listened: threading.Event
) -> "Iterator[tuple[Multiprocess, list[int]]]":
    """The supervisor of uvicorn with our signal handlers, and the signals that ended it."""
    from uvicorn import _subprocess
    from uvicorn.supervisors.multiprocess import SIGNALS, Multiprocess

    class Supervisor(Multiprocess):
        def keep_subprocess_alive(self) -> None:
            # The pipe of a process has no end while this one has the other side: a ping would wait.
            for process in self.processes:
                process.child_conn.close()
            super().keep_subprocess_alive()

    _subprocess.spawn = process_context(worker.config)  # type: ignore[assignment]
    before = {number: signal.getsignal(number) for number in SIGNALS}
    config = settings_of_uvicorn(
        worker.settings,
        app=worker,
        factory=True,
        callback_notify=worker.tick,
        workers=worker.settings.replicas,
        timeout_worker_healthcheck=STILL_SECONDS,
    )
    supervisor = Supervisor(config, [_Port(worker.settings)])  # type: ignore[list-item]
    end: Any = signal.getsignal(signal.SIGTERM)
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if has_listened.is_set():
            log_stop()
        end(signal.SIGTERM, frame)

    own = {signal.SIGINT: stop, signal.SIGTERM: stop}
    if before[signal.SIGHUP] != signal.SIG_IGN:  # as under nohup
        own[signal.SIGHUP] = stop
    for number, handler in (before | own).items():  # uvicorn's others add and remove workers
        signal.signal(number, handler)
    try:
        yield supervisor, received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Port:
    """Becomes a socket of its own on the port in each process that it is sent to.

    One of several processes with the same socket may take a whole burst of connections. The kernel
    spreads connections evenly over several sockets, and forgets the socket of a process that died.
    """

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings

    def __reduce__(self) -> tuple[object, ...]:
        return _open_port, (self._settings,)


def _open_port(settings: ServeSettings) -> socket.socket:
    """A socket that shares the port with others of this function."""
    return _bind(settings, socket.SO_REUSEADDR, socket.SO_REUSEPORT)


def _bind(settings: ServeSettings, *options: int) -> socket.socket:
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

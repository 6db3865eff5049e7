"""Runs the service on this machine: in this process, or in several that uvicorn watches."""

import contextlib
import logging
import math
import signal
from collections.abc import Callable
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
from bert_features.errors import ConfigError, DeviceError, MissingExtraError
from bert_features.extraction.prompts import Prompts
from bert_features.formats.checks import check_name
from bert_features.machine.shares import Share, share_out
from bert_features.serving.port import hold_port, open_port
from bert_features.serving.worker import Worker, load_app, log_stop, silence_uvicorn, stop_if_dead

if TYPE_CHECKING:
    import uvicorn

logger = logging.getLogger("bert_features.serve")

_PACKAGES = ("fastapi_offline", "orjson", "prometheus_client", "starlette", "uvicorn")
# Connections that are not used are closed after this; behind a proxy longer than its own time.
_IDLE_SECONDS = 75


def check_service(config: ExtractConfig, settings: ServeSettings) -> ExtractConfig:
    """Refuses what cannot be served, before anything slow.

    Returns:
      The settings with outputs that each have a name.

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

    for kind in (KINDS[output.kind] for output in config.output_configs()):
        if kind.unserved:
            raise ConfigError.naming(
                "{kind} is '{received}', and {reason}; use extract, or FeatureExtractor in Python",
                received=kind.name,
                reason=kind.unserved,
            )
    check_floats((o.dtype or config.dtype for o in config.output_configs()), "the service")
    checkpoint = find_checkpoint(config.checkpoint, **config.checkpoint_options())
    served = config_to_serve(config, checkpoint.config)
    outputs = served.plan_outputs(
        checkpoint.config, auto_pooling(checkpoint, served.output_configs())
    )
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
    with hold_port(settings):
        if settings.replicas == 1:
            _serve_here(config, settings, listening)
        else:
            _serve_in_processes(config, settings, listening, set_up_logging)


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
    port = open_port(settings)
    port.listen()
    listening()
    # uvicorn raises the signal that stopped it once more.
    with contextlib.suppress(KeyboardInterrupt):
        server.run([port])
    if not app.is_alive:
        raise DeviceError("a thread that computes has ended; the log says more")


def _serve_in_processes(
    config: ExtractConfig,
    settings: ServeSettings,
    listening: Callable[[], None],
    set_up_logging: Callable[[], None],
) -> None:
    from bert_features.serving.workers import Workers

    with TemporaryDirectory(prefix="bert_features_serve_") as name:
        folder = Path(name)
        worker = Worker(config, settings, _shares(config, settings), folder, set_up_logging)
        uvicorn_config = settings_of_uvicorn(
            settings,
            app=worker,
            factory=True,
            callback_notify=worker.tick,
            workers=settings.replicas,
        )
        Workers(uvicorn_config, settings, folder, listening).run()


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

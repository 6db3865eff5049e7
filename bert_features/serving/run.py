"""Runs the service on this machine: in this process, or in several that this one watches."""

import logging
import socket
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import PurePath

from bert_features.checkpoints.find import find_checkpoint
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.kinds import KINDS
from bert_features.config.outputs import check_floats
from bert_features.config.serve_settings import ServeSettings
from bert_features.errors import ConfigError, MissingExtraError
from bert_features.extraction.prompts import Prompts
from bert_features.formats.checks import check_name
from bert_features.machine.shares import Share, share_out
from bert_features.serving.replicas import Job, serve_in_processes
from bert_features.serving.worker import bind, log_stop, serve_here

logger = logging.getLogger("bert_features.serve")

_PACKAGES = ("fastapi_offline", "orjson", "prometheus_client", "starlette", "uvicorn")


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
    # Alone, to notice other services; and as servers do: a port that one left a moment ago is free.
    bind(settings, socket.SO_REUSEADDR).close()
    with bind(settings, socket.SO_REUSEPORT):  # keeps other services from the port
        if settings.replicas == 1:
            serve_here(config, settings, listening=listening, stopping=log_stop)
            return
        job = Job(config, settings, set_up_logging)
        serve_in_processes(job, _shares(config, settings), listening)

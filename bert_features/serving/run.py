"""Runs the service on Ray Serve: replicas that it starts, watches and replaces."""

import contextlib
import logging
import socket
import time
from collections.abc import Iterator
from typing import Any

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.find import find_checkpoint
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.ray_settings import LOCAL, RaySettings
from bert_features.config.serve_settings import ServeSettings
from bert_features.errors import (
    ConfigError,
    DeviceError,
    MissingExtraError,
    OutputError,
)
from bert_features.formats.checks import check_features
from bert_features.machine.hardware import cores
from bert_features.ray.cluster import connected, one_line, resources_of_actors
from bert_features.serving.catalog import config_to_serve
from bert_features.serving.listening import IDLE_SECONDS, ListeningReplica, open_port
from bert_features.serving.replica import app_of_replica

logger = logging.getLogger("bert_features")

_APP = "bert_features"
_ROUTE = "/"
# The replica answers 429 long before; Ray itself would let requests wait without an answer.
_MAX_ONGOING = 8192
# Ray's own time limit, should a replica not keep its own.
_SPARE_SECONDS = 30.0
_POLL_SECONDS = 0.25
# The servers of replicas close their connections meanwhile.
_CLOSE_SECONDS = 0.5


def check_service(config: ExtractConfig, settings: ServeSettings) -> ExtractConfig:
    """Refuses what cannot be served, before anything slow.

    Returns:
      The settings with outputs that each have a name.

    Raises:
      CheckpointError: the checkpoint is not usable.
      ConfigError: a setting does not fit.
      MissingExtraError: a package is not installed.
      OutputError: the port is in use, or the address is not one of this machine.
    """
    _check_installed()
    checkpoint = find_checkpoint(
        config.checkpoint,
        config_file=config.config_file,
        vocab_file=config.vocab_file,
        hidden_act=config.hidden_act,
    )
    served = config_to_serve(config, checkpoint.config)
    _check_outputs(served, checkpoint)
    _check_port(settings)
    return served


def _check_installed() -> None:
    try:
        import fastapi_offline as fastapi_offline
        import orjson as orjson
        import prometheus_client as prometheus_client
        from ray import serve as serve
    except ImportError as error:
        raise MissingExtraError("Ray Serve", "serve") from error


def _check_outputs(config: ExtractConfig, checkpoint: Checkpoint) -> None:
    from bert_features.checkpoints.pooling import auto_pooling

    outputs = config.plan_outputs(
        checkpoint.config, auto_pooling(checkpoint, config.output_configs())
    )
    check_features(outputs)  # they become columns of Arrow tables


def _check_port(settings: ServeSettings) -> None:
    with _port_errors(settings):
        open_port(settings.host, settings.port).close()


def _held_port(settings: ServeSettings) -> socket.socket:
    with _port_errors(settings):
        return open_port(settings.host, settings.port, shared=True, reused=False)


@contextlib.contextmanager
def _port_errors(settings: ServeSettings) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError.naming(
            "cannot listen on {host_port}: {reason}; pass another {port}, or an address of "
            "this machine to {host}",
            host_port=settings.url.removeprefix("http://"),
            reason=error.strerror or error,
        ) from error


@contextlib.contextmanager
def serving(
    config: ExtractConfig, settings: ServeSettings, cluster: RaySettings | None = None
) -> Iterator["Serving"]:
    """Serves while the block runs; at its end running requests are answered first.

    Args:
      config: what `check_service` returned.
      settings: the settings of the service.
      cluster: the Ray cluster; by default one of this machine's own, which ends with the block.

    Raises:
      DeviceError: the service does not start.
    """
    cluster = cluster or RaySettings(LOCAL)
    by_proxy = cluster.address != LOCAL  # replicas may be on other machines
    with contextlib.ExitStack() as stack:
        if not by_proxy:
            # Replicas share the port; this socket keeps another service from joining them.
            stack.enter_context(_held_port(settings))
        ray = stack.enter_context(connected(cluster))
        from ray import serve

        from bert_features.serving.board import Board

        logging.getLogger("ray.serve").setLevel(logging.ERROR)  # it logs to the terminal

        resources, limit = _resources(ray, cluster, config, settings)
        board = ray.remote(num_cpus=0)(Board).remote()
        started = Serving(ray, board, settings.drain_seconds)
        try:
            _start(serve, config, settings, resources, limit, board, by_proxy=by_proxy)
            yield started
            started.drain()
        finally:
            serve.shutdown()


def _resources(
    ray: Any, cluster: RaySettings, config: ExtractConfig, settings: ServeSettings
) -> tuple[dict[str, float], int | None]:
    """What each replica needs, and the cores that it may use, if not all."""
    resources = resources_of_actors(ray, cluster, config.device)
    if cluster.address != LOCAL or set(resources) != {"CPU"}:
        return resources, None
    share = cores() // settings.replicas
    if not share:
        raise ConfigError.naming(
            "{replicas} is {received}; this machine has {cores} CPU cores, and each replica needs "
            "one",
            received=settings.replicas,
            cores=cores(),
        )
    return {"CPU": float(share)}, share


def _start(
    serve: Any,
    config: ExtractConfig,
    settings: ServeSettings,
    resources: dict[str, float],
    limit: int | None,
    board: Any,
    *,
    by_proxy: bool,
) -> None:
    """Starts the replicas, and before them, unless they listen themselves, Ray's HTTP proxy."""
    serve.start(
        proxy_location="HeadOnly" if by_proxy else "Disabled",
        http_options={
            "host": settings.host,
            "port": settings.port,
            "request_timeout_s": settings.limits.seconds + _SPARE_SECONDS,
            "keep_alive_timeout_s": IDLE_SECONDS,
        },
        logging_config={"log_level": "ERROR", "enable_access_log": False},
    )
    build = app_of_replica(config, settings, limit, board)
    others = {name: n for name, n in resources.items() if name not in ("CPU", "GPU")}
    deployment = serve.deployment(
        serve.ingress(build)() if by_proxy else ListeningReplica,
        name=_APP,
        num_replicas=settings.replicas,
        max_ongoing_requests=_MAX_ONGOING,
        health_check_timeout_s=_SPARE_SECONDS,
        graceful_shutdown_timeout_s=1.0,  # `Serving.drain` has waited already
        ray_actor_options={
            "num_cpus": resources.get("CPU", 0),
            "num_gpus": resources.get("GPU", 0),
            "resources": others,
        },
    )
    arguments = () if by_proxy else (build, settings.host, settings.port)
    try:
        serve.run(deployment.bind(*arguments), name=_APP, route_prefix=_ROUTE if by_proxy else None)
    except Exception as error:
        reason = one_line(error)
        raise DeviceError(f"the service does not start: {reason}") from error


class Serving:
    """A service that runs.

    Args:
      ray: the module, connected.
      board: the handle of the `Board`.
      drain_seconds: how long running requests are waited for.
    """

    def __init__(self, ray: Any, board: Any, drain_seconds: float) -> None:
        self._ray = ray
        self._board = board
        self._drain_seconds = drain_seconds

    def wait(self) -> None:
        """Passes on what replicas log, until the process is stopped."""
        while True:
            self._pass_on_lines()
            time.sleep(_POLL_SECONDS)

    def drain(self) -> None:
        """Takes no more requests and waits for those that are being answered."""
        self._ray.get(self._board.drain.remote())
        deadline = time.monotonic() + self._drain_seconds
        while not self._ray.get(self._board.is_drained.remote()):
            if time.monotonic() > deadline:
                logger.warning(
                    "requests are still being answered after %g seconds; they are lost",
                    self._drain_seconds,
                )
                break
            time.sleep(_POLL_SECONDS)
        time.sleep(_CLOSE_SECONDS)
        self._pass_on_lines()

    def _pass_on_lines(self) -> None:
        try:
            lines = self._ray.get(self._board.take_lines.remote())
        except self._ray.exceptions.RayError as error:
            raise DeviceError(f"Ray has ended: {one_line(error)}") from error
        for level, line in lines:
            logger.log(level, "%s", line)

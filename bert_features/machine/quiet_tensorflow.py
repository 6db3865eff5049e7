"""Importing TensorFlow without its start-up messages, and without what no command uses."""

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bert_features.machine import hardware, tpu_installation
from bert_features.machine.library_pages import release_library_pages
from bert_features.machine.names import Device, RuntimeName
from bert_features.machine.selection import activate_runtime, backend_set

# Up to 2.20 TensorFlow obeys TF_CPP_MIN_LOG_LEVEL. 2.21 writes some lines before it reads it,
# through absl's log: "I0000 00:00:1795…  port.cc:153] oneDNN custom operations are on. …".
_NOISE = re.compile(
    rb"[IWE]\d{4} \d\d:\d\d:|WARNING: All log messages before absl::InitializeLog\(\)"
)

# absl::SetMinLogLevel of TensorFlow 2.20, whose absl does not obey TF_CPP_MIN_LOG_LEVEL; 2.21 does.
_SET_MIN_LOG_LEVEL = "_ZN4absl12lts_2025012714SetMinLogLevelENS0_18LogSeverityAtLeastE"

# Installed, they take half of the time and 280 MB of the memory of importing TensorFlow and Keras.
# Both import them for parts that this package does not use, and do without them where they fail.
_UNUSED = ("IPython", "PIL", "matplotlib", "pandas", "sklearn")
_UNUSED_WITHOUT_JAX = ("jax", "scipy")

_is_own_process = False


def claim_process() -> None:
    """Says that this process runs no code but ours, so it can import less, and end sooner.

    The parts of TensorFlow and Keras for scikit-learn, matplotlib, pandas, Pillow, SciPy and JAX do
    not work in it. As it ends, Python does not look for garbage: among TensorFlow's objects that
    takes up to a second. So what is to be written must be closed before, or by an exit handler.
    """
    global _is_own_process
    if not _is_own_process:
        _is_own_process = True
        # Else what this process starts imports a signal.py of the current folder.
        os.environ.setdefault("PYTHONSAFEPATH", "1")
        atexit.register(gc.freeze)  # the first to be registered, so the last to be called


def is_own_process() -> bool:
    """Whether `claim_process` was called."""
    return _is_own_process


def import_tensorflow(
    runtime: RuntimeName = "auto", device: Device = "auto", *, many_batches: bool = False
) -> Any:
    """Imports TensorFlow and keeps its start-up messages, and nothing else, off the terminal.

    The messages come from C++ and bypass sys.stderr, so for a moment the file descriptor points to
    a file. Lines of other origin are passed on afterwards; if the import fails, all lines are.

    TensorFlow imports Keras, so Keras' backend is chosen first.

    Args:
      runtime: the setting `runtime`; see `selection.activate_runtime`.
      device: the setting `device`; with `cpu` a TPU stays free for other programs.
      many_batches: whether the process computes many batches. If it is our own, each kernel then
        has one thread.

    Raises:
      ConfigError: the wanted TPU is absent; the import would end the process, see
        `tpu_installation.refuse_what_aborts`; or Keras is set to a backend other than TensorFlow
        and JAX.
      MissingExtraError: JAX is wanted but not installed.
    """
    activate_runtime(runtime, device)
    if many_batches and _is_own_process:
        hardware.keep_kernels_on_one_thread()
    if "tensorflow" in sys.modules:
        return sys.modules["tensorflow"]
    tpu_installation.refuse_absent_tpu(device)
    tpu_installation.refuse_what_aborts()
    tpu_installation.choose_pjrt(device)
    try:
        terminal = os.dup(2)
    except OSError:  # there is no standard error to keep clean
        return importlib.import_module("tensorflow")
    failed = True
    with tempfile.TemporaryFile() as kept, _without_garbage_collection(), _without_unused():
        try:
            os.dup2(kept.fileno(), 2)
            tensorflow = importlib.import_module("tensorflow")
            tensorflow.config.list_physical_devices()  # loads the rest, with the same messages
            _keep_warnings_from_terminal(tensorflow)
            failed = False
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
            kept.seek(0)
            for line in kept:
                if failed or not _NOISE.match(line):
                    os.write(2, line)
    if _is_own_process:
        release_library_pages()
    return tensorflow


def _keep_warnings_from_terminal(tensorflow: Any) -> None:
    """Makes absl's log in C++ obey TF_CPP_MIN_LOG_LEVEL, but for errors, which it always shows.

    On ARM it warns in the middle of a run that the CPU reports no frequency.
    """
    with contextlib.suppress(AttributeError, OSError, ValueError):
        level = min(int(os.environ.get("TF_CPP_MIN_LOG_LEVEL", "")), 2)  # 2: errors
        for library in Path(tensorflow.sysconfig.get_lib()).glob("libtensorflow_framework*"):
            ctypes.CDLL(str(library))[_SET_MIN_LOG_LEVEL](level)


@contextlib.contextmanager
def _without_unused() -> Iterator[None]:
    """In a process of our own, lets an import not find what it would import for nothing."""
    names = _UNUSED if backend_set() == "jax" else (*_UNUSED, *_UNUSED_WITHOUT_JAX)
    with _hidden(names if _is_own_process else ()):
        yield


@functools.cache
def keep_pandas_from_arrow() -> None:
    """In a process of our own, lets Arrow do without pandas, where that is not loaded yet.

    Arrow imports it, half a second, for the first array that it converts, and only that one time.
    """
    if _is_own_process and "pandas" not in sys.modules:
        import pyarrow as pa

        # Arrow is compiled by Cython, which takes the None of a hidden module for the module.
        with _hidden(["pandas"]), contextlib.suppress(ImportError, AttributeError):
            pa.array([""])


@contextlib.contextmanager
def _hidden(names: Iterable[str]) -> Iterator[None]:
    """Lets imports not find modules, unless they are loaded already."""
    absent = [name for name in names if name not in sys.modules]
    modules: dict[str, Any] = sys.modules  # None: the import system raises ImportError
    modules.update(dict.fromkeys(absent))
    try:
        yield
    finally:
        for name in absent:
            modules.pop(name, None)


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Lets an import make its objects without looking for garbage among them a thousand times.

    That takes a fifth of the time of TensorFlow's import. The garbage, some MB, waits for the next
    full collection. In a process of our own it stays, as all objects do that are there after the
    import: a full collection among them stops all threads for half a second.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if gc.get_freeze_count() < 1000:  # Python 3.12 begins with hundreds, a program with more
            # Makes all objects old, as if they had outlived the collections that were left out.
            gc.freeze()
            if not _is_own_process:
                gc.unfreeze()
        gc.enable()

"""Contextual features from BERT checkpoints. Importing this does not import TensorFlow.

The public names are listed in `__init__.pyi`, for type checkers and for this module alike. Each is
imported when it is asked for.
"""

import ast
import importlib
import os
from pathlib import Path
from typing import Any

from bert_features.machine import onednn
from bert_features.machine.quiet_tensorflow import import_tensorflow
from bert_features.machine.versions import own_version

# TensorFlow writes a dozen lines to the terminal when it is imported, errors about absent GPUs
# among them. Real problems reach the user as exceptions. A setting of the user's stands.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
onednn.turn_on()

__version__ = own_version()

_MODULES = {
    name.name: node.module or ""
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for name in node.names
}
# They import TensorFlow, if at all, once it is needed.
_LIGHT_ROOMS = (
    *("checkpoints", "config", "corpus", "errors", "extraction"),
    *("formats", "neighbors", "readers", "serving"),
)

__all__ = sorted([*_MODULES, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        from bert_features.config.other_names import hint_of

        if hint := hint_of(name):  # no AttributeError, whose text `from … import` would hide
            raise ImportError(f"{__name__} has no {name}; {hint}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES[name]
    if module.partition(".")[0] not in _LIGHT_ROOMS:
        import_tensorflow()
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return __all__

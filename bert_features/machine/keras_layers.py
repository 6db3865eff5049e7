"""Makes our layers known to Keras as soon as it is imported, so that saved models load."""

import importlib
import sys
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

_LAYERS = ("BertFeatures", "BertTextInput")


def register_layers() -> None:
    """Registers the layers with Keras: now, or once it is imported."""
    if sys.modules.get("keras") is not None:
        _register()
    else:
        # Not first: hooks of other packages (wrapt, MLflow, wandb) would no longer be asked.
        sys.meta_path.insert(sys.meta_path.index(PathFinder), _KerasFinder())


@dataclass(frozen=True)
class _LaterLayer:
    """Stands for a layer until a model needs it: the layer itself imports much."""

    name: str

    def from_config(self, config: dict[str, Any]) -> Any:
        """What Keras calls when it loads a model; from then on it has the layer itself."""
        layers = importlib.import_module("bert_features.layers")
        return getattr(layers, self.name).from_config(config)


def _register() -> None:
    # An import waits where another thread imports Keras.
    keras = importlib.import_module("keras")
    if hasattr(keras, "saving"):  # else it is broken, and its import must not fail because of us
        layers = {f"bert_features>{name}": _LaterLayer(name) for name in _LAYERS}
        keras.saving.get_custom_objects().update(layers)


class _KerasFinder(MetaPathFinder):
    """Finds Keras where Python does; its import then ends with the registration."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == "keras" else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: Any) -> None:
                execute(module)
                _register()

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec

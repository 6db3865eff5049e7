"""A pickled extractor: its settings, from which another process makes it again.

Unpickling its class imports Keras. So the settings come first and choose Keras' backend.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any, Self

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.output_specs import OutputSpec
from bert_features.machine.quiet_tensorflow import import_tensorflow


class PickledBySettings:
    """An extractor that is pickled as its settings, and whose copies share its weights."""

    config: ExtractConfig
    outputs: tuple[OutputSpec, ...]

    def __copy__(self) -> Self:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return copy.copy(self)

    def __sklearn_clone__(self) -> Self:
        return copy.copy(self)

    def __reduce__(self) -> tuple[object, ...]:
        names = [output.name for output in self.outputs]
        return _make_again, (_LeadingSettings(self.config), type(self), names)


class _LeadingSettings:
    """Settings that are unpickled as an `ExtractConfig`, once their framework is imported."""

    def __init__(self, config: ExtractConfig) -> None:
        self._config = config

    def __reduce__(self) -> tuple[object, ...]:
        return _import_framework, (self._config,)


def _import_framework(config: ExtractConfig) -> ExtractConfig:
    import_tensorflow(config.runtime, config.device)
    return config


def _make_again(
    config: ExtractConfig, make: Callable[[ExtractConfig], Any], outputs: Sequence[str]
) -> Any:
    """The extractor of these settings with these outputs; `make` is its class."""
    extractor = make(config)
    if [output.name for output in extractor.outputs] == list(outputs):
        return extractor
    return extractor.with_outputs(outputs)

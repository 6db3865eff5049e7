"""A pickled extractor: its settings, from which another process makes it again."""

import copy
from collections.abc import Callable, Sequence
from typing import Any, Self

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.features import OutputSpec


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
        return _make_again, (self.config, type(self), names)


def _make_again(
    config: ExtractConfig, make: Callable[[ExtractConfig], Any], outputs: Sequence[str]
) -> Any:
    """The extractor of these settings with these outputs; `make` is its class."""
    extractor = make(config)
    if [output.name for output in extractor.outputs] == list(outputs):
        return extractor
    return extractor.with_outputs(outputs)

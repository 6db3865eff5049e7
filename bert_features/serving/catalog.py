"""The outputs that a service offers, by the names that requests use."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bert_features.config.bert_config import BertConfig
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.features import OutputSpec
from bert_features.config.layers import EMBEDDINGS
from bert_features.config.output_specs import output_names
from bert_features.config.outputs import OutputConfig
from bert_features.config.poolings import AUTO_POOLING
from bert_features.serving.failures import RequestError

# The output that the page at / asks for: the tokens at every layer.
ALL_LAYERS = "all_layers"
_LAYER_NAME = re.compile(rf"{ALL_LAYERS}_({EMBEDDINGS}|\d+)")
_DEFAULTS = (
    OutputConfig(name="embedding", level="sequence", pooling=AUTO_POOLING),
    OutputConfig(name="last_layer", level="token", layers=(-1,)),
)
_MAX_SHOWN = 100


def config_to_serve(config: ExtractConfig, architecture: BertConfig) -> ExtractConfig:
    """The settings of a service: the settings of the user, and outputs that each have a name.

    Without outputs of the user there are `embedding`, one vector for each text, and `last_layer`,
    its tokens. `all_layers`, the tokens at every layer, is added unless the user has an output of
    that name.

    Raises:
      ConfigError: the outputs do not fit together.
    """
    outputs = [
        output if output.name else output.model_copy(update={"name": "features"})
        for output in (config.outputs if "outputs" in config.model_fields_set else _DEFAULTS)
    ]
    names = {output.name for output in outputs}
    layers = (EMBEDDINGS, *range(architecture.num_hidden_layers))
    if ALL_LAYERS not in names:
        outputs += [OutputConfig(name=f"{ALL_LAYERS}_{i}", layers=(i,)) for i in layers]
    values = {name: getattr(config, name) for name in config.model_fields_set}
    return ExtractConfig.of({**values, "outputs": outputs})


@dataclass(frozen=True)
class Catalog:
    """The outputs of a service."""

    outputs: dict[str, tuple[OutputSpec, ...]]

    @classmethod
    def of(cls, config: ExtractConfig, specs: Sequence[OutputSpec], num_layers: int) -> "Catalog":
        """The outputs of settings, each of which has a name."""
        by_name = {spec.name: spec for spec in specs}
        outputs: dict[str, tuple[OutputSpec, ...]] = {}
        for output in config.outputs:
            is_layer = _LAYER_NAME.fullmatch(str(output.name))
            name = ALL_LAYERS if is_layer else str(output.name)
            features = output_names([output], num_layers)
            outputs[name] = (*outputs.get(name, ()), *map(by_name.__getitem__, features))
        return cls(outputs)

    def find(self, names: Sequence[str] | None) -> tuple[OutputSpec, ...]:
        """The features of some outputs; by default of the first.

        Raises RequestError if there is no output of a name, or one is named twice.
        """
        if names is None:
            return next(iter(self.outputs.values()))
        for i, name in enumerate(names):
            if name not in self.outputs or name in names[:i]:
                allowed = ", ".join(self.outputs)
                raise RequestError(
                    "invalid_request",
                    f"outputs[{i}] is {name[:_MAX_SHOWN]!r}; allowed: each of {allowed} once",
                    param=f"outputs[{i}]",
                )
        return tuple(spec for name in names for spec in self.outputs[name])

    def vectors(self) -> dict[str, OutputSpec]:
        """The outputs that are one vector for each text, by their names."""
        return {
            name: specs[0]
            for name, specs in self.outputs.items()
            if len(specs) == 1 and specs[0].is_sequence
        }

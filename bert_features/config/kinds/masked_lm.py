"""Kind `masked_lm`: the likeliest pieces of each token, by the masked-LM head."""

from typing import Any

from bert_features.config.bert_config import BertConfig
from bert_features.config.features import OutputSpec
from bert_features.config.kinds.base import Context, OutputKind, make_spec
from bert_features.errors import ConfigError

DEFAULT_TOP_K = 5


class MaskedLM(OutputKind):
    """The ids of the K likeliest pieces of each token, and their log-probabilities."""

    name = "masked_lm"
    summary = "the likeliest pieces at each token, by the masked-LM head"
    settings = frozenset(["top_k"])
    levels = ("token",)
    needs = "head"

    def names(self, output: Any, num_layers: int) -> list[str]:
        """The log-probabilities, then the ids."""
        name = output.name or self.name
        return [name, f"{name}_ids"]

    def specs(self, output: Any, context: Context) -> list[OutputSpec]:
        """Two features, float32 and int32."""
        width = check_top_k(output.top_k or DEFAULT_TOP_K, context.config)
        return [
            head_spec(output, context.config, name=name, dtype=dtype, width=width)
            for name, dtype in zip(self.names(output, 1), ("float32", "int32"), strict=True)
        ]


def check_top_k(top_k: int | None, config: BertConfig) -> Any:
    """Gives the setting back; raises ConfigError if it is more than the vocabulary has."""
    if (top_k or 0) > config.vocab_size:
        raise ConfigError(f"top_k is {top_k}; the vocabulary has {config.vocab_size} pieces")
    return top_k


def head_spec(output: Any, config: BertConfig, **values: Any) -> OutputSpec:
    """A feature that the masked-LM head computes from the last layer."""
    return make_spec(output, layers=(-1,), states=(config.num_hidden_layers,), **values)

"""Kind `masked_lm`: the likeliest pieces of each token, by the masked-LM head."""

from typing import Any

from bert_features.config.bert_config import BertConfig
from bert_features.config.features import OutputSpec
from bert_features.config.kinds.base import Context, OutputKind, make_spec, numbered
from bert_features.errors import ConfigError

DEFAULT_TOP_K = 5


class MaskedLM(OutputKind):
    """The ids of the K likeliest pieces of each token, and their log-probabilities."""

    name = "masked_lm"
    summary = "the likeliest pieces at each token, by the masked-LM head"
    settings = frozenset(["top_k", "layers"])
    levels = ("token",)
    needs = "head"
    default_layers = (-1,)

    def names(self, output: Any, num_layers: int) -> list[str]:
        """Of each layer the log-probabilities, then the ids."""
        names = numbered(output.name or self.name, num_layers)
        return [each for name in names for each in (name, f"{name}_ids")]

    def specs(self, output: Any, context: Context) -> list[OutputSpec]:
        """Two features of each layer, float32 and int32."""
        width = check_top_k(output.top_k or DEFAULT_TOP_K, context.config)
        entries, states = context.resolve(output.layers or self.default_layers)
        names = iter(self.names(output, len(entries)))
        return [
            make_spec(
                output, name=next(names), layers=(entry,), states=(state,), dtype=dtype, width=width
            )
            for entry, state in zip(entries, states, strict=True)
            for dtype in ("float32", "int32")
        ]


def check_top_k(top_k: int | None, config: BertConfig) -> Any:
    """Gives the setting back; raises ConfigError if it is more than the vocabulary has."""
    if (top_k or 0) > config.vocab_size:
        raise ConfigError(f"top_k is {top_k}; the vocabulary has {config.vocab_size} pieces")
    return top_k

"""Kind `score`: how likely each token or word of a text is, by the masked-LM head."""

from typing import Any

from bert_features.config.features import OutputSpec
from bert_features.config.kinds.base import Context, OutputKind, make_spec, numbered


class Score(OutputKind):
    """The log-probability of each token where it is masked; of a word its surprisal."""

    name = "score"
    summary = "the log-probability of each token or the surprisal of each word, by that head"
    settings = frozenset(["layers"])
    levels = ("token", "word")
    needs = "head"
    default_layers = (-1,)
    masks_rows = True
    can_pack = False
    may_lack = True  # a word that was cut off has no surprisal
    unserved = "the service has no scores, which mask each text many times"

    def names(self, output: Any, num_layers: int) -> list[str]:
        """A name for each layer."""
        usual = "surprisal" if output.level == "word" else self.name
        return numbered(output.name or usual, num_layers)

    def specs(self, output: Any, context: Context) -> list[OutputSpec]:
        """A feature of one value for each layer, float32."""
        pooling = "sum" if output.level == "word" else "none"
        entries, states = context.resolve(output.layers or self.default_layers)
        return [
            make_spec(output, name=name, layers=(entry,), states=(state,), width=1, pooling=pooling)
            for name, entry, state in zip(
                self.names(output, len(entries)), entries, states, strict=True
            )
        ]

"""Kind `score`: how likely each token or word of a text is, by the masked-LM head."""

from typing import Any

from bert_features.config.features import OutputSpec
from bert_features.config.kinds.base import Context, OutputKind
from bert_features.config.kinds.masked_lm import head_spec


class Score(OutputKind):
    """The log-probability of each token where it is masked; of a word its surprisal."""

    name = "score"
    summary = "the log-probability of each token or the surprisal of each word, by that head"
    settings = frozenset[str]()
    levels = ("token", "word")
    needs = "head"
    masks_rows = True
    can_pack = False
    may_lack = True  # a word that was cut off has no surprisal
    unserved = "the service has no scores, which mask each text many times"

    def names(self, output: Any, num_layers: int) -> list[str]:
        """One name."""
        return [output.name or ("surprisal" if output.level == "word" else self.name)]

    def specs(self, output: Any, context: Context) -> list[OutputSpec]:
        """One feature of one value, float32."""
        pooling = "sum" if output.level == "word" else "none"
        name = self.names(output, 1)[0]
        return [head_spec(output, context.config, name=name, width=1, pooling=pooling)]

"""Kind `sparse`: the weights of a text's terms, pieces of the vocabulary, as SPLADE has them."""

from typing import Any

from bert_features.config.features import OutputSpec
from bert_features.config.kinds.base import Context, OutputKind, make_spec
from bert_features.config.kinds.masked_lm import check_top_k
from bert_features.config.poolings import LOOKUP, DenseModule, SparsePooling
from bert_features.config.settings import shown
from bert_features.errors import ConfigError

# Trained models leave some 20 to 250 terms in a passage; one without training leaves thousands.
DEFAULT_TOP_K = 256


class Sparse(OutputKind):
    """The heaviest terms of each text: their ids and weights, by the masked-LM head.

    Each term has the maximum, or the sum, over the tokens of a text of log(1 + relu(logit)); with
    `max_log1p` and `sum_log1p` of the logarithm of 1 plus that. `lookup` is the query side of a
    model that computes documents alone: a stored weight for each distinct piece.
    """

    name = "sparse"
    summary = "the weights of the terms of each text, by the masked-LM head (SPLADE)"
    settings = frozenset(["pooling", "top_k", "min_weight"])
    levels = ("token",)
    poolings = ("max", "sum", "max_log1p", "sum_log1p", LOOKUP)
    needs = "head"
    can_pack = False
    follows_checkpoint = True
    is_single = True
    search = "terms"

    def check(self, output: Any) -> None:
        """Refuses poolings that sparse vectors do not have."""
        if output.pooling not in (None, *self.poolings):
            raise ConfigError(
                f"pooling is {shown(output.pooling)}; allowed for kind 'sparse': "
                f"{', '.join(self.poolings)}; by default as the checkpoint's 1_SpladePooling says, "
                "else max"
            )

    def names(self, output: Any, num_layers: int) -> list[str]:
        """One name."""
        return [output.name or self.name]

    def specs(self, output: Any, context: Context) -> list[OutputSpec]:
        """One feature with a weight for each term, float32."""
        check_top_k(output.top_k, context.config)
        stated = context.sparse or SparsePooling()
        pooling = output.pooling or stated.pooling
        modules: tuple[DenseModule, ...] = ()
        if pooling == LOOKUP:
            if stated.table is None:
                raise ConfigError(
                    "pooling is 'lookup', which needs the stored weights of queries (a "
                    "SparseStaticEmbedding of sentence-transformers); this checkpoint has none"
                )
            modules = (stated.table,)
        most = output.top_k or stated.top_k or DEFAULT_TOP_K
        return [
            make_spec(
                output,
                name=self.names(output, 1)[0],
                layers=(-1,),
                width=1,
                level="term",
                pooling=pooling,
                # A look-up needs no block.
                states=(0 if modules else context.config.num_hidden_layers,),
                modules=modules,
                max_units=min(most, context.config.vocab_size),
            )
        ]

    def needed_by(self, output: Any) -> str:
        """A look-up has no logits."""
        return "" if output.pooling == LOOKUP else self.needs

    def check_windows(self, output: OutputSpec) -> None:
        """Refuses sums: a token may be in two windows."""
        if output.pooling.startswith("sum"):
            raise ConfigError(
                f"pooling '{output.pooling}' of kind 'sparse' needs the whole text in one row, and "
                "long_text is 'window'; choose another long_text, or pooling 'max'"
            )

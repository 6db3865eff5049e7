"""Kind `sparse`: the weights of a text's terms, pieces of the vocabulary, as SPLADE has them."""

from typing import Any

from bert_features.config.features import OutputSpec
from bert_features.config.kinds.base import Context, OutputKind, make_spec
from bert_features.config.kinds.masked_lm import check_top_k
from bert_features.config.poolings import LOOKUP, OWN, TOKEN_WEIGHTS, SparsePooling
from bert_features.config.settings import shown
from bert_features.errors import ConfigError

# Trained models leave some 20 to 250 terms in a passage; one without training leaves thousands.
DEFAULT_TOP_K = 256
_LACKS = {
    LOOKUP: "the stored weights of queries (a SparseStaticEmbedding of sentence-transformers)",
    OWN: "sparse_linear.pt beside the weights, as bge-m3 has it",
}


class Sparse(OutputKind):
    """The heaviest terms of each text: their ids and weights, by the masked-LM head or its tokens.

    Each term has the maximum, or the sum, over the tokens of a text of log(1 + relu(logit)); with
    `max_log1p` and `sum_log1p` of the logarithm of 1 plus that. `lookup` is the query side of a
    model that computes documents alone: a stored weight for each distinct piece. With `own` each
    distinct token of the text but [CLS], [SEP] and [UNK] has the largest of its weights there.
    """

    name = "sparse"
    summary = "the weights of the terms of each text, as SPLADE or bge-m3 has them"
    settings = frozenset(["pooling", "top_k", "min_weight"])
    levels = ("token",)
    poolings = ("max", "sum", "max_log1p", "sum_log1p", *TOKEN_WEIGHTS)
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
                f"{', '.join(self.poolings)}; by default as the checkpoint's files say, else max"
            )

    def names(self, output: Any, num_layers: int) -> list[str]:
        """One name."""
        return [output.name or self.name]

    def specs(self, output: Any, context: Context) -> list[OutputSpec]:
        """One feature with a weight for each term, float32."""
        check_top_k(output.top_k, context.config)
        stated = context.sparse or SparsePooling()
        pooling = output.pooling or stated.pooling
        module = {LOOKUP: stated.table, OWN: stated.linear}.get(pooling)
        if module is None and pooling in _LACKS:
            raise ConfigError(
                f"pooling is '{pooling}', which needs {_LACKS[pooling]}; this checkpoint has none"
            )
        all_terms = context.config.vocab_size
        most = output.top_k or stated.top_k or (all_terms if pooling == OWN else DEFAULT_TOP_K)
        return [
            make_spec(
                output,
                name=self.names(output, 1)[0],
                layers=(-1,),
                width=1,
                level="term",
                pooling=pooling,
                # A look-up needs no block.
                states=(0 if pooling == LOOKUP else context.config.num_hidden_layers,),
                modules=() if module is None else (module,),
                max_units=min(most, all_terms),
            )
        ]

    def needed_by(self, output: Any) -> str:
        """Weights of tokens need no logits."""
        return "" if output.pooling in TOKEN_WEIGHTS else self.needs

    def packs(self, output: Any) -> bool:
        """Weights of tokens can share a row."""
        return output.pooling in TOKEN_WEIGHTS

    def check_windows(self, output: OutputSpec) -> None:
        """Refuses sums: a token may be in two windows."""
        if output.pooling.startswith("sum"):
            raise ConfigError(
                f"pooling '{output.pooling}' of kind 'sparse' needs the whole text in one row, and "
                "long_text is 'window'; choose another long_text, or pooling 'max'"
            )

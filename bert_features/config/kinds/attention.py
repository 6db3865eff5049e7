"""Kind `attention`: how much each token or word attends to each other, by head."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from bert_features.config.features import OutputSpec
from bert_features.config.kinds.base import Context, OutputKind, make_spec, numbered
from bert_features.config.kinds.layers import check_small
from bert_features.config.layers import split_layers
from bert_features.config.settings import MAX_INT, describe_allowed, shown
from bert_features.errors import ConfigError

HeadEntry = Annotated[int, Field(strict=True, ge=0, le=MAX_INT)] | Literal["all", "mean", "max"]
HeadsSetting = Annotated[tuple[HeadEntry, ...], BeforeValidator(split_layers)]


class Attention(OutputKind):
    """The weights of a layer's heads: a matrix for each text, or the row of [CLS] alone."""

    name = "attention"
    summary = "from each token or word to each other"
    settings = frozenset(["layers", "heads", "pooling", "dtype"])
    levels = ("token", "word")
    poolings = ("none", "cls")  # all rows of the matrix, or the row of [CLS]
    needs = "attention"
    can_pack = False
    can_window = False  # the whole text is in one row

    def check(self, output: Any) -> None:
        """Refuses poolings and heads that attention does not have."""
        if output.pooling not in (None, *self.poolings):
            raise ConfigError(
                f"pooling is {shown(output.pooling)}; allowed for kind 'attention': none, or cls, "
                "the row of [CLS]"
            )
        heads = output.heads or ()
        if len(set(heads)) != len(heads) or (len(heads) > 1 and {*map(type, heads)} != {int}):
            allowed = describe_allowed(type(output).model_fields["heads"])
            raise ConfigError(f"heads is {list(heads)}; allowed: {allowed}, each once")

    def names(self, output: Any, num_layers: int) -> list[str]:
        """A name for each layer."""
        return numbered(output.name or "attention", num_layers)

    def specs(self, output: Any, context: Context) -> list[OutputSpec]:
        """A feature of each layer."""
        check_small(self, output)
        entries, states = context.resolve(output.layers or self.default_layers)
        if 0 in states:
            raise ConfigError("layers has 'embeddings', which have no attention; leave it out")
        heads = _heads(output, context.config.num_attention_heads)
        pooling = output.pooling or "none"
        return [
            make_spec(
                output,
                name=name,
                layers=(entry,),
                states=(state,),
                width=len(heads),
                level=output.level if pooling == "cls" else f"{output.level}_pair",
                pooling=pooling,
                heads=heads,
            )
            for name, entry, state in zip(
                self.names(output, len(entries)), entries, states, strict=True
            )
        ]


def _heads(output: Any, count: int) -> tuple[int | str, ...]:
    """The heads of an output, resolved for an architecture with `count` heads."""
    heads: tuple[int | str, ...] = output.heads or ("all",)
    if heads == ("all",):
        heads = tuple(range(count))
    if bad := [head for head in heads if isinstance(head, int) and head >= count]:
        raise ConfigError(
            f"heads has {bad[0]}; allowed: 0 to {count - 1}, as this checkpoint has {count} heads"
        )
    return heads

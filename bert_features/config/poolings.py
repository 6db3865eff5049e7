"""Poolings of each level, and what a checkpoint does to a pooled vector."""

from typing import Literal

from pydantic.dataclasses import dataclass

from bert_features.config.bert_config import HiddenAct
from bert_features.config.settings import shown
from bert_features.errors import ConfigError

Level = Literal["token", "word", "span", "sequence"]
# Poolings of each level; the first is the default.
POOLINGS: dict[Level, tuple[str, ...]] = {
    "token": ("none",),
    "word": ("mean", "first", "last", "first_last", "sum", "max"),
    "span": ("mean", "max", "first", "last", "first_last"),
    "sequence": ("mean", "cls", "pooler", "max", "mean_max", "first", "last", "sqrt_len_mean"),
}
# The pooling of a sequence that the checkpoint asks for; see `AutoPooling`.
AUTO_POOLING = "auto"
# bert-as-service's names (its server/graph.py, PoolingStrategy): there SEP_TOKEN and LAST_TOKEN
# are one value, and so are CLS_TOKEN and FIRST_TOKEN.
POOLING_ALIASES: dict[str, str] = {
    "NONE": "none",
    "REDUCE_MEAN": "mean",
    "REDUCE_MAX": "max",
    "REDUCE_MEAN_MAX": "mean_max",
    "CLS_TOKEN": "cls",
    "FIRST_TOKEN": "first",
    "SEP_TOKEN": "last",
    "LAST_TOKEN": "last",
}
# Poolings that take the vector of [CLS].
OF_CLS = {"cls", "pooler"}


def pooling_parts(pooling: str) -> tuple[str, ...]:
    """The poolings whose vectors stand side by side: ('cls', 'mean') for 'cls+mean'."""
    return tuple(pooling.split("+"))


def is_pooling(pooling: str | None, level: Level) -> bool:
    """Whether a level has a pooling, or for sequences several joined by `+`."""
    if pooling is None or pooling in POOLINGS[level]:
        return True
    if level != "sequence":
        return False
    # The pooler has weights of its own and takes [CLS] alone.
    return pooling == AUTO_POOLING or set(pooling_parts(pooling)) <= {*POOLINGS[level]} - {"pooler"}


def wrong_pooling(pooling: str, level: Level) -> ConfigError:
    """The error for a pooling that its level does not have; it names the levels that do."""
    allowed = ", ".join(POOLINGS[level])
    if level == "sequence":
        allowed += ", auto; or several of the others joined by +, such as cls+mean, without pooler"
    others = [other for other in POOLINGS if is_pooling(pooling, other)]
    cure = " or ".join(f"level='{other}'" for other in reversed(others))
    return ConfigError(
        f"pooling is {shown(pooling)}; allowed for level '{level}': {allowed}"
        + (f"; pass {cure} for this pooling" if cure else "")
    )


@dataclass(frozen=True)
class DenseModule:
    """A dense layer after the pooling, or over each token.

    `path` is its folder, relative to the checkpoint; empty if the file of the encoder has it. With
    `has_residual` its input, by a product if that is of another width, is added to what it gives.
    """

    path: str
    inputs: int
    outputs: int
    activation: HiddenAct
    has_bias: bool
    has_residual: bool = False

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Canonical name -> shape of its weights, the kernel first."""
        scope = f"sentence/{self.path}"
        shape = (self.inputs, self.outputs)
        has_product = self.has_residual and self.inputs != self.outputs
        return {
            f"{scope}/kernel": shape,
            **({f"{scope}/bias": (self.outputs,)} if self.has_bias else {}),
            **({f"{scope}/residual": shape} if has_product else {}),
        }


# What is done to a pooled vector: a dense layer, scaling to length 1, or a cut to the first N.
Module = DenseModule | Literal["normalize"] | int


# Poolings of terms that are tokens of the text: a stored weight of each, or one that is computed.
LOOKUP, OWN = TOKEN_WEIGHTS = ("lookup", "own")


@dataclass(frozen=True)
class SparsePooling:
    """How a checkpoint makes sparse vectors.

    Attributes:
      pooling: a pooling of kind `sparse`.
      top_k: number of terms that it keeps, where the output does not say; None for all.
      table: the weights of queries that are a look-up, [V, 1]; None without them.
      linear: what gives each token its weight; None without it.
    """

    pooling: str = "max"
    top_k: int | None = None
    table: DenseModule | None = None
    linear: DenseModule | None = None


@dataclass(frozen=True)  # pydantic's: it also takes what `asdict` gives
class AutoPooling:
    """What pooling `auto` means for a checkpoint, and what it does to tokens.

    Attributes:
      pooling: its pooling, or several joined by `+`.
      normalize: whether it scales each vector to length 1, where the output does not say.
      modules: what it does to the pooled vector before that.
      dim: number of values that it keeps, after scaling, where the output does not say; None for
        all.
      sparse: how it makes sparse vectors; None if it does not say.
      of_tokens: what it does to the vector of each token for late interaction.
    """

    pooling: str = "mean"
    normalize: bool = False
    modules: tuple[Module, ...] = ()
    dim: int | None = None
    sparse: SparsePooling | None = None
    of_tokens: tuple[Module, ...] = ()


# Poolings that put two vectors side by side.
DOUBLE_WIDTH = {"first_last": ("first", "last"), "mean_max": ("mean", "max")}

"""Features as files list them, and as the device step computes them."""

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from bert_features.config.levels import LEVELS
from bert_features.config.poolings import TOKEN_WEIGHTS, Module

OutputDtype = Literal["float32", "float16", "bfloat16", "int8", "binary"]
# Vectors that are made from float32 on the host: a byte, or a bit, for each dimension.
SMALL_DTYPES: tuple[str, ...] = ("int8", "binary")
# In bytes. The ids of pieces are int32.
ITEM_SIZES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "binary": 1, "int32": 4}

# The least value of each dimension, then the largest of each; empty until they are known.
Scale = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Feature:
    """One named feature: its layers and what is done with them, as a file's metadata lists it.

    Attributes:
      name: name in predictions and files: `layer_output_0`, … as in the official script, or the
        user's own.
      layers: LAYERS entries as the user wrote them: block numbers, or the word `embeddings`.
      combine: `none` for a single layer, else how `layers` become one vector.
      width: D, number of values of a vector.
      dtype: `float16`, `float32`, `bfloat16`, `int8`, or `binary`: D bits, packed into bytes.
      level: what each vector represents: a `token`, a `word` or the whole `sequence`; of attention
        a `token_pair` or a `word_pair`, if not [CLS] and a token or a word.
      pooling: one of `POOLINGS[level]`: how token vectors become vectors of words or sequences; for
        a sequence also several joined by `+`, whose vectors stand side by side. Of attention `none`
        or `cls`.
      weights: one for each layer where `combine` is `weighted`, else empty.
      special_tokens: whether [CLS] and [SEP] count when a sequence is pooled.
      normalize: whether each vector is scaled to length 1, as the last operation.
      scale: of int8 vectors the least and the largest value of each dimension; empty until it is
        known, and for other dtypes.
      kind: one of `kinds.Kind`. Of the two features of a `masked_lm` the one of int32 has ids.
      heads: of attention: the D heads, or `mean` or `max` of all.
      labelled: whether the words have labels, in a column of their own.
    """

    name: str
    layers: tuple[int | str, ...]
    combine: str
    width: int
    dtype: str
    level: str = "token"
    pooling: str = "none"
    weights: tuple[float, ...] = ()
    special_tokens: bool = True
    normalize: bool = False
    kind: str = "layers"
    scale: Scale = field(default=(), repr=False)
    heads: tuple[int | str, ...] = ()
    labelled: bool = False

    @property
    def unit(self) -> str:
        """What the feature has a vector for, or pairs: `token`, `word` or `sequence`."""
        return LEVELS[self.level].unit

    @property
    def is_sequence(self) -> bool:
        """Whether a record has a single vector, [D]."""
        return LEVELS[self.level].axes == 0

    @property
    def is_paired(self) -> bool:
        """Whether a text has a matrix for each of D values: one value for each pair of units."""
        return LEVELS[self.level].axes == 2

    @property
    def stored_width(self) -> int:
        """Number of values of a vector in arrays and files: D, or the bytes that hold D bits."""
        return -(-self.width // 8) if self.dtype == "binary" else self.width

    def describe(self) -> str:
        """Its name, dtype and shape, as `features float32 [tokens, 384]`."""
        shape = LEVELS[self.level].shape(self.width, f"{self.unit}s")
        return f"{self.name} {self.dtype} [{', '.join(map(str, shape))}]"

    def to_metadata(self) -> dict[str, Any]:
        """The fields of `Feature` by name; `kind` and those behind it only if they are set.

        Fields that a subclass adds are left out too.
        """
        values = {entry.name: getattr(self, entry.name) for entry in fields(Feature)}
        usual = {"kind": "layers", "scale": (), "heads": (), "labelled": False}
        return {n: v for n, v in values.items() if n not in usual or v != usual[n]}


@dataclass(frozen=True)
class OutputSpec(Feature):
    """A feature whose layers are resolved against a checkpoint: one output of the device step.

    Attributes:
      states: `layers` resolved: 0 is the embeddings, i the output of the i-th block.
      scale_from: what `scale` comes from: a number of texts, or a path; None for the default.
      modules: what is done to each pooled vector before it is cut to D, scaled and cast; of terms
        that are tokens what gives them their weights.
      max_units: the most units of a text, where these are not its tokens or words; else 0.
      min_weight: the least weight of a term.
      is_part: whether its vectors are of windows, which are put together before they are finished.
    """

    states: tuple[int, ...] = field(kw_only=True)
    scale_from: str | None = field(default=None, kw_only=True)
    modules: tuple[Module, ...] = field(default=(), kw_only=True)
    max_units: int = field(default=0, kw_only=True)
    min_weight: float = field(default=0.0, kw_only=True)
    is_part: bool = field(default=False, kw_only=True)

    @property
    def weighs_tokens(self) -> bool:
        """Whether its units are tokens of the text, which the device gives a value each."""
        return self.pooling in TOKEN_WEIGHTS

    @property
    def has_rows(self) -> bool:
        """Whether the device computes a vector for each row."""
        return self.is_sequence or (self.max_units > 0 and not self.weighs_tokens)

    @property
    def device_width(self) -> int:
        """Values of a vector on the device: D, or of the units of a row ids, values and a count."""
        joined = self.max_units and not self.weighs_tokens
        return 2 * self.max_units + 1 if joined else self.width

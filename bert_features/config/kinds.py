"""Kinds of outputs: the settings and the levels that each has.

Nothing here is computed; `outputs` has the settings, and `output_specs` resolves them.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field

from bert_features.config.settings import MAX_INT, describe_allowed, shown
from bert_features.errors import ConfigError

# What an output is made of: the layers; the attention in them; or, by the masked-LM head, the
# likeliest pieces of each token, or how likely each token or word of the text is.
Kind = Literal["layers", "attention", "masked_lm", "score"]
HEAD_KINDS = ("masked_lm", "score")
DEFAULT_TOP_K = 5
# The settings of outputs of other kinds, and the levels that they have.
_OWN_SETTINGS: dict[str, set[str]] = {
    "attention": {"level", "layers", "heads", "pooling", "dtype"},
    "masked_lm": {"level", "top_k"},
    "score": {"level"},
}
_OWN_LEVELS: dict[str, tuple[str, ...]] = {
    "attention": ("token", "word"),
    "masked_lm": ("token",),
    "score": ("token", "word"),
}
# The settings of one kind alone.
_OF_KIND = {"top_k": "masked_lm", "heads": "attention"}

HeadEntry = Annotated[int, Field(strict=True, ge=0, le=MAX_INT)] | Literal["all", "mean", "max"]
# Of attention: all rows of the matrix, or that of [CLS].
ATTENTION_POOLINGS = ("none", "cls")


def check_kind(output: Any) -> None:
    """Refuses settings that the kind of an output does not have; raises ConfigError."""
    fields = type(output).model_fields
    for name, kind in _OF_KIND.items():
        if output.kind == "layers" and getattr(output, name) is not None:
            raise ConfigError.naming(f"{{{name}}} is for {{kind:'{kind}'}}; pass that too")
    if output.kind == "layers":
        return
    others = fields.keys() - {"kind", "name", *_OWN_SETTINGS[output.kind]}
    for name, field in fields.items():
        if name in others and getattr(output, name) != field.default:
            raise ConfigError.naming(
                f"{{{name}}} has no meaning for {{kind}} '{{received}}'; leave {{{name}}} out",
                received=output.kind,
            )
    if output.level not in _OWN_LEVELS[output.kind]:
        raise ConfigError.naming(
            "{level} is '{received}'; allowed for kind '{kind_}': {allowed}",
            received=output.level,
            kind_=output.kind,
            allowed=", ".join(_OWN_LEVELS[output.kind]),
        )
    if output.kind == "attention":
        _check_attention(output)


def _check_attention(output: Any) -> None:
    """Refuses poolings and heads that attention does not have."""
    if output.pooling not in (None, *ATTENTION_POOLINGS):
        raise ConfigError.naming(
            "{pooling} is {received}; allowed for kind 'attention': none, or cls, the row of [CLS]",
            received=shown(output.pooling),
        )
    heads = output.heads or ()
    if len(set(heads)) != len(heads) or (len(heads) > 1 and {*map(type, heads)} != {int}):
        raise ConfigError.naming(
            "{heads} is {received}; allowed: {allowed}, each once",
            received=list(heads),
            allowed=describe_allowed(type(output).model_fields["heads"]),
        )


def check_kinds(outputs: Iterable[Any], place: str) -> None:
    """Refuses outputs of other kinds where only layers are possible; as `check_floats`."""
    for output in outputs:
        if output.kind != "layers":
            raise ConfigError.naming(
                "{kind} is '{received}', which {place} cannot have; allowed there: 'layers'",
                received=output.kind,
                place=place,
            )

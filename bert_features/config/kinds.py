"""Kinds of outputs: the settings and the levels that each has.

Nothing here is computed; `outputs` has the settings, and `output_specs` resolves them.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from bert_features.config.settings import MAX_INT, describe_allowed, shown
from bert_features.errors import ConfigError

# What an output is made of: the layers; the attention in them; or, by the masked-LM head, the
# likeliest pieces of each token, or how likely each token or word of the text is.
Kind = Literal["layers", "attention", "masked_lm", "score"]
HEAD_KINDS = ("masked_lm", "score")
DEFAULT_TOP_K = 5
# The settings that change nothing where another setting has a value: the table of what is refused.
_OF_VECTORS = ("combine", "weights", "special_tokens", "normalize", "dim", "calibration")
_OF_LAYERS = (*_OF_VECTORS, "layers", "heads", "pooling", "dtype")
_UNUSED: dict[str, dict[str, tuple[str, ...]]] = {
    "kind": {
        "attention": (*_OF_VECTORS, "top_k"),
        "masked_lm": _OF_LAYERS,
        "score": (*_OF_LAYERS, "top_k"),
    },
    "pooling": {"pooler": ("layers", "combine", "weights")},  # it takes the last layer
    "level": {"token": ("word_split",), "sequence": ("word_split",)},
}
# The levels of outputs of other kinds.
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


def unused(output: Mapping[str, Any]) -> dict[str, str]:
    """The settings that change nothing for an output, each with the setting that is the reason."""
    values = {"kind": "layers", "level": "token", **output}
    return {
        name: reason
        for reason, rows in _UNUSED.items()
        for name in rows.get(values.get(reason) or "", ())
    }


def check_kind(output: Any) -> None:
    """Refuses settings that the kind of an output does not have; raises ConfigError."""
    fields = type(output).model_fields
    for name, kind in _OF_KIND.items():
        if output.kind == "layers" and getattr(output, name) is not None:
            raise ConfigError.naming(f"{{{name}}} is for {{kind:'{kind}'}}; pass that too")
    for name, reason in unused(dict(output)).items():
        # With the pooler, `output_specs` compares layers with the last one.
        may_be_last = (name, reason) == ("layers", "pooling")
        if name in fields and not may_be_last and getattr(output, name) != fields[name].default:
            raise ConfigError.naming(
                f"{{{name}}} has no meaning for {{{reason}}} '{{received}}'; leave {{{name}}} out",
                received=getattr(output, reason),
            )
    if output.kind == "layers":
        return
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

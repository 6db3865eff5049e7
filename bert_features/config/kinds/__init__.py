"""Kinds of outputs: a class for each, and what holds for all.

An output is made of the layers; of the attention in them; of the tokens for late interaction; or,
by the masked-LM head, of the likeliest pieces of each token, of how likely each token or word of
the text is, or of the weights of the terms of a text.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from bert_features.config.kinds.attention import Attention
from bert_features.config.kinds.base import OutputKind
from bert_features.config.kinds.layers import Layers
from bert_features.config.kinds.masked_lm import MaskedLM
from bert_features.config.kinds.multi_vector import MultiVector
from bert_features.config.kinds.score import Score
from bert_features.config.kinds.sparse import Sparse
from bert_features.errors import ConfigError

KINDS: dict[str, OutputKind] = {
    kind.name: kind
    for kind in (Layers(), Attention(), MaskedLM(), Score(), Sparse(), MultiVector())
}


# The type of the setting `kind`: a Literal of the names.
if TYPE_CHECKING:
    Kind = str
else:
    Kind = Literal[tuple(KINDS)]

# What finds the spans of texts, for outputs of level `span`.
SPAN_SETTINGS = ("spans", "span_field")
# What finds words, and their labels.
WORD_SETTINGS = ("word_split", "label_field")
UNIT_SETTINGS = (*WORD_SETTINGS, *SPAN_SETTINGS)
# Settings that change nothing where another setting has a value.
_UNUSED: dict[str, dict[str, tuple[str, ...]]] = {
    "level": {
        "token": ("special_tokens", *UNIT_SETTINGS),
        "word": ("special_tokens", *SPAN_SETTINGS),
        "span": ("special_tokens", *WORD_SETTINGS),
        "sequence": UNIT_SETTINGS,
    },
    "pooling": {"pooler": ("layers", "combine", "weights")},  # it takes the last layer
}


def level_for(names: Iterable[str]) -> str | None:
    """The level that these settings imply: the first at which each has a meaning, if tokens do not.

    None if tokens are such a level, or there is none.
    """
    settings = {*names}
    fitting = (level for level, idle in _UNUSED["level"].items() if not settings & {*idle})
    first = next(fitting, None)
    return None if first == "token" else first


def unused(output: Mapping[str, Any]) -> dict[str, str]:
    """The settings that change nothing for an output, each with the setting that is the reason.

    `output` has settings of an output alone, as they are or as far as they are set.
    """
    values = {"kind": "layers", "level": "token", **output}
    kind = KINDS.get(values["kind"])
    used = kind.settings if kind else frozenset[str]()
    listed = {name for each in KINDS.values() for name in each.settings}
    if kind is not KINDS[Layers.name]:
        listed |= values.keys() - {"name", "kind", "level"}
    return {
        name: reason
        for reason, rows in _UNUSED.items()
        for name in rows.get(values.get(reason) or "", ())
    } | dict.fromkeys(listed - used, "kind")


def check_kind(output: Any) -> None:
    """Refuses settings that the kind of an output does not have; raises ConfigError."""
    fields = type(output).model_fields
    kind = KINDS[output.kind]
    for name, reason in unused(dict(output)).items():
        # With the pooler, the layers are compared with the last one.
        may_be_last = (name, reason) == ("layers", "pooling")
        if name not in fields or may_be_last or getattr(output, name) == fields[name].default:
            continue
        owners = [n for n, each in KINDS.items() if name in each.settings] or [Layers.name]
        if reason == "kind" and kind.name == fields["kind"].default:
            cure = " or ".join(f"kind='{owner}'" for owner in owners)
            raise ConfigError(f"{name} is for {cure}; pass that too")
        raise ConfigError(
            f"{name} has no meaning for {reason} '{getattr(output, reason)}'; leave {name} out"
        )
    if output.level not in kind.levels:
        raise ConfigError(
            f"level is '{output.level}'; allowed for kind '{output.kind}': {', '.join(kind.levels)}"
        )
    kind.check(output)


def check_kinds(outputs: Iterable[Any], place: str) -> None:
    """Refuses outputs of other kinds where only vectors are possible; as `check_floats`."""
    for output in outputs:
        if not _is_of_device(KINDS[output.kind]):
            allowed = " or ".join(repr(kind.name) for kind in KINDS.values() if _is_of_device(kind))
            raise ConfigError(
                f"kind is '{output.kind}', which {place} cannot have; allowed there: {allowed}"
            )


def _is_of_device(kind: OutputKind) -> bool:
    return kind.has_vectors and not kind.on_host


def needs(outputs: Iterable[Any], what: str) -> bool:
    """Whether an output is computed from `what`, see `OutputKind.needs`."""
    return any(KINDS[output.kind].needed_by(output) == what for output in outputs)


def masks_rows(outputs: Iterable[Any]) -> bool:
    """Whether each piece of a text is masked in a row of its own."""
    return any(KINDS[output.kind].masks_rows for output in outputs)

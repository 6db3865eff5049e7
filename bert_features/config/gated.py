"""The config files of NomicBERT and GTE: rotary positions of one base, gated feed-forward parts."""

from collections.abc import Mapping
from typing import Any

from bert_features.config.settings import shown
from bert_features.errors import CheckpointError

# What NomicBERT's own code makes of a gate's name.
_OF_GATES = {"swiglu": "silu", "geglu": "gelu"}


def gated_values(values: Mapping[str, Any], own: Mapping[str, Any], source: str) -> dict[str, Any]:
    """What a config file, also given under `BertConfig`'s own keys, states in another form.

    Raises CheckpointError if a setting is not supported, or not what the families' code writes.
    """
    try:
        found = _rotary_values(values, own, source)
    except (AttributeError, TypeError, ZeroDivisionError, OverflowError) as error:
        raise CheckpointError(
            f"{source}: rope_parameters, rope_scaling, rope_theta or hidden_size is not what "
            "transformers writes"
        ) from error
    if "activation_function" in values and "hidden_act" not in values:
        word = values["activation_function"]
        _check(source, "activation_function", word, tuple(_OF_GATES))
        found["hidden_act"] = _OF_GATES[word]
    if values.get("rotary_scaling_factor"):  # changes the base of longer rows
        found["max_position_embeddings"] = values.get("max_trained_positions", 2048)
    return found


def rope_parameters(theta: float, divisor: float) -> dict[str, Any]:
    """What transformers writes of the base of the angles and their divisor."""
    kind = {"rope_type": "default"} if divisor == 1 else {"rope_type": "linear", "factor": divisor}
    return {"rope_theta": theta, **kind}


def _rotary_values(
    values: Mapping[str, Any], own: Mapping[str, Any], source: str
) -> dict[str, Any]:
    """The base of the angles and their divisor, where a file has a table or a key of its own."""
    size = own.get("hidden_size", 768) / own.get("num_attention_heads", 12)
    table = values.get("rope_parameters") or values.get("rope_scaling") or {}
    theta = table.get("rope_theta", values.get("rope_theta", own["global_rope_theta"]))
    kind, factor = table.get("rope_type", table.get("type", "default")), table.get("factor", 1.0)
    _check(source, "head_dim", values.get("head_dim"), (None, size))
    _check(source, "partial_rotary_factor", table.get("partial_rotary_factor"), (None, 1))
    _check(source, "rope_type", kind, ("default", "linear", "ntk"))
    _check(source, "mixed_b", table.get("mixed_b"), (None,))
    if kind == "ntk":
        # The angle of pair k at position p is p (factor theta)^(-2 k / D) / factor^(2 / D).
        return {"global_rope_theta": theta * factor, "rope_divisor": factor ** (2 / size)}
    return {"global_rope_theta": theta} | ({"rope_divisor": factor} if kind == "linear" else {})


def _check(source: str, key: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        named = ", ".join(map(str, allowed))
        raise CheckpointError(f"{source}: {key} is {shown(value)}; allowed: {named}")

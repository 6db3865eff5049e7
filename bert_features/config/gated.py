"""The config files of NomicBERT and GTE: rotary positions of one base, gated feed-forward parts."""

from collections.abc import Mapping
from typing import Any

from bert_features.config.settings import shown
from bert_features.errors import CheckpointError

# What NomicBERT's own code makes of a gate's name.
_OF_GATES = {"swiglu": "silu", "geglu": "gelu"}


def gated_values(values: Mapping[str, Any], own: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The settings that a config file states in another form than `BertConfig`.

    Args:
      values: the contents of the file.
      own: the same under the keys of `BertConfig`.
      source: where they come from, for error messages.

    Raises:
      CheckpointError: a setting is not supported, or not what the families' code writes.
    """
    try:
        found = _rotary_values(values, own, source)
    except (AttributeError, TypeError, ZeroDivisionError, OverflowError) as error:
        raise CheckpointError(
            f"{source}: rope_parameters, rope_scaling or rope_theta is not what transformers writes"
        ) from error
    if "activation_function" in values and "hidden_act" not in values:
        word = values["activation_function"]
        if not isinstance(word, str) or word not in _OF_GATES:
            raise CheckpointError(
                f"{source}: activation_function is {shown(word)}; allowed: {', '.join(_OF_GATES)}"
            )
        found["hidden_act"] = _OF_GATES[word]
    if values.get("rotary_scaling_factor"):  # changes the base of longer rows
        found["max_position_embeddings"] = values.get("max_trained_positions", 2048)
    return found


def rope_parameters(theta: float, divisor: float) -> dict[str, Any]:
    """What transformers writes of the base of the angles and their divisor."""
    if divisor == 1:
        return {"rope_type": "default", "rope_theta": theta}
    return {"rope_type": "linear", "rope_theta": theta, "factor": divisor}


def _rotary_values(
    values: Mapping[str, Any], own: Mapping[str, Any], source: str
) -> dict[str, Any]:
    """The base of the angles and their divisor, where a file has a table or a key of its own."""
    size = own.get("hidden_size", 768) / own.get("num_attention_heads", 12)
    table = values.get("rope_parameters") or values.get("rope_scaling") or {}
    theta = table.get("rope_theta", values.get("rope_theta", own["global_rope_theta"]))
    kind, factor = table.get("rope_type", table.get("type", "default")), table.get("factor", 1.0)
    for key, value, allowed in (
        ("head_dim", values.get("head_dim", size), (None, size)),
        ("partial_rotary_factor", table.get("partial_rotary_factor"), (None, 1)),
        ("rope_type", kind, ("default", "linear", "ntk")),
        ("mixed_b", table.get("mixed_b"), (None,)),
    ):
        if value not in allowed:
            raise CheckpointError(
                f"{source}: {key} is {shown(value)}; allowed: {', '.join(map(str, allowed))}"
            )
    if kind == "ntk":
        # The angle of pair k at position p is p (factor theta)^(-2 k / D) / factor^(2 / D).
        return {"global_rope_theta": theta * factor, "rope_divisor": factor ** (2 / size)}
    if kind == "linear":
        return {"global_rope_theta": theta, "rope_divisor": factor}
    return {"global_rope_theta": theta}

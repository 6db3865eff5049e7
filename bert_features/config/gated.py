"""The config files of NomicBERT, GTE and ModernBERT: rotary positions, gated feed-forward parts."""

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
        if "local_rope_theta" in own:
            return _of_two_bases(values, source)
        stated = _of_one_base(values, own, source)
    except (AttributeError, TypeError, ZeroDivisionError, OverflowError) as error:
        raise CheckpointError(
            f"{source}: rope_parameters, rope_scaling, rope_theta or hidden_size is not what "
            "transformers writes"
        ) from error
    if own["model_type"] != "nomic_bert":
        return stated
    if "activation_function" in values and "hidden_act" not in values:
        word = values["activation_function"]
        _check(source, "activation_function", word, tuple(_OF_GATES))
        stated["hidden_act"] = _OF_GATES[word]
    if values.get("rotary_scaling_factor"):  # changes the base of longer rows
        stated["max_position_embeddings"] = values.get("max_trained_positions", 2048)
    return stated


def _of_two_bases(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The bases of ModernBERT's angles, where files have a table, as transformers 5 writes it.

    Older files have keys, which `rope_scaling` changes.
    """
    stated: dict[str, Any] = {}
    tables, scaling = values.get("rope_parameters") or {}, values.get("rope_scaling") or {}
    if tables.keys() - {"full_attention", "sliding_attention"}:  # as other families have it
        raise TypeError(tables)
    for kind, key in (("full", "global_rope_theta"), ("sliding", "local_rope_theta")):
        rotary = {**(tables.get(f"{kind}_attention") or {}), **scaling}
        for name in ("rope_type", "type"):  # the second is older
            named = "rope_scaling" if name in scaling else f"rope_parameters.{kind}_attention"
            _check(source, f"{named}.{name}", rotary.get(name, "default"), ("default",))
        if "rope_theta" in rotary:
            stated[key] = rotary["rope_theta"]
    if key in values and values[key] is None:  # local layers then have the angles of the others
        stated.setdefault(key, values.get("global_rope_theta"))
    if values.get("sliding_window") is not None:  # what a token sees to either side
        stated["local_attention"] = 2 * values["sliding_window"]
    if values.get("layer_types") is not None:  # which decides alone
        stated["global_attn_every_n_layers"] = values.get("global_attn_every_n_layers") or 3
    return stated


def _of_one_base(values: Mapping[str, Any], own: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The base of the angles and their divisor, where a file has a table or a key of its own."""
    size = own.get("hidden_size", 768) / own.get("num_attention_heads", 12)
    named = "rope_scaling" if values.get("rope_scaling") else "rope_parameters"
    table = values.get(named) or {}
    theta = table.get("rope_theta", values.get("rope_theta", own["global_rope_theta"]))
    kind, factor = table.get("rope_type", table.get("type", "default")), table.get("factor", 1.0)
    width = f"hidden_size / num_attention_heads is {size:g}, and head_dim"
    _check(source, width, values.get("head_dim"), (None, size))
    for key, allowed in (("partial_rotary_factor", (None, 1)), ("mixed_b", (None,))):
        _check(source, f"{named}.{key}", table.get(key), allowed)
    _check(source, f"{named}.rope_type", kind, ("default", "linear", "ntk"))
    if kind == "ntk":
        # The angle of pair k at position p is p (factor theta)^(-2 k / D) / factor^(2 / D).
        return {"global_rope_theta": theta * factor, "rope_divisor": factor ** (2 / size)}
    return {"global_rope_theta": theta} | ({"rope_divisor": factor} if kind == "linear" else {})


def _check(source: str, key: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        named = ", ".join(map(str, allowed))
        raise CheckpointError(f"{source}: {key} is {shown(value)}; allowed: {named}")

"""The form of attention for a block, on the device that a graph is traced for."""

from collections.abc import Callable
from typing import Any

from bert_features.encoder.attention.banded import Banded, BandedLanes
from bert_features.encoder.attention.by_head import ByHead, ByLength, HeadsFirst
from bert_features.encoder.attention.lanes import Lanes
from bert_features.encoder.attention.plain import Plain, Weighing
from bert_features.encoder.forms import chosen_forms
from bert_features.encoder.types import Tensor


def choose_form(
    heads: int,
    head_size: int,
    reach: int | None,
    length: int | None,
    *,
    drop: Callable[[Tensor], Tensor] | None = None,
    shown: bool = False,
) -> Plain:
    """The fastest form for rows of a length, None where TensorFlow does not know it yet.

    With dropout, or where the weights are `shown`, it is the one that keeps them.
    """
    block: dict[str, Any] = {"heads": heads, "head_size": head_size, "reach": reach, "drop": drop}
    device, limit = chosen_forms(), chosen_forms().row_limit
    kind: type[Plain] = Lanes if device.on_tpu else Plain
    if shown or drop is not None:
        kind = Weighing
    elif device.fused and reach is None:
        from bert_features.encoder.attention.fused import Fused  # which needs JAX

        return Fused(**block)
    elif limit is not None:
        by_head = ByHead(**block)
        long = Banded(of_block=by_head, **block) if reach else by_head
        return ByLength(limit=limit, short=HeadsFirst(**block), long=long, **block)
    # A token that sees itself alone, by a reach of 0, has no block.
    if not reach or length is None or length <= 4 * reach or shown:
        return kind(**block)
    return BandedLanes(**block) if kind is Lanes else Banded(of_block=kind(**block), **block)

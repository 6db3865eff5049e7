"""Which forms of operations a graph takes while it is traced, by the device that will run it.

Only a runtime knows where its graph will run. A layer in a user's own model, or an export, takes
the forms that work anywhere.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import keras

from bert_features.errors import ConfigError


@dataclass(frozen=True)
class Forms:
    """The forms for one kind of device; by default the forms that work anywhere.

    Attributes:
      on_cpu: for a CPU, on TensorFlow.
      row_limit: rows of more tokens go head by head through attention on a CPU, see
        `attention.by_head`; None for no rows.
      narrow: the CPU computes without AVX-512, see `machine.onednn.is_narrow`.
      few_tokens: a batch on a CPU has no more than some dozens of tokens, so that starting oneDNN's
        kernels takes longer than computing.
      fixed_weights: oneDNN arranges the weights of dense layers once, for its fastest products; for
        a CPU, in a graph whose weights never change. See `machine.onednn.fixes_weights`.
      on_tpu: for a TPU: attention keeps the tokens of a row in the last dimension.
      fused: attention on a GPU is cuDNN's kernel, see `attention.fused`.
    """

    on_cpu: bool = False
    row_limit: int | None = None
    narrow: bool = False
    few_tokens: bool = False
    fixed_weights: bool = False
    on_tpu: bool = False
    fused: bool = False


ANYWHERE = Forms()
_chosen: ContextVar[Forms] = ContextVar("forms", default=ANYWHERE)


def chosen_forms() -> Forms:
    """The forms of the graph being traced; they distinguish the traces of one function."""
    return _chosen.get()


@contextlib.contextmanager
def traced_for(device_kind: str, **choices: Any) -> Iterator[None]:
    """Chooses the forms of operations while a step is traced for a `tpu`, `gpu` or `cpu`.

    The choices are attributes of `Forms`. `row_limit`, `narrow`, `few_tokens` and `fixed_weights`
    are for a CPU. `fused` is for a GPU, only on JAX.
    """
    forms = Forms(**choices) if device_kind == "gpu" else ANYWHERE
    if device_kind == "tpu":
        forms = Forms(on_tpu=True, **choices)
    elif device_kind == "cpu" and keras.backend.backend() == "tensorflow":
        forms = Forms(on_cpu=True, **choices)
    token = _chosen.set(forms)
    try:
        yield
    finally:
        _chosen.reset(token)


def check_backend(needed: str, what: str) -> None:
    """Raises ConfigError if Keras does not run on the backend that something needs."""
    if keras.backend.backend() != needed:
        raise ConfigError(
            f"Keras runs on {keras.backend.backend()}; {what} needs KERAS_BACKEND={needed} in the "
            "environment, before Keras is imported"
        )


@contextlib.contextmanager
def products_traced_in(precision: str) -> Iterator[None]:
    """Within it, JAX traces the products of bfloat16 arrays in its default precision.

    A runtime asks for exact products, for the sake of float32. For bfloat16 factors that changes no
    number, but XLA then fuses fewer products on a TPU (benchmarks/diary.md).
    """
    if precision != "bfloat16" or keras.backend.backend() != "jax":
        yield
        return
    import jax

    with jax.default_matmul_precision("default"):
        yield

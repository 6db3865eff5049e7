"""JAX on CPUs, where some versions of jaxlib compute wrong numbers without a word.

https://github.com/jax-ml/jax/issues/39103 and 39257: fusions of YNNPACK.
"""

import functools
import importlib.metadata
from typing import Any

from bert_features.errors import ConfigError

# Without these fusions 0.10.2 and 0.11.0 are right. As an option of a compilation, not in
# XLA_FLAGS: TensorFlow ends a process whose XLA_FLAGS has a name that it does not know.
_WITHOUT_FUSIONS = {"xla_cpu_experimental_ynn_fusion_type": ""}
_REFUSED = ("0.11.2",)  # wrong in another product too, which `computes_right` does not have
INSTALL = "pip install 'jax!=0.10.2,!=0.11.*'"


@functools.cache
def compiler_options(device: Any) -> dict[str, str] | None:
    """The options with which JAX compiles right for a device; raises ConfigError for none."""
    import jax

    if device.platform != "cpu":
        return None
    version = importlib.metadata.version("jaxlib")
    for options in (_WITHOUT_FUSIONS, None) if version not in _REFUSED else ():
        try:
            if computes_right(device, options):
                return options
        except jax.errors.JaxRuntimeError as error:
            if "No such compile option" not in str(error):  # in earlier versions
                raise
    raise ConfigError(
        f"jaxlib {version} computes wrong numbers on CPUs (github.com/jax-ml/jax/issues/39103); "
        f"install another version ({INSTALL}), or pass runtime='tensorflow'"
    )


def computes_right(device: Any, options: dict[str, str] | None = None) -> bool:
    """Whether a program of the kind that is known to go wrong is right, in some 0.3 s."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    def lengths(rows: Any) -> Any:
        return jax.vmap(lambda row: jnp.square(jnp.eye(3, dtype=row.dtype) @ row).sum())(rows)

    rows = np.zeros((32769, 3), np.float32)
    rows[:, 0] = np.arange(32769)
    computed = jax.jit(lengths, compiler_options=options)(jax.device_put(rows, device))
    return bool((np.asarray(computed) == rows[:, 0] ** 2).all())

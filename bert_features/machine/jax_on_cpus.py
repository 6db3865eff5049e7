"""JAX on CPUs, where some versions of jaxlib compute wrong numbers and none of them says so.

https://github.com/jax-ml/jax/issues/39103 and 39257: fusions of YNNPACK.
"""

from typing import Any

import numpy as np

from bert_features.errors import ConfigError

# Without these fusions 0.10.2 and 0.11.0 are right. As an option of a compilation, not in
# XLA_FLAGS: TensorFlow ends a process whose XLA_FLAGS has a name that it does not know.
WITHOUT_FUSIONS = {"xla_cpu_experimental_ynn_fusion_type": ""}
# Wrong in another product too, which `computes_right` does not have.
_REFUSED = ("0.11.2",)
INSTALL = "pip install 'jax!=0.10.2,!=0.11.*'"


def cpu_options(device: Any) -> dict[str, str] | None:
    """The options with which this jaxlib compiles right for a CPU, `device`; None for no options.

    Raises:
      ConfigError: it computes wrong numbers with any.
    """
    import jax
    import jaxlib

    version = jaxlib.__version__
    for options in (WITHOUT_FUSIONS, None) if version not in _REFUSED else ():
        try:
            if computes_right(device, options):
                return options
        except jax.errors.JaxRuntimeError as error:
            if "No such compile option" not in str(error):  # of earlier versions, or later ones
                raise
    raise ConfigError.naming(
        "jaxlib {version} computes wrong numbers on CPUs (github.com/jax-ml/jax/issues/39103); "
        "install another version ({install}), or pass {runtime:'tensorflow'}",
        version=version,
        install=INSTALL,
    )


def computes_right(device: Any, options: dict[str, str] | None = None) -> bool:
    """Whether a CPU's program of the kind that is known to go wrong is right, in some 0.3 s."""
    import jax
    import jax.numpy as jnp

    rows = np.zeros((32769, 3), np.float32)
    rows[:, 0] = np.arange(32769)

    def lengths(rows: Any) -> Any:
        return jax.vmap(lambda row: jnp.square(jnp.eye(3) @ row).sum())(rows)

    computed = jax.jit(lengths, compiler_options=options)(jax.device_put(rows, device))
    return bool((np.asarray(computed) == rows[:, 0] ** 2).all())

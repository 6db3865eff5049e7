"""What the child processes of TensorFlow and of JAX reported."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bert_features.doctor.children import Outcome

# Google's TPU machines have a server that describes the TPU. Elsewhere libtpu asks for it as well,
# each question up to 30 times: where the network answered 403, `import tensorflow` (TPU build
# 2.20.0, libtpu 0.0.30) had not ended after 6 minutes. With this variable set it took 8 s.
METADATA_VARIABLE = "TPU_SKIP_MDS_QUERY"
NOT_RUN = Outcome()


@dataclass(frozen=True)
class Runtimes:
    """What the two runtimes reported.

    Attributes:
      tensorflow: the outcome of TensorFlow's child process; None if TensorFlow is not installed.
      jax: the outcome of JAX's child process; None if JAX is not installed.
      tensorflow_build: name of the distribution that installed TensorFlow.
      tensorflow_minor: version of that distribution, as 2.20.
    """

    tensorflow: Outcome | None
    jax: Outcome | None
    tensorflow_build: str = "tensorflow"
    tensorflow_minor: str = "2.20"

    def devices(self, kind: str) -> dict[str, list[Mapping[str, Any]]]:
        """Runtime -> its devices of a kind, `tpu` or `gpu`; runtimes without any are left out."""
        by_tensorflow = (self.tensorflow or NOT_RUN).results.get(kind, {}).get("devices", [])
        by_jax = (self.jax or NOT_RUN).results.get("devices", {}).get("devices", [])
        every = {
            "TensorFlow": by_tensorflow,
            "JAX": [device for device in by_jax if device["platform"] == kind],
        }
        return {runtime: devices for runtime, devices in every.items() if devices}

    def problems(self, kind: str) -> str:
        """Why the runtimes could not list devices of a kind; empty if no runtime failed."""
        problems = {
            "TensorFlow": (self.tensorflow or NOT_RUN).problem(kind),
            "JAX": (self.jax or NOT_RUN).problem("devices"),
        }
        return "; ".join(
            f"{runtime}: {problem}" for runtime, problem in problems.items() if problem
        )

"""The names that code written for google-research/bert's script and its tutorials uses.

from bert_features.official import modeling, tokenization
from bert_features.official import tf1 as tf
"""

from typing import Any

from bert_features.machine.quiet_tensorflow import import_tensorflow

# Such code computes with TensorFlow's tensors, so of the two runtimes it takes this one. The names
# of the package itself (`bert_features.Estimator`) choose theirs before they come here.
import_tensorflow("tensorflow")


def __getattr__(name: str) -> Any:
    # `from … import` replaces an AttributeError, which it needs for modules, by its own sentence.
    kind = ImportError if name in ("optimization", "run_classifier") else AttributeError
    raise kind(
        f"official.{name} is not here; docs/migrating.md lists what is left out, and what to use"
    )

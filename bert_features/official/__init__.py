"""The names that code written for google-research/bert's script and its tutorials uses.

from bert_features.official import modeling, tokenization
from bert_features.official import tf1 as tf
"""

from typing import Any

from bert_features.machine.quiet_tensorflow import import_tensorflow

# Such code computes with TensorFlow's tensors, so of the two runtimes it takes this one. The names
# of the package itself (`bert_features.Estimator`) choose theirs before they come here.
import_tensorflow("tensorflow")

_LEFT_OUT = ("optimization", "run_classifier", "run_pretraining", "run_squad")


def __getattr__(name: str) -> Any:
    sentence = f"{__name__}.{name} is not here; docs/migrating.md lists what is left out, and what "
    # `from … import` replaces an AttributeError by a sentence of its own. Modules ask for theirs.
    raise (ImportError if name in _LEFT_OUT else AttributeError)(sentence + "to use")

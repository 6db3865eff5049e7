"""The names that code written for google-research/bert's script and its tutorials uses.

from bert_features.official import modeling, tokenization
from bert_features.official import tf1 as tf
"""

from collections.abc import Callable
from typing import NoReturn

from bert_features.machine.quiet_tensorflow import import_tensorflow

# Such code computes with TensorFlow's tensors, so of the two runtimes it takes this one. The names
# of the package itself (`bert_features.Estimator`) choose theirs before they come here.
import_tensorflow("tensorflow")

PAGE = "docs/migrating.md lists what is left out, and what to use"
_INSTEAD = {
    "optimization run_classifier run_pretraining run_squad": "to train, use BertFeatures",
    "attention_layer embedding_lookup embedding_postprocessor transformer_model": "use BertEncoder",
    "PoolingStrategy convert_lst_to_features optimize_graph": "use FeatureExtractor or a server",
    "create_initializer dropout layer_norm layer_norm_and_dropout": "use TensorFlow's operations",
    "gelu": "use gelu(x, approximate=True) of tensorflow.nn",
    "reshape_from_matrix reshape_to_matrix": "use tf.reshape",
}


def refusing(module: str) -> Callable[[str], NoReturn]:
    """The `__getattr__` of a module: it says what to use instead of a name that is left out."""

    def refuse(name: str) -> NoReturn:
        for names, instead in _INSTEAD.items():
            if name in names.split():  # `from … import` puts its own sentence for an AttributeError
                raise ImportError(f"{module}.{name} is not here; {instead}; {PAGE}")
        raise AttributeError(f"{module}.{name} is not here; {PAGE}")

    return refuse


__getattr__ = refusing("official")
